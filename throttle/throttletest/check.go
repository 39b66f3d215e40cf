// Package throttletest judges what a limiter let through. It looks only at a history of admissions
// and at the limit, so it can judge any limiter, or what a server has counted.
//
// A test records an [Admission] for each call that was allowed, and ends with [Check]. Check
// compares the history with the guarantee of the limit's Kind in every window, not only in those
// that begin with a call. A limiter that lets nothing through violates nothing: other tests must
// check that it is not too strict.
package throttletest

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/throttle"
)

// Admission is a call that was let through, for one key of a limit. The times of a history must be
// of one clock. For a FixedWindow they are microseconds since 1970, for other kinds the zero does
// not matter.
type Admission struct {
	// At is when it was let through, in microseconds.
	At int64
	// Cost is how many permits it took.
	Cost int
	// Until is when the permits of a concurrency limit were free again, in microseconds. Zero means
	// that they are still held.
	Until int64
	// Debt is whether a call that had been let through turned out to cost more. A window that ends
	// with a debt is not judged, but the debt counts in the windows of later admissions.
	Debt bool
}

// Check returns an error that names the first window in which the history has more permits than the
// limit guarantees. The history may be in any order, and is not changed. The limit must be valid,
// and must not have changed meanwhile.
func Check(limit throttle.Limit, history []Admission) error {
	return CheckStarts(limit, history, 0)
}

// CheckStarts is Check for when calls left, which is up to late after their permits were taken. It
// returns an error if the limit cannot have given the permits for the calls of some window: a
// window of starts holds no more than a window of permits that begins so much earlier. For aligned
// windows it looks at the calls that left late or more after the window's start, and at those of
// two neighboring windows together. It does not judge a Margin, which is for how long calls take to
// arrive.
func CheckStarts(limit throttle.Limit, starts []Admission, late time.Duration) error {
	violations := judge(limit, starts, late.Microseconds())
	if len(violations) == 0 {
		return nil
	}
	return fmt.Errorf("limit %s (%s): %s", limit.Name, limit, violations[0])
}

// Over returns how many admissions of the history should not have been: each is the last of some
// window that holds too much. For a FixedWindow, those within the Margin of a boundary count, too.
func Over(limit throttle.Limit, history []Admission) int {
	return len(judge(limit, history, 0))
}

// Busiest returns the most permits in any window (t-w, t] of the history. A w below a microsecond
// counts as one.
func Busiest(history []Admission, w time.Duration) int {
	most := 0
	slide(sorted(history), max(1, w.Microseconds()), func(_, _ Admission, sum int) { most = max(most, sum) })
	return most
}

// judge describes every violation, in the order of time, of calls that left up to late microseconds
// after their permits were taken. An unknown kind is a violation, so that no history passes
// unjudged.
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

// sorted returns a copy of the history in the order of time. Entries of the same microsecond keep
// their order, which matters only for debts.
func sorted(history []Admission) []Admission {
	return slices.SortedStableFunc(slices.Values(history), func(a, b Admission) int { return cmp.Compare(a.At, b.At) })
}

// clock returns a microsecond as people read it.
func clock(us int64) string {
	return time.UnixMicro(us).UTC().Format("2006-01-02 15:04:05.000000")
}
