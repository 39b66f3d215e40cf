package scheduler

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/throttle"
)

// scriptCalls counts how often a script is called.
type scriptCalls struct {
	hash  string
	calls atomic.Int64
}

func (*scriptCalls) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*scriptCalls) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s *scriptCalls) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); len(args) > 1 && args[0] == "evalsha" && args[1] == s.hash {
			s.calls.Add(1)
		}
		return next(ctx, cmd)
	}
}

// A job that is called when it was told to be has a put-back that outlasts its
// wait: nothing need be moved on.
func TestPutBacksOutlastTheirWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Mini(t)
		moves := &scriptCalls{hash: lua.Postpone.Hash()}
		rdb.AddHook(moves)
		limit := throttle.Limit{Name: "api", Kind: throttle.Funnel, Rate: throttle.PerSecond(20), Capacity: 10}
		st := start(t, rdb, settings{config: asynq.Config{Concurrency: 5, TaskCheckInterval: 20 * time.Millisecond}, limits: []throttle.Limit{limit}})
		for range 200 {
			st.enqueue(NewTask("job", nil))
		}
		time.Sleep(15 * time.Second)
		st.wantOnce(200)
		st.wantClean()
		if n := moves.calls.Load(); n > 0 {
			t.Errorf("put-backs were moved on in %d calls, want none", n)
		}
	})
}
