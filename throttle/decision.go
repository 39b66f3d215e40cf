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

// Outcome is the result of a call. The zero value is Unavailable, so a Decision that comes with an
// error never allows the call.
type Outcome int

// The outcomes. Only an allowed call may run.
const (
	// Unavailable: the limiter made no decision; see the error.
	Unavailable Outcome = iota
	// Allowed: the permits are taken.
	Allowed
	// Denied: there is no permit now, and nothing was taken. Request again after RetryAfter.
	Denied
	// Impossible: the cost is above the limit's capacity, so waiting does not help.
	Impossible
	// NoLimit: the limit does not exist, or only other apps may use it. Usually the name is wrong.
	// The caller decides whether to go on without a limit.
	NoLimit
	// Expired: the job has waited as long as its MaxWait allows. Only jobs of package scheduler
	// expire.
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

// Decision is the result of a call. Most callers need only OK and RetryAfter.
//
// If the call needs several limits, Limit and Key name the need that decided: for a denied call the
// need with the longest wait, and for an allowed call the need with the fewest permits left. The
// numbers are those of this need's meter.
type Decision struct {
	Outcome Outcome
	// Limit, Key and Cost are the need that decided. Cost is the sum of the call's needs of this
	// limit and key.
	Limit string
	Key   string
	Cost  int
	// Capacity is the largest number of permits that can be taken at once. It is 0 for a job that
	// waits for a limit which does not exist, or which is for other apps.
	Capacity int
	// Remaining is the number of permits that could be taken right after this decision. It is 0
	// while the limit is paused or the key is blocked. It does not include permits reserved for
	// jobs.
	Remaining int
	// RetryAfter is the time until the same call could be allowed if no other call takes the
	// permits first, rounded up to a microsecond. It is 0 for all outcomes other than Denied. For a
	// concurrency limit it assumes that no lease is extended. For a paused limit it is at least a
	// minute. For a waiting job it is an estimate.
	RetryAfter time.Duration
	// BeginIn is the time until the job may begin. It is 0 if the job got no permits in advance.
	BeginIn time.Duration
	// ResetAfter is the time until all permits are available again, if no call takes more.
	ResetAfter time.Duration
	// At is the time of the decision by the limiter's clock. If the reply to an allowed call was
	// lost and the call is repeated, At is the time at which the permits were taken.
	At time.Time
	// Taken lists the needs for which the call took permits. Settle changes their costs.
	Taken []Need
	marks []meter.Mark // one for each need in Taken. After a lost reply they are zero, and Settle gives nothing back

	forOthers bool // true if only other apps may use the limit, and that decided

	// Holder is the ID of the call's leases on concurrency limits, for Extend and Free. Lease is
	// the shortest Lease of these limits. If the call took no leases, both are zero. Two calls that
	// took leases never have the same Holder.
	Holder string
	Lease  time.Duration
	// Waited is the time from the first denial of an allowed job to this decision. It is 0 for a
	// job that did not wait.
	Waited time.Duration
	// Denials is the number of times that an allowed job was denied.
	Denials int
}

// OK reports whether the caller may go on.
func (d Decision) OK() bool { return d.Outcome == Allowed }

// String describes the decision for people, with the limit that decided.
func (d Decision) String() string {
	name := d.Limit
	if d.Key != "" {
		name += " for " + strings.ToValidUTF8(d.Key, "\uFFFD") // asynq can store only valid UTF-8
	}
	switch d.Outcome {
	case Allowed:
		return fmt.Sprintf("allowed by %s, %d of %d left", name, d.Remaining, d.Capacity)
	case Denied:
		if d.Capacity == 0 {
			return fmt.Sprintf("denied by %s: %s", name, d.NoLimitText())
		}
		return fmt.Sprintf("denied by %s: retry after %s", name, duration.Text(d.RetryAfter))
	case Impossible:
		return fmt.Sprintf("cost %d is above the capacity %d of limit %s: it can never run", d.Cost, d.Capacity, name)
	case NoLimit:
		return d.NoLimitText()
	case Expired:
		return fmt.Sprintf("limit %s did not let the job run within the time that it may wait", name)
	}
	return d.Outcome.String()
}

// NoLimitText says why a call cannot use its limit: the limit does not exist, or is for other apps.
func (d Decision) NoLimitText() string {
	if d.forOthers {
		return fmt.Sprintf("limit %s is for other apps", d.Limit)
	}
	return "no such limit: " + d.Limit
}

// settled sets the cost of the i-th need in Taken. owedUS is the time by which the charge of a
// funnel or token bucket delays later calls, else 0. settled moves the call's mark by owedUS, so
// that a later Settle does not count the charge as another call's cost.
func (d Decision) settled(i, cost int, owedUS int64) {
	if d.Taken[i].Cost = cost; d.marks[i][0] > 0 {
		d.marks[i][0] += owedUS
	}
}

// newDecision reads a reply as lua/limits/include/needs.lua and take.lua describe it. Times in the
// reply are microseconds of Redis's clock. newDecision also returns all numbers of the reply,
// because the reply to a job has more than a Decision has.
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
		d.RetryAfter, d.forOthers, d.Capacity = wait, n[6] < 0, max(0, d.Capacity)
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

// microseconds returns n microseconds, or the longest duration (about 292 years) if n is larger.
func microseconds(n int64) time.Duration {
	return time.Duration(min(n, math.MaxInt64/1000)) * time.Microsecond
}

// number returns the integer that a text consists of, or 0 if the text is no integer.
func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}
