package throttletest

import (
	"fmt"
	"sort"
	"time"

	"github.com/headgate/headgate/throttle"
)

// overAligned judges a fixed window: at most N permits in each aligned period,
// and none in the first or the last Margin of one. An admission is over for one of
// these reasons at most.
func overAligned(limit throttle.Limit, history []Admission) (violations []string) {
	label := labels(limit)
	window, sum := "", 0
	for _, a := range history {
		if l := label(a.At); l != window {
			window, sum = l, 0
		}
		// A debt is what a handler owes above its estimate: it counts for all that come
		// after it, and is no admission itself.
		sum += a.Cost
		if a.Debt {
			continue
		}
		if sum > limit.Rate.N {
			violations = append(violations, fmt.Sprintf("%d permits in the window %s up to %s, at most %d",
				sum, window, clock(a.At), limit.Rate.N))
		} else if margin := limit.Margin.Microseconds(); margin > 0 && label(a.At-margin) != window {
			violations = append(violations, fmt.Sprintf("a permit at %s, %d µs after the window %s started; it opens %s late",
				clock(a.At), a.At-start(label, a.At, margin), window, limit.Margin))
		} else if margin > 0 && label(a.At+margin) != window {
			violations = append(violations, fmt.Sprintf("a permit at %s, in the last %s of the window %s: it closes before",
				clock(a.At), limit.Margin, window))
		}
	}
	return violations
}

// start is the first microsecond that has the same label as `at`, where that is
// less than margin ago.
func start(label func(int64) string, at, margin int64) int64 {
	window := label(at)
	return at - margin + int64(sort.Search(int(margin), func(i int) bool { return label(at-margin+int64(i)) == window }))
}

// labels returns the function that names the window of a microsecond. Where a
// calendar decides, that is what a clock on the wall and a calendar beside it
// show, so an hour that is gone through twice is one window. Two moments are in one
// window if they have one name, and no boundary is computed, in which this could
// make the mistake of the limiter that it judges.
func labels(limit throttle.Limit) func(us int64) string {
	zone, err := time.LoadLocation(limit.Zone)
	if err != nil {
		panic(err) // not a valid limit
	}
	format := func(layout string) func(int64) string {
		return func(us int64) string { return time.UnixMicro(us).In(zone).Format(layout) }
	}
	switch limit.Rate.Per {
	case time.Hour:
		return format("2006-01-02 15h")
	case throttle.Day:
		return format("2006-01-02")
	case throttle.Month:
		return format("2006-01")
	case throttle.Week:
		return func(us int64) string {
			year, week := time.UnixMicro(us).In(zone).ISOWeek()
			return fmt.Sprintf("%d-W%02d", year, week)
		}
	}
	per := limit.Rate.Per.Microseconds()
	return func(us int64) string {
		if us < 0 {
			us -= per - 1
		}
		return fmt.Sprintf("%d of %s", us/per, limit.Rate.Per)
	}
}
