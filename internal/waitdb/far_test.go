package waitdb_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testutil/limittest"
	"github.com/headgate/headgate/throttle"
)

// TestFarTimesSaturate: one a year, and 300 jobs. No time wraps around.
func TestFarTimesSaturate(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	const year, most = 365 * throttle.Day, 230 * 365 * throttle.Day
	onRedis(t, func(t *testing.T, s *fixture) {
		for _, kind := range limittest.Kinds[:5] {
			l := throttle.Limit{Name: string(kind), Kind: kind, Rate: throttle.Every(year)}
			define(t, s, l)
			last := time.Duration(-1)
			for i := range 300 {
				d := s.acquire(t, fmt.Sprint(kind, i), one(l.Name))
				if d.RetryAfter < last || d.RetryAfter > most || d.PutBack < 0 || i > 0 && d.PutBack < d.RetryAfter {
					t.Fatalf("job %d: retry after %s, put back %s; the one before it %s", i, d.RetryAfter, d.PutBack, last)
				}
				last = d.RetryAfter
			}
			if last < 220*year {
				t.Errorf("%s: the last waits %s", kind, last)
			}
		}
		for name, l := range s.forecast(t).Limits() {
			if l.Known {
				t.Errorf("%s: the last runs in %s, after the end of time", name, l.StartsIn)
			}
		}
	})
}
