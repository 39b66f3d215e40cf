package throttle_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/throttle"
)

// A lane of 100,000: the place of the last is known, and taking the limit away
// calls them all back, a bounded number at a time.
func TestLongLane(t *testing.T) {
	const jobs, clients = 100_000, 20
	rdb := redistest.Real(t)
	limiter := throttle.New(rdb, throttle.RedisOptions{})
	must(t, limiter.Define(t.Context(), throttle.Limit{Name: "api", Kind: throttle.Funnel, Rate: throttle.PerHour(1)}))
	need := throttle.Need{Limit: "api"}
	if d, err := limiter.Allow(t.Context(), "api", ""); !d.OK() {
		t.Fatal(d, err)
	}
	var all sync.WaitGroup
	for client := range clients {
		all.Go(func() {
			for i := range jobs / clients {
				job := throttle.Job{ID: fmt.Sprintf("job-%d-%d", client, i), Queue: "default"}
				if d, err := limiter.Acquire(t.Context(), job, need); d.Outcome != throttle.Denied {
					t.Errorf("%s: %v, %v; want denied", job.ID, d, err)
					return
				}
			}
		})
	}
	all.Wait()

	d, err := limiter.Acquire(t.Context(), throttle.Job{ID: "last", Queue: "default"}, need)
	if err != nil || d.RetryAfter.Hours() < jobs {
		t.Errorf("the last: %v, %v; want denied for over %d hours", d, err, jobs)
	}
	place, waits, err := limiter.Waiting(t.Context(), "last")
	if err != nil || !waits || place.Position != jobs+1 || place.Waiting != jobs+1 {
		t.Errorf("the last: %+v, %v, %v; want position %d", place, waits, err, jobs+1)
	}

	must(t, limiter.Delete(t.Context(), "api"))
	called := map[string]bool{}
	for len(called) < jobs+1 {
		batch, _, _, err := limiter.Pump(t.Context(), "me", time.Second, 0)
		must(t, err)
		if len(batch) == 0 || len(batch) > 100 {
			t.Fatalf("%d called at once after %d, want 1 to 100", len(batch), len(called))
		}
		for _, job := range batch {
			called[job.ID] = true
		}
	}
}
