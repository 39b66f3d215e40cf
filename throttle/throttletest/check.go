// Package throttletest checks a history of admitted calls against the guarantee of a limit. It
// needs only the history and the limit, so it can check any limiter, or the calls that a server
// got.
//
// A test records an [Admission] for each call that was allowed, and then calls [Check]. Check
// compares every window of the history with the guarantee of the limit's Kind. It does not find out
// whether the limiter is too strict.
package throttletest

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/throttle"
)

// Admission is a call that was let through, for one key of a limit. The times of a history must be
// of one clock. For a FixedWindow they are microseconds since 1970. For other kinds any origin will
// do.
type Admission struct {
	// At is the time at which the call was admitted, in microseconds.
	At int64
	// Cost is the number of permits that the call took.
	Cost int
	// Until is the time at which the permits of a concurrency limit were given back, in
	// microseconds. Zero means that the permits are held until the end of the history.
	Until int64
	// Debt marks the additional cost of a call that was admitted earlier. A debt is itself
	// no violation, but it counts in the windows of later admissions.
	Debt bool
}

// Check returns an error that names the first window in which the history has more permits than the
// limit guarantees. The history may be in any order, and is not changed. The limit must be valid,
// and must not have changed during the history.
func Check(limit throttle.Limit, history []Admission) error {
	return CheckStarts(limit, history, 0)
}

// CheckStarts is like Check, but the history has the times at which calls were sent. A call may be
// sent up to late after its permits were taken, so CheckStarts allows more calls in a window. For a
// Concurrency limit late has no effect. If late is above 0, CheckStarts ignores the Margin of a
// FixedWindow.
func CheckStarts(limit throttle.Limit, starts []Admission, late time.Duration) error {
	violations := judge(limit, starts, late.Microseconds())
	if len(violations) == 0 {
		return nil
	}
	return fmt.Errorf("limit %s (%s): %s", limit.Name, limit, violations[0])
}

// Over returns the number of violations. Each admission with which a window exceeds the limit is a
// violation, so one window of a FixedWindow can have several. Each admission within the Margin of a
// FixedWindow's boundary is a violation, too.
func Over(limit throttle.Limit, history []Admission) int {
	return len(judge(limit, history, 0))
}

// judge describes every violation, in the order of time. Calls may be sent up to late microseconds
// after their permits were taken. An unknown kind is a violation, so that no history passes
// unchecked.
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

func formatTime(us int64) string {
	return time.UnixMicro(us).UTC().Format("2006-01-02 15:04:05.000000")
}
