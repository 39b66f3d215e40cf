package scheduler

import (
	"context"
	"fmt"
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

// TestScopesShareAnAsynqRedis: who gives turns in one scope leaves alone what waits in
// another.
func TestScopesShareAnAsynqRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Mini(t)
		var stacks []*stack
		for _, scope := range []string{"one", "two"} {
			spied := &spy{Lanes: throttle.NewLanes(throttle.New(rdb, throttle.RedisOptions{Scope: scope})), denials: map[string]int{}}
			config := quick
			config.Queues = map[string]int{scope: 1}
			st := start(t, rdb, settings{
				config: config, limits: []throttle.Limit{{Name: "l", Kind: throttle.Funnel, Rate: throttle.PerMinute(6)}},
				options: []Option{WithLimiter(spied)},
			})
			st.limiter = spied
			stacks = append(stacks, st)
		}
		for i, scope := range []string{"one", "two"} {
			for k := range 20 {
				stacks[i].enqueue(NewTask("job", nil, asynq.MaxRetry(0)), asynq.Queue(scope), asynq.TaskID(fmt.Sprintf("%s-%d", scope, k)))
			}
		}
		time.Sleep(4 * time.Minute)
		for _, st := range stacks {
			st.wantOnce(20)
		}
	})
}
