package scheduler

import (
	"fmt"
	"strconv"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/enum"
	"github.com/headgate/headgate/throttle"
)

// PriorityLevel orders jobs that wait for the same permits in one queue. It is a head start and not
// a class of its own: a job of any level gets its turn, however many High jobs come. As text, in
// config files too, it is one of normal, high and low; MarshalText returns an error for any other
// level, and UnmarshalText a [*throttle.FieldError].
type PriorityLevel int

// The levels; PriorityNormal is the zero value. A job goes before those of the next lower level that began
// to wait up to 1000 jobs earlier, and no further: so a Low job is overtaken by at most 2000 jobs
// that came after it.
const (
	PriorityNormal PriorityLevel = iota // these are waitdb's in their order
	PriorityHigh
	PriorityLow
)

var priorities = enum.Names{PriorityNormal: "normal", PriorityHigh: "high", PriorityLow: "low"}

// String is the level in lower case.
func (p PriorityLevel) String() string { return priorities.Text(int(p)) }

// MarshalText implements encoding.TextMarshaler.
func (p PriorityLevel) MarshalText() ([]byte, error) { return priorities.Marshal(int(p)) }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *PriorityLevel) UnmarshalText(text []byte) error {
	if priorities.Unmarshal(text, (*int)(p)) != nil {
		return &throttle.FieldError{Field: "priority", Value: strconv.Quote(string(text)), Want: "want one of " + priorities.String()}
	}
	return nil
}

// headerPriority is the header of a task that has a priority of its own.
const headerPriority = "headgate-priority"

// Priority returns an option that has a job go before or after others that
// wait for the same permits, whatever its rule says. It travels with the job, as a
// header. NewTask and a Client's Enqueue take it; asynq's own functions pass over
// it. Of several the last counts.
func Priority(p PriorityLevel) asynq.Option { return priorityOption(p) }

// priorityOption is the option of [Priority]. Its methods are those of
// asynq.Option.
type priorityOption PriorityLevel

func (p priorityOption) String() string         { return fmt.Sprintf("Priority(%d)", int(p)) }
func (p priorityOption) Type() asynq.OptionType { return -1 } // none of asynq's
func (p priorityOption) Value() any             { return PriorityLevel(p) }

// priorityIn finds the last Priority among options.
func priorityIn(opts []asynq.Option) (p PriorityLevel, ok bool) {
	for _, opt := range opts {
		if own, is := opt.(priorityOption); is {
			p, ok = PriorityLevel(own), true
		}
	}
	return p, ok
}

// formatPriority is a priority as the header has it.
func formatPriority(p PriorityLevel) string { return strconv.Itoa(int(p)) }
