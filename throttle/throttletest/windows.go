package throttletest

import (
	"fmt"
	"math/big"

	"github.com/headgate/headgate/throttle"
)

// overRate judges a funnel: from any admission i to any later j there are at
// most capacity + rate·(j.At - i.At) permits, both ends included.
//
// With S the permits up to an admission and period·N the rate, that is
// S(j)·period - N·j.At - (S(i-1)·period - N·i.At) <= capacity·period, so each j
// need only be held against the least value of the bracket. The products do not
// fit 64 bits.
//
// The rule is that of a leaky bucket in its words and not in its arithmetic: no
// level, no theoretical arrival time, so no mistake in those can be made twice.
func overRate(limit throttle.Limit, history []Admission) (violations []string) {
	period := big.NewInt((limit.Rate.Per + limit.Margin).Microseconds())
	n := big.NewInt(int64(limit.Rate.N))
	capacity := max(1, limit.Capacity)
	most := new(big.Int).Mul(big.NewInt(int64(capacity)), period)

	sum := int64(0)
	level := func(at int64) *big.Int {
		permits := new(big.Int).Mul(big.NewInt(sum), period)
		return permits.Sub(permits, new(big.Int).Mul(n, big.NewInt(at)))
	}
	var least *big.Int
	var since, before int64 // where least is: its time, and the sum before it
	for _, a := range history {
		if l := level(a.At); least == nil || l.Cmp(least) < 0 {
			least, since, before = l, a.At, sum
		}
		sum += int64(a.Cost)
		if l := level(a.At); !a.Debt && l.Sub(l, least).Cmp(most) > 0 {
			violations = append(violations, fmt.Sprintf("%d permits from %s to %s, more than capacity %d and %s",
				sum-before, clock(since), clock(a.At), capacity, limit.Rate))
		}
	}
	return violations
}

// overSliding judges a sliding window: at most N permits in each (t-period, t].
func overSliding(limit throttle.Limit, history []Admission) (violations []string) {
	slide(history, (limit.Rate.Per + limit.Margin).Microseconds(), func(first, last Admission, sum int) {
		if sum > limit.Rate.N && !last.Debt {
			violations = append(violations, fmt.Sprintf("%d permits from %s to %s, within one period; at most %d",
				sum, clock(first.At), clock(last.At), limit.Rate.N))
		}
	})
	return violations
}

// slide calls f for each admission with the permits of the w microseconds that
// end with it, and the first admission in them. The fullest of all windows ends with
// an admission, so to look at these is to look at all. Both ends only move on: the
// work is linear.
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
