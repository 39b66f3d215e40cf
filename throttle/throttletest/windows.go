package throttletest

import (
	"cmp"
	"fmt"
	"math/big"
	"slices"
	"sort"
	"time"

	"github.com/headgate/headgate/internal/zone"
	"github.com/headgate/headgate/throttle"
)

// overRate judges a funnel: from any admission i to any later j there are at most
// capacity + rate·(j.At - i.At) permits, both ends included.
//
// Let S(j) be the permits up to and with admission j. The guarantee is then S(j)·period - N·j.At -
// (S(i-1)·period - N·i.At) <= capacity·period. So each j need only be compared with the least value
// of the part in parentheses so far. The products do not fit in 64 bits.
//
// If calls are sent up to `late` after their permits were taken, rate·late more calls are allowed.
func overRate(limit throttle.Limit, history []Admission, late int64) (violations []string) {
	period := big.NewInt((limit.Rate.Per + limit.Margin).Microseconds())
	n := big.NewInt(int64(limit.Rate.N))
	capacity := max(1, limit.Capacity)
	most := new(big.Int).Mul(big.NewInt(int64(capacity)), period)
	most.Add(most, new(big.Int).Mul(n, big.NewInt(late)))

	sum := int64(0)
	level := func(at int64) *big.Int {
		permits := new(big.Int).Mul(big.NewInt(sum), period)
		return permits.Sub(permits, new(big.Int).Mul(n, big.NewInt(at)))
	}
	var least *big.Int
	var since, before int64 // time of the admission with the least value, and sum of the permits before that admission
	for _, a := range history {
		if l := level(a.At); least == nil || l.Cmp(least) < 0 {
			least, since, before = l, a.At, sum
		}
		sum += int64(a.Cost)
		if l := level(a.At); !a.Debt && l.Sub(l, least).Cmp(most) > 0 {
			violations = append(violations, fmt.Sprintf("%d permits from %s to %s, more than capacity %d and %s",
				sum-before, formatTime(since), formatTime(a.At), capacity, limit.Rate))
		}
	}
	return violations
}

// overSliding judges a sliding window: at most N permits in each (t-period, t]. If calls are sent
// up to `late` after their permits were taken, the calls of a window of length w took their permits
// within w+late. So for the smallest k with k·period > late, at most k·N calls are in each window
// of length k·period-late.
func overSliding(limit throttle.Limit, history []Admission, late int64) (violations []string) {
	period := (limit.Rate.Per + limit.Margin).Microseconds()
	times := late/period + 1
	slide(history, times*period-late, func(first, last Admission, sum int) {
		if sum > int(times)*limit.Rate.N && !last.Debt {
			violations = append(violations, fmt.Sprintf("%d permits from %s to %s, within %s; at most %d",
				sum, formatTime(first.At), formatTime(last.At), time.Duration(times*period-late)*time.Microsecond, int(times)*limit.Rate.N))
		}
	})
	return violations
}

// slide calls f for each admission with the window of w microseconds that ends with it: the
// window's first and last admissions, and the sum of its permits. One of the fullest windows ends
// with an admission, so no others need be checked.
func slide(history []Admission, w int64, f func(first, last Admission, sum int)) {
	first, sum := 0, 0
	for _, last := range history {
		sum += last.Cost
		for history[first].At <= last.At-w {
			sum -= history[first].Cost
			first++
		}
		f(history[first], last, sum)
	}
}

// overAligned judges a fixed window: at most N permits in each aligned period, and none in its
// first or last Margin. Each admission is reported once at most.
func overAligned(limit throttle.Limit, history []Admission) (violations []string) {
	label := labels(limit)
	window, sum := "", 0
	for _, a := range history {
		if l := label(a.At); l != window {
			window, sum = l, 0
		}
		sum += a.Cost
		if a.Debt {
			continue
		}
		if sum > limit.Rate.N {
			violations = append(violations, fmt.Sprintf("%d permits in the window %s up to %s, at most %d",
				sum, window, formatTime(a.At), limit.Rate.N))
		} else if margin := limit.Margin.Microseconds(); margin > 0 && label(a.At-margin) != window {
			violations = append(violations, fmt.Sprintf("a permit at %s, %d µs after the window %s started: no permit is allowed in its first %s",
				formatTime(a.At), a.At-start(label, a.At, margin), window, limit.Margin))
		} else if margin > 0 && label(a.At+margin) != window {
			violations = append(violations, fmt.Sprintf("a permit at %s, in the last %s of the window %s, in which none is allowed",
				formatTime(a.At), limit.Margin, window))
		}
	}
	return violations
}

// overAlignedLate judges a fixed window if calls are sent up to `late` after their permits were
// taken. A call that is sent less than `late` after a window's start may have taken its permits in
// the window before.
func overAlignedLate(limit throttle.Limit, history []Admission, late int64) (violations []string) {
	label := labels(limit)
	window, sure, before, between := "", 0, 0, 0 // sure: permits certainly taken in this window; before: in the window before; between: in one of the two
	for _, a := range history {
		sentIn, earliest := label(a.At), label(a.At-late)
		if sentIn != window {
			before = 0 // if the call cannot belong to the window before
			if earliest == window {
				before = min(sure, limit.Rate.N) // a debt may overfill a window, and the next one does not owe it
			}
			window, sure, between = sentIn, 0, 0
		}
		if earliest == window {
			sure += a.Cost
		} else {
			between += a.Cost
		}
		if n := limit.Rate.N; !a.Debt && (sure > n || between > 0 && before+between+sure > 2*n) {
			violations = append(violations, fmt.Sprintf("%d calls certainly in the window %s up to %s, %d in it or the one before, %d certainly in the one before; at most %d in each",
				sure, window, formatTime(a.At), between, before, n))
		}
	}
	return violations
}

// start returns the first microsecond with the label of `at`. The caller makes sure that this
// microsecond is less than margin before `at`.
func start(label func(int64) string, at, margin int64) int64 {
	window := label(at)
	return at - margin + int64(sort.Search(int(margin), func(i int) bool { return label(at-margin+int64(i)) == window }))
}

// labels returns the function that names the window of a microsecond. For a calendar that is the
// wall clock's date and hour, so an hour that the clock goes through twice is one window. Two times
// are in one window if they have the same name.
func labels(limit throttle.Limit) func(us int64) string {
	in, err := zone.Load(limit.Zone)
	if err != nil {
		panic(err) // not a valid limit
	}
	format := func(layout string) func(int64) string {
		return func(us int64) string { return time.UnixMicro(us).In(in).Format(layout) }
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
			year, week := time.UnixMicro(us).In(in).ISOWeek()
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

// overHeld judges a concurrency limit: at most Capacity permits are held at once. A permit that
// ends in the microsecond in which another starts does not overlap it. A permit without an end is
// held until the end of the history.
func overHeld(limit throttle.Limit, history []Admission) (violations []string) {
	var ended []Admission
	for _, a := range history {
		if a.Until != 0 {
			ended = append(ended, a)
		}
	}
	slices.SortFunc(ended, func(a, b Admission) int { return cmp.Compare(a.Until, b.Until) })
	held := 0
	for _, a := range history {
		for len(ended) > 0 && ended[0].Until <= a.At {
			held -= ended[0].Cost
			ended = ended[1:]
		}
		if held += a.Cost; held > limit.Capacity {
			violations = append(violations, fmt.Sprintf("%d permits held at %s, at most %d", held, formatTime(a.At), limit.Capacity))
		}
	}
	return violations
}
