package throttle

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/duration"
	"github.com/headgate/headgate/internal/meter"
)

// Outcome is what a limiter answers. The zero value is Unavailable, so a Decision that came with an
// error never says that a caller may go on.
type Outcome int

// The outcomes. Only Allowed may run.
const (
	// Unavailable: the limiter could not be asked; the error says why.
	Unavailable Outcome = iota
	// Allowed: the permits are taken.
	Allowed
	// Denied: there is no permit now, and nothing was taken. Come back in RetryAfter.
	Denied
	// Impossible: the cost is above the limit's capacity, so waiting does not help.
	Impossible
	// NoLimit: there is no limit of that name, or not for this app. Usually the name is wrong;
	// whether to go on without a limit is the caller's decision.
	NoLimit
	// Expired: the job has waited as long as it may. Only package scheduler answers that.
	Expired
)

var outcomes = []string{"unavailable", "allowed", "denied", "impossible", "no such limit", "expired"}

// String returns the outcome in lower case.
func (o Outcome) String() string {
	if o < 0 || int(o) >= len(outcomes) {
		return fmt.Sprintf("outcome(%d)", int(o))
	}
	return outcomes[o]
}

// Decision is a limiter's answer. If several limits were asked, Limit and Key name the one that
// decided: the one to wait longest for, or, when all allowed, the one with the fewest permits left.
// The numbers are those of its meter: a server can fill RateLimit headers with Capacity, Remaining
// and ResetAfter, and Retry-After with RetryAfter.
//
// Most callers look at OK and RetryAfter.
type Decision struct {
	Outcome Outcome
	// Limit, Key and Cost are the need that decided. Needs of one meter were added up before.
	Limit string
	Key   string
	Cost  int
	// Capacity is the most permits that can be taken at once.
	Capacity int
	// Remaining is how many permits could be taken right after this decision: 0 while the limit is
	// paused or the key blocked, and without those that are reserved for jobs.
	Remaining int
	// RetryAfter is how long until the same call could be allowed if nobody else takes the permits
	// first, rounded up to a microsecond: 0 unless Denied. For a concurrency limit it is when
	// leases end that nobody extends, and for a paused limit a minute: both say when to look again.
	// For a waiting job it estimates when the job runs, as if all lanes of a meter had equally many
	// turns.
	RetryAfter time.Duration
	// BeginIn is how long until the permits of an advance grant exist: the job must not begin
	// sooner. It is 0 if they exist.
	BeginIn time.Duration
	// ResetAfter is how long until the meter is as if never used, if nothing more is taken of it.
	ResetAfter time.Duration
	// At is the time of the decision by the limiter's clock. If a call is repeated because its
	// answer got lost, it is when the permits were taken.
	At time.Time
	// Taken is what was taken: each cost is what the call counts as now, which Settle changes.
	Taken []Need
	marks []meter.Mark // of Taken; zero if the call's answer got lost: then nothing is given back

	forOthers bool // the outcome is NoLimit, and there is such a limit for other apps

	// Holder names the leases on concurrency limits, for Extend and Free, and Lease is the shortest
	// of them. Both are zero if there are none. Each allowed call has a Holder of its own.
	Holder string
	Lease  time.Duration
	// Waited is how long ago an allowed job was denied first, and Denials how often it was denied.
	// Both are 0 for a job that did not wait.
	Waited  time.Duration
	Denials int
}

// OK reports whether the caller may go on.
func (d Decision) OK() bool { return d.Outcome == Allowed }

// String says what was decided, by which limit, and what would be right.
func (d Decision) String() string {
	name := d.Limit
	if d.Key != "" {
		name += " for " + strings.ToValidUTF8(d.Key, "\uFFFD") // asynq keeps no other text
	}
	switch d.Outcome {
	case Allowed:
		return fmt.Sprintf("allowed by %s, %d of %d left", name, d.Remaining, d.Capacity)
	case Denied:
		return fmt.Sprintf("denied by %s: retry after %s", name, duration.Text(d.RetryAfter))
	case Impossible:
		return fmt.Sprintf("cost %d is above the capacity %d of limit %s: it can never run", d.Cost, d.Capacity, name)
	case NoLimit:
		if d.forOthers {
			return fmt.Sprintf("limit %s is for other apps", d.Limit)
		}
		return fmt.Sprintf("no such limit: %s", d.Limit)
	case Expired:
		return fmt.Sprintf("limit %s did not let it run within the time that it may wait", name)
	}
	return d.Outcome.String()
}

// settled notes what a call counts as now. What was charged more of a funnel moves the call's mark,
// because it is the call's own and not what others took since.
func (d Decision) settled(i, cost int, owedUS int64) {
	if d.Taken[i].Cost = cost; d.marks[i][0] > 0 {
		d.marks[i][0] += owedUS
	}
}

// newDecision reads a script's reply. The replies are lists of lua/limits/include/needs.lua and
// take.lua. Times are microseconds of Redis's clock, and become durations here, so this process's
// clock does not matter. It also returns the reply as numbers: replies to jobs have more of them.
func newDecision(reply []any, needs []Need, holder string) (Decision, []int64) {
	n := make([]int64, max(9, len(reply)))
	for i := range reply {
		n[i] = reply[i].(int64)
	}
	need := needs[n[1]]
	d := Decision{
		Outcome: Outcome(n[0]), Limit: need.Limit, Key: need.Key, Cost: need.Cost,
		At: time.UnixMicro(n[2]), Remaining: int(n[4]), Capacity: int(n[6]),
	}
	wait := microseconds(max(0, n[3]-n[2]))
	switch d.Outcome {
	case NoLimit:
		d.forOthers = n[3] == 2
		return d, n[:len(reply)]
	case Denied:
		d.RetryAfter = wait
	case Allowed:
		d.At, d.BeginIn = time.UnixMicro(min(n[2], n[3])), wait
		for i, need := range needs {
			if len(reply) > 8 && need.Cost > 0 {
				d.Taken, d.marks = append(d.Taken, need), append(d.marks, meter.Mark(n[9+2*i:]))
			}
		}
	}
	if d.Outcome != Denied && n[7] > 0 {
		d.Holder, d.Lease = holder, microseconds(n[7])
	}
	if n[5] > 0 {
		d.ResetAfter = microseconds(max(0, n[5]-n[2]))
	}
	return d, n[:len(reply)]
}

// microseconds returns n microseconds, or the longest duration there is, some 292 years, if n does
// not fit one.
func microseconds(n int64) time.Duration {
	return time.Duration(min(n, math.MaxInt64/1000)) * time.Microsecond
}

// number returns the number that a script has written, or 0.
func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}
