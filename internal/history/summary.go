package history

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate/throttle"
)

// Summary is what one process did in one second, or since its last summary.
// Those limits and tasks of which there is nothing to say are not in it.
type Summary struct {
	// ID is the summary's place in the stream, and At when it was written, by
	// Redis's clock.
	ID string    `json:"-"`
	At time.Time `json:"-"`
	// Process is a random name of the one that wrote it.
	Process string             `json:"p"`
	Limits  map[string]Limited `json:"l,omitempty"`
	Tasks   []TaskNews         `json:"t,omitempty"`
}

// Limited is what was decided of a limit.
type Limited struct {
	Allowed int64 `json:"a,omitempty"`
	Denied  int64 `json:"d,omitempty"`
	// Refused counts what can never be, or not in time, or has no limit.
	Refused int64 `json:"r,omitempty"`
	Permits int64 `json:"p,omitempty"`
	// Denial is the last of those denied.
	Denial *Denial `json:"x,omitempty"`
}

// maxID is at how many bytes the ID of a Denial is cut.
const maxID = 200

// Denial is a job that was denied, as an example.
type Denial struct {
	Queue      string        `json:"q"`
	ID         string        `json:"i"`
	Key        string        `json:"k,omitempty"`
	RetryAfter time.Duration `json:"r"`
	Unknown    bool          `json:"u,omitempty"` // nobody can tell for how long
}

// TaskNews is how jobs of a task ended, and how many ran at that moment.
type TaskNews struct {
	Queue string `json:"q"`
	Type  string `json:"t"`
	Ends  Counts `json:"e"`
	Busy  int64  `json:"b,omitempty"`
}

// Task is what jobs are counted by.
type Task struct{ Queue, Type string }

// End is how an attempt to run a job ended.
type End int

// The ends.
const (
	Done       End = iota
	Failed         // to be tried again
	Archived       // kept in asynq's archive
	Dropped        // deleted, as its handler or its rule said
	PutBack        // without having run: it waits for permits, or for the limiter
	RetryAfter     // by its handler, which spends no attempt
	ends
)

var endTexts = [ends]string{"done", "failed", "archived", "dropped", "put_back", "retry_after"}

// String is the end as labels and totals have it.
func (e End) String() string { return endTexts[e] }

// Counts is how many jobs ended in which way, by End.
type Counts [ends]int64

func (c Counts) sum() (n int64) {
	for _, of := range c {
		n += of
	}
	return n
}

// maxWritten is how many limits, and how many tasks, a summary names. The rest
// is under Other.
const maxWritten = 50

// Plus adds what was decided of another limit.
func (l Limited) Plus(other Limited) Limited {
	l.Allowed += other.Allowed
	l.Denied += other.Denied
	l.Refused += other.Refused
	l.Permits += other.Permits
	return l
}

func (l Limited) sum() int64 { return l.Allowed + l.Denied + l.Refused }

func limited(c LimitCounts) Limited {
	d := c.Decisions
	return Limited{
		Allowed: d[throttle.Allowed], Denied: d[throttle.Denied],
		Refused: d[throttle.Never] + d[throttle.NoLimit] + d[throttle.TooLate], Permits: c.Permits, Denial: c.denial,
	}
}

// minus is what was added since.
func (l Limited) minus(before Limited) Limited {
	return Limited{
		Allowed: l.Allowed - before.Allowed, Denied: l.Denied - before.Denied,
		Refused: l.Refused - before.Refused, Permits: l.Permits - before.Permits,
	}
}

func (c Counts) minus(before Counts) Counts {
	for i := range c {
		c[i] -= before[i]
	}
	return c
}

// Other counts what has a name that is one too many, or no name for a label: with
// control characters, wrong UTF-8 or more than 100 bytes.
const Other = "other"

// label is a name as a label: itself, or Other.
func label(name string) string {
	if !isLabel(name) {
		return Other
	}
	return name
}

func isLabel(name string) bool {
	control := func(c rune) bool { return c < ' ' || c == 0x7f }
	return len(name) <= 100 && utf8.ValidString(name) && !strings.ContainsFunc(name, control)
}
