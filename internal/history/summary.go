package history

import (
	"time"

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
	Tasks   []Ended            `json:"t,omitempty"`
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

// Denial is a job that was denied, as an example. Its ID is cut at 200 bytes.
type Denial struct {
	Queue      string        `json:"q"`
	ID         string        `json:"i"`
	Key        string        `json:"k,omitempty"`
	RetryAfter time.Duration `json:"r"`
	Unknown    bool          `json:"u,omitempty"` // nobody can tell for how long
}

// Ended is how jobs of a task ended, and how many ran at that moment.
type Ended struct {
	Queue string `json:"q"`
	Type  string `json:"t"`
	Ends  Counts `json:"e"`
	Busy  int64  `json:"b,omitempty"`
}

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

func limited(c *limitCounters) Limited {
	of := func(o throttle.Outcome) int64 { return c.decisions[o].Load() }
	return Limited{
		Allowed: of(throttle.Allowed), Denied: of(throttle.Denied),
		Refused: of(throttle.Never) + of(throttle.NoLimit) + of(throttle.TooLate), Permits: c.permits.Load(),
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
