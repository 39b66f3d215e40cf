// Package throttletest judges what a limiter let through. It looks at a history
// of admissions and at the words of the limit, and at nothing of any limiter's:
// so it can judge one that it has never seen, or what a server has counted.
//
// A test notes an [Admission] for each call that was allowed and ends with [Check].
// What it holds the history against is the guarantee of the limit's Kind, in every
// window and not only in those that begin with a call. That nothing was let through
// is no violation: whether a limiter is too strict is another test's to say.
package throttletest

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/throttle"
)

// Admission is a call that was let through, of one key of a limit. The times of a
// history must be of one clock; which one does not matter, but a FixedWindow takes
// them as microseconds since 1970.
type Admission struct {
	// At is the microsecond, by the clock that the limit is judged by.
	At int64
	// Cost is how many permits it took.
	Cost int
	// Until is the microsecond from which on the permits were free again. Only
	// a concurrency limit needs it; there, zero means that they still are held.
	Until int64
	// Debt is whether nobody let it through: a call that had been let through cost
	// more than was known then. No window that ends with a debt is judged, but those
	// of later admissions hold it.
	Debt bool
}

// Check returns an error that names the first window in which the history has
// more permits than the limit guarantees, or nil if there is none. The history
// may be in any order, and is not changed. The limit must be valid and must not have
// changed meanwhile: a history over a change is no one limit's.
func Check(limit throttle.Limit, history []Admission) error {
	return CheckStarts(limit, history, 0)
}

// CheckStarts is Check for the calls themselves: At is when each has left, which is up to late
// after its permits were taken. It returns an error where no permits that the limit guarantees
// explain the calls of some window: a window of starts holds no more than one of permits that
// begins so much earlier. Of an aligned window it looks at calls that left late or more after
// its start, and at those of two neighbors together. A Margin is not judged then: it is for how
// long calls take to arrive.
func CheckStarts(limit throttle.Limit, starts []Admission, late time.Duration) error {
	violations := judge(limit, starts, late.Microseconds())
	if len(violations) == 0 {
		return nil
	}
	return fmt.Errorf("limit %s (%s): %s", limit.Name, limit, violations[0])
}

// Over is how many admissions of the history should not have been: each is the
// last of some window that holds too much. It says how bad a limiter is, where Check
// says whether it is. Of a FixedWindow those within the Margin of a boundary count,
// too.
func Over(limit throttle.Limit, history []Admission) int {
	return len(judge(limit, history, 0))
}

// Busiest is the most permits in any window (t-w, t] of the history. A w below a
// microsecond counts as one, since no two times are closer. An empty history has none.
func Busiest(history []Admission, w time.Duration) int {
	most := 0
	slide(sorted(history), max(1, w.Microseconds()), func(_, _ Admission, sum int) { most = max(most, sum) })
	return most
}

// judge describes every violation, in order of time, of calls that left up to late
// microseconds after their permits were taken. A limit of a kind that it does not
// know has one, so that no history passes unjudged.
func judge(limit throttle.Limit, history []Admission, late int64) []string {
	switch limit.Kind {
	case throttle.Funnel, throttle.TokenBucket:
		return overRate(limit, sorted(history), late)
	case throttle.SlidingLog, throttle.SlidingWindow:
		return overSliding(limit, sorted(history), late)
	case throttle.FixedWindow:
		if late > 0 {
			return overAlignedLate(limit, sorted(history), late)
		}
		return overAligned(limit, sorted(history))
	case throttle.Concurrency:
		return overHeld(limit, sorted(history))
	}
	return []string{fmt.Sprintf("kind %q is unknown", limit.Kind)}
}

// sorted is a copy of the history in the order of time; what is of one microsecond
// keeps its order, which no judgement depends on but that of debts.
func sorted(history []Admission) []Admission {
	return slices.SortedStableFunc(slices.Values(history), func(a, b Admission) int { return cmp.Compare(a.At, b.At) })
}

// clock is a microsecond as people read it.
func clock(us int64) string {
	return time.UnixMicro(us).UTC().Format("2006-01-02 15:04:05.000000")
}
