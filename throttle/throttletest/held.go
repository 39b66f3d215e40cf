package throttletest

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/headgate/headgate/throttle"
)

// overHeld judges a concurrency limit: at most Capacity permits held at once. A
// permit that ends in the microsecond in which another starts does not overlap. One
// without an end is held for good, and counts against all that come after it.
// What is held can only become too much when somebody takes more, so to look at each
// admission is enough.
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
		// What has ended by then is given back first.
		for len(ended) > 0 && ended[0].Until <= a.At {
			held -= ended[0].Cost
			ended = ended[1:]
		}
		if held += a.Cost; held > limit.Capacity {
			violations = append(violations, fmt.Sprintf("%d permits held at %s, at most %d", held, clock(a.At), limit.Capacity))
		}
	}
	return violations
}
