package scheduler

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/throttle"
)

// A server that has just emptied its queue, and so does not look again at once, does where
// somebody rings.
func TestMarkOfTheNextJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, rdb := redistest.Mini(t)
		began := make(chan time.Time, 1)
		start(t, redistest.MiniClient(t, m), settings{
			config: asynq.Config{Concurrency: 10}, limits: []throttle.Limit{perMinute(6000, 100)},
			handle: func(context.Context, *asynq.Task) error { began <- time.Now(); return nil },
		})
		time.Sleep(time.Minute)
		for range 20 {
			rang := time.Now()
			if _, err := NewClient(rdb).Enqueue(asynq.NewTask("job", nil)); err != nil {
				t.Fatal(err)
			}
			if late := (<-began).Sub(rang); late > time.Millisecond {
				t.Errorf("a job began after %s, want it at once", late)
			}
			time.Sleep(shortestWait / 3)
		}
	})
}

// Two servers of one slot sleep. Two jobs become pending for which somebody rings once: the
// server that wakes leaves a mark for the other.
func TestOneMarkForManyJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := redistest.Mini(t)
		began := make(chan time.Time, 2)
		for range 2 {
			start(t, redistest.MiniClient(t, m), settings{
				config: asynq.Config{Concurrency: 1}, limits: []throttle.Limit{perMinute(6000, 100)},
				handle: func(context.Context, *asynq.Task) error {
					began <- time.Now()
					time.Sleep(10 * time.Second)
					return nil
				},
			})
		}
		time.Sleep(time.Minute)
		rdb := redistest.MiniClient(t, m)
		addMany(t, rdb, 2)
		rang := time.Now()
		rdb.ZAdd(t.Context(), bellKey("default"), redis.Z{Member: "0"})
		for range 2 {
			if late := (<-began).Sub(rang); late > shortestWait {
				t.Errorf("a job began after %s, want it at once", late)
			}
		}
		time.Sleep(time.Minute)
	})
}
