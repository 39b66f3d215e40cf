package throttle_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/testutil/limittest"
	"github.com/headgate/headgate/throttle"
	"github.com/headgate/headgate/throttle/throttletest"
)

// TestSettle_Again checks that the last cost of a call counts, however often it settles, and that
// an extra charge is given back.
func TestSettle_Again(t *testing.T) {
	onEvery(t, func(t *testing.T, s *stage) {
		for _, limit := range threes {
			if limit.Kind == throttle.Concurrency {
				continue
			}
			limit.Rate.N, limit.Capacity = 50, 50
			if limit.Kind != throttle.Funnel && limit.Kind != throttle.TokenBucket {
				limit.Capacity = 0
			}
			define(t, s, limit)
			must(t, s.Settle(t.Context(), ask(t, s, limit.Name, 20), limit.Name, "k", 10))
			d := ask(t, s, limit.Name, 20)
			for _, cost := range []int{15, 15, 4, 30, 22, 0, 7, 20} {
				must(t, s.Settle(t.Context(), d, limit.Name, "k", cost))
				expect(t, limit.Name+": left", ask(t, s, limit.Name, 0).Remaining, 40-cost)
			}
		}
	})
}

// TestSettle_Guarantee has overlapping calls that settle several times, for less and for more. By
// their actual costs, no window has too many permits, except for what was settled after the window.
func TestSettle_Guarantee(t *testing.T) {
	for _, kind := range limittest.Kinds {
		if kind == throttle.Concurrency {
			continue
		}
		t.Run(string(kind), rapid.MakeCheck(func(t *rapid.T) {
			l := throttle.Limit{Name: "l", Kind: kind, Rate: throttle.Rate{N: rapid.IntRange(1, 30).Draw(t, "n"), Per: time.Second}}
			if kind == throttle.Funnel || kind == throttle.TokenBucket {
				l.Capacity = rapid.IntRange(1, 60).Draw(t, "capacity")
			}
			s := localStage()
			if err := s.Define(t.Context(), l); err != nil {
				t.Fatal(err)
			}
			var calls []*call
			var history []throttletest.Admission
			for range rapid.IntRange(2, 80).Draw(t, "steps") {
				switch step := rapid.IntRange(0, 9).Draw(t, "step"); {
				case step < 4:
					look, _ := s.AllowN(t.Context(), "l", "", 0)
					cost := rapid.IntRange(1, look.Capacity).Draw(t, "cost")
					if step < 2 && look.Remaining > 0 { // all that there is
						cost = look.Remaining
					}
					d, err := s.AllowN(t.Context(), "l", "", cost)
					if err != nil {
						t.Fatal(err)
					}
					if d.OK() {
						calls = append(calls, &call{redis: d, settled: settled{d.Cost, []int{len(history)}}})
						history = append(history, throttletest.Admission{At: d.At.UnixMicro(), Cost: d.Cost})
					} else if rapid.Bool().Draw(t, "comes back") {
						s.wait(d.RetryAfter)
					}
				case step < 7 && len(calls) > 0:
					c := rapid.SampledFrom(calls).Draw(t, "call")
					cost := rapid.IntRange(0, 2*c.redis.Cost).Draw(t, "true cost")
					if step < 6 {
						cost /= 4
					}
					if err := s.Settle(t.Context(), c.redis, "l", "", cost); err != nil {
						t.Fatal(err)
					}
					history = c.settle(history, s.now, cost)
				default:
					s.wait(time.Duration(rapid.IntRange(0, 1500).Draw(t, "wait")) * time.Millisecond)
				}
			}
			if err := throttletest.Check(l, history); err != nil {
				t.Fatalf("%v\n%v", err, history)
			}
		}))
	}
}
