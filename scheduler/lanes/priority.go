package lanes

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/throttle"
)

// Priority orders the jobs of one lane. It is a head start and not a class of its
// own: nobody starves, however many High jobs come. Between lanes it means nothing.
type Priority int

// The priorities. A job goes before those of the next lower priority that joined
// its lane up to HeadStart jobs earlier, and no further: so a Low job is overtaken
// by at most 2·HeadStart jobs that came after it.
const (
	Normal Priority = iota
	High
	Low
)

// HeadStart is how many places in a lane one step of priority is worth.
const HeadStart = 1000

var priorities = []string{Normal: "normal", High: "high", Low: "low"}

// String is the priority in lower case.
func (p Priority) String() string {
	if p < 0 || int(p) >= len(priorities) {
		return fmt.Sprintf("priority(%d)", int(p))
	}
	return priorities[p]
}

// MarshalText writes the priority as String does.
func (p Priority) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads normal, high or low. Its error is a [*throttle.FieldError].
func (p *Priority) UnmarshalText(text []byte) error {
	i := slices.Index(priorities, string(text))
	if i < 0 {
		return &throttle.FieldError{Field: "priority", Value: strconv.Quote(string(text)), Want: "want one of " + strings.Join(priorities, ", ")}
	}
	*p = Priority(i)
	return nil
}

// headStart is how many tickets later the job stands in its lane, of which the lowest
// goes first. Tickets are counted, one a job, so this is a number of jobs. What
// is no priority counts as Normal.
func (p Priority) headStart() int {
	switch p {
	case High:
		return -HeadStart
	case Low:
		return HeadStart
	}
	return 0
}
