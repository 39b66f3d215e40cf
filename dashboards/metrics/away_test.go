package metrics

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/scheduler"
)

// hangs is a hook that answers no command while it is set.
type hangs struct{ atomic.Bool }

func (h *hangs) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *hangs) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *hangs) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if h.Load() {
			time.Sleep(10 * time.Second) // whatever ctx says
			return errors.New("no answer")
		}
		return next(ctx, cmd)
	}
}

// TestScrapesWhileRedisIsAway: each is done within half a second, however long Redis takes
// and however many come, and so is one soon after Redis is back.
func TestScrapesWhileRedisIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Mini(t)
		h := &hangs{}
		rdb.AddHook(h)
		rules := scheduler.Rules{RuleFor: func(context.Context, *asynq.Task) (scheduler.Rule, error) { return scheduler.Rule{}, nil }}
		server, err := scheduler.NewServer(rdb, rules, silent)
		if err != nil {
			t.Fatal(err)
		}
		c := New(server, rdb, Options{})
		scrape := func(up, away float64) {
			t.Helper()
			began := time.Now()
			got := gather(t, c, func(map[string]float64) bool { return true })
			if took := time.Since(began); took > 500*time.Millisecond {
				t.Errorf("it took %v, want half a second at most", took)
			}
			if got["scope_up{}"] != up || got["redis_trouble{trouble=away}"] != away {
				t.Errorf("up %v, away %v; want %v, %v", got["scope_up{}"], got["redis_trouble{trouble=away}"], up, away)
			}
		}
		scrape(1, 0)
		h.Store(true)
		for range 20 {
			scrape(0, 1)
			time.Sleep(time.Second)
		}
		h.Store(false)
		time.Sleep(10 * time.Second)
		scrape(1, 0)
	})
}
