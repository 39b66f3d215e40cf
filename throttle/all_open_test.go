package throttle_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/throttle"
)

// TestRetryAfter_AllOpen: a meter that is open now can be closed when the others open,
// or when its block ends. Retry-after is the first moment at which all are open.
func TestRetryAfter_AllOpen(t *testing.T) {
	log := func(name string, per time.Duration) throttle.Limit {
		return throttle.Limit{Name: name, Kind: throttle.SlidingLog, Rate: throttle.Every(per)}
	}
	// At noon it opens in 10 s, and it is closed from 50 s to 70 s after noon.
	window := throttle.Limit{Name: "window", Kind: throttle.FixedWindow, Rate: throttle.PerMinute(2), Margin: 10 * time.Second}
	sinceNoon := func(d time.Duration) time.Duration { return d - 123456*time.Microsecond }
	for name, of := range map[string]struct {
		set   func(t *testing.T, s *stage)
		needs []throttle.Need
		want  time.Duration
		by    string
	}{
		"in the margin of a window": {
			func(t *testing.T, s *stage) { ask(t, s, "log55", 1) },
			[]throttle.Need{one("log55"), one("window")},
			sinceNoon(70 * time.Second), "window",
		},
		"before its margin": {
			func(t *testing.T, s *stage) { ask(t, s, "log40", 1) },
			[]throttle.Need{one("log40"), one("window")},
			40 * time.Second, "log40",
		},
		"a block that ends in the margin": {
			func(t *testing.T, s *stage) { must(t, s.Block(t.Context(), "window", "k", s.now.Add(55*time.Second))) },
			[]throttle.Need{one("window")},
			sinceNoon(70 * time.Second), "window",
		},
	} {
		t.Run(name, func(t *testing.T) {
			onEvery(t, func(t *testing.T, s *stage) {
				define(t, s, window, log("log40", 40*time.Second), log("log55", 55*time.Second))
				of.set(t, s)
				d, err := s.AllowAll(t.Context(), of.needs...)
				must(t, err)
				expect(t, "the answer", [3]any{d.Outcome, d.RetryAfter, d.Limit}, [3]any{denied, of.want, of.by})
				s.wait(of.want - time.Microsecond)
				d, err = s.AllowAll(t.Context(), of.needs...)
				must(t, err)
				expect(t, "a microsecond before", [2]any{d.Outcome, d.RetryAfter}, [2]any{denied, time.Microsecond})
				s.wait(time.Microsecond)
				d, err = s.AllowAll(t.Context(), of.needs...)
				must(t, err)
				expect(t, "at the moment", d.Outcome, allowed)
			})
		})
	}
}
