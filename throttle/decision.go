package throttle

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/duration"
	"github.com/headgate/headgate/internal/script"
)

// Outcome is what a limiter answers. The zero value is Unavailable, so a Decision
// that came with an error never says that a caller may go on. As a text it is what
// String writes, in JSON too.
type Outcome int

// The outcomes. Only Allowed may run.
const (
	// Unavailable: the limiter could not be asked; the error says why.
	Unavailable Outcome = iota
	// Allowed: the permits are taken.
	Allowed
	// Denied: no permit now, and nothing was taken. Come back in RetryAfter.
	Denied
	// Never: the cost is above the limit's capacity, so no wait will help.
	Never
	// NoLimit: there is no limit of that name, or not for this app. Mostly a
	// mistake in a name; whether to go on without a limit is the caller's to say.
	NoLimit
	// TooLate: the job has waited as long as it may. Only package scheduler/lanes answers that.
	TooLate
)

var outcomes = []string{"unavailable", "allowed", "denied", "never", "no such limit", "too late"}

// String is the outcome in lower case.
func (o Outcome) String() string {
	if o < 0 || int(o) >= len(outcomes) {
		return fmt.Sprintf("outcome(%d)", int(o))
	}
	return outcomes[o]
}

// MarshalText writes the outcome as String does.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText reads what String writes. Its error, a [*FieldError], lists the
// outcomes.
func (o *Outcome) UnmarshalText(text []byte) error {
	i, err := choose("outcome", string(text), outcomes)
	if err == nil {
		*o = Outcome(i)
	}
	return err
}

// Decision is a limiter's answer. Where several limits were asked, Limit and
// Key name the one that decided: the one to wait longest for, or, when all
// allowed, the one with the fewest permits left. The numbers are that meter's:
// with Capacity, Remaining and ResetAfter a server can fill RateLimit headers,
// with RetryAfter the header of that name.
//
// Most callers look at OK and RetryAfter.
type Decision struct {
	Outcome Outcome
	// Limit, Key and Cost are the need that decided. Needs of one meter were added
	// up before, so Cost can be more than any of them said.
	Limit string
	Key   string
	Cost  int
	// ForOthers is whether, where the outcome is NoLimit, there is a limit of that name
	// for other apps.
	ForOthers bool
	// Capacity is the most permits that can be taken at once.
	Capacity int
	// Remaining is how many permits could be taken right after this decision: 0
	// while the limit is paused or the key blocked, and without those that are
	// reserved for called jobs.
	Remaining int
	// RetryAfter is how long until the same call could be allowed, rounded up
	// to a microsecond: 0 unless Denied. It holds if nobody else takes
	// the permits first. Of a concurrency limit it is when leases end that nobody
	// extends, and of a paused limit a minute: both are only when to look again.
	// From lanes it is an estimate of when the job would run, after all that wait before
	// it, as if all lanes at a meter had as many turns: it knows no weights of queues and
	// fairness keys, and no strict ones. A forecast of the lanes does.
	RetryAfter time.Duration
	// Unknown is whether a job was denied and nobody can tell for how long it will
	// wait: a running job must give its slot back, or somebody resume a limit.
	// RetryAfter is when to ask again at the latest then. Only lanes tell.
	Unknown bool
	// PutBack is, for a job denied by Acquire, how long to put it back for in
	// case that nobody calls it: longer than RetryAfter, since a job that comes
	// early is denied a second time.
	PutBack time.Duration
	// BeginIn is how long until the permits exist of a job that said that it may have them
	// Ahead: it begins no sooner. It is 0 where they are there.
	BeginIn time.Duration
	// ResetAfter is how long until the meter is as if never used, if nothing more
	// is taken of it.
	ResetAfter time.Duration
	// At is the moment of the decision by the limiter's clock. When a call is repeated
	// because its answer got lost, and its permits were taken before, it is when they were.
	At time.Time
	// TakenAt is the earliest moment by this process's clock at which the permits may have
	// been taken; for those that do not exist yet, at which they begin to. Only lanes tell.
	TakenAt time.Time
	// Taken is what was taken of each meter, for Settle. It is empty unless Allowed,
	// and leaves out needs whose cost was 0.
	Taken []Taken
	// Heard is whether the limiter is to be told how a job's call goes, with
	// Accepted. Refused tells it in any case.
	Heard bool
	// Holder names the leases on concurrency limits, for Extend and Free, and
	// Lease is the shortest of them. Both are zero where there are none. Every
	// allowed call gets a Holder of its own.
	Holder string
	Lease  time.Duration
	// Waited is, for a job that Acquire allowed, how long ago it was denied first,
	// and Denials how often it was. Late is for how long its permits had been
	// reserved: below 0 where they were not, since nobody called it or since it came
	// too late for them and found others. All are 0 for a job that did not wait.
	Waited  time.Duration
	Denials int
	Late    time.Duration
}

// Taken is what a decision took of one meter: its Cost is what the call counts as now,
// which Settle changes. It is all that Settle needs of the past, so that the limiter
// keeps no record of single calls.
type Taken struct {
	Need
	// Mark is by what the meter knows these permits from those of others: of a funnel or
	// a token bucket until when it owed then, its theoretical arrival time, and how many
	// permits had been given back; of a window where it counts them. Zero means not
	// known, as where the call's answer got lost: then nothing is given back.
	Mark [2]int64
}

// OK reports whether the caller may go on.
func (d Decision) OK() bool { return d.Outcome == Allowed }

// String says what was decided, by which limit, and what would be right.
func (d Decision) String() string {
	meter := d.Limit
	if d.Key != "" {
		meter += " for " + strings.ToValidUTF8(d.Key, "\uFFFD") // asynq keeps no other text
	}
	switch d.Outcome {
	case Allowed:
		return fmt.Sprintf("allowed by %s, %d of %d left", meter, d.Remaining, d.Capacity)
	case Denied:
		if d.Unknown {
			return fmt.Sprintf("denied by %s: nobody can tell for how long", meter)
		}
		if d.PutBack > 0 { // it waits among others
			return fmt.Sprintf("denied by %s: its turn comes in about %s", meter, duration.Text(d.RetryAfter))
		}
		return fmt.Sprintf("denied by %s: retry after %s", meter, duration.Text(d.RetryAfter))
	case Never:
		return fmt.Sprintf("cost %d is above the capacity %d of limit %s: it can never run", d.Cost, d.Capacity, meter)
	case NoLimit:
		if d.ForOthers {
			return fmt.Sprintf("limit %s is for other apps", d.Limit)
		}
		return fmt.Sprintf("no such limit: %s", d.Limit)
	case TooLate:
		return fmt.Sprintf("limit %s did not let it run within the time that it may wait", meter)
	}
	return d.Outcome.String()
}

// Age is for how long at most a job's permits have existed: below 0 if they do not yet. A
// process that was stopped, or whose machine slept, finds them older.
func (d Decision) Age() time.Duration { return script.Elapsed(d.TakenAt, time.Now()) }

// settles finds what a decision took of a meter, in the slice that all copies of the
// decision share. It fails where that is nothing, so that nobody settles what was never
// allowed, and where the true cost is out of bounds. 0 is within: such a call is given
// back whole.
func (d Decision) settles(limit, key string, cost int) (*Taken, error) {
	i := slices.IndexFunc(d.Taken, func(t Taken) bool { return t.Limit == limit && t.Key == key })
	if i < 0 {
		return nil, fmt.Errorf("settle: nothing was taken of limit %s for key %q", limit, key)
	}
	if cost < 0 || cost > maxPermits {
		return nil, fieldError("cost", cost, "want 0 to %d of limit %s", maxPermits, limit)
	}
	return &d.Taken[i], nil
}

// charged notes what a call counts as now. What was charged for longer of a funnel is its
// own, and not what others took since.
func (t *Taken) charged(cost int, longer int64) {
	if t.Cost = cost; t.Mark[0] > 0 {
		t.Mark[0] += longer
	}
}

// memory is for how long it is known that a key's rate has changed; nothing comes
// back that was taken longer ago. Without that, what was taken at one rate could be
// given back at another, as more permits than it was.
const memory = int64(time.Hour / time.Microsecond)

// microseconds is n microseconds, or the longest duration there is, some 292 years,
// where n does not fit one.
func microseconds(n int64) time.Duration {
	return time.Duration(min(n, math.MaxInt64/1000)) * time.Microsecond
}

// number is what a script has written as one, or 0.
func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// Cell is redis-cell's answer to CL.THROTTLE in five numbers, plus Never,
// which redis-cell does not tell from a denial with a retry. Only where Limited is
// false may the caller go on.
type Cell struct {
	Limited    bool
	Limit      int           // max_burst + 1
	Remaining  int           // permits left
	RetryAfter time.Duration // until the same call is allowed; -1 when it was, or never will be
	ResetAfter time.Duration // until the key is as if never used
	Never      bool          // the quantity is above Limit: no wait will help
}

// newCell is the answer of a meter that has so many permits left, and at those moments what
// was asked for and all.
func newCell(outcome Outcome, limit int, now, readyAt, left, fullAt int64) Cell {
	c := Cell{
		Limited: outcome != Allowed, Limit: limit, Remaining: int(left), RetryAfter: -1,
		ResetAfter: microseconds(fullAt - now), Never: outcome == Never,
	}
	if outcome == Denied {
		c.RetryAfter = microseconds(readyAt - now)
	}
	return c
}

// Numbers is the answer as redis-cell prints it: limited 0 or 1, limit,
// remaining, retry after and reset after in seconds. Seconds are rounded up,
// so that who waits that long is not early.
func (c Cell) Numbers() [5]int64 {
	limited := int64(0)
	if c.Limited {
		limited = 1
	}
	return [5]int64{limited, int64(c.Limit), int64(c.Remaining), ceilSeconds(c.RetryAfter), ceilSeconds(c.ResetAfter)}
}

// ceilSeconds is whole seconds, rounded up; -1 stays what it is.
func ceilSeconds(d time.Duration) int64 {
	if d < 0 {
		return -1
	}
	return int64(math.Ceil(d.Seconds()))
}

// validCell reports what is wrong with a call of Throttle: its numbers have the
// bounds of a Limit's.
func validCell(key string, maxBurst, count int, period time.Duration, quantity int) error {
	if err := validKey(key); err != nil {
		return err
	}
	if maxBurst < 0 || maxBurst >= maxPermits {
		return fieldError("max_burst", maxBurst, "want 0 to %d", maxPermits-1)
	}
	if quantity < 0 || quantity > math.MaxInt32 {
		return fieldError("quantity", quantity, "want 0 to %d", math.MaxInt32)
	}
	return Limit{Name: "cell", Kind: Funnel, Rate: Rate{count, period}, Capacity: maxBurst + 1}.Validate()
}
