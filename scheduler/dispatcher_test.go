package scheduler

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/throttle"
)

// In an idle scope who gives turns sleeps for seconds: a job that is denied wakes it.
func TestNewLaneWakes(t *testing.T) {
	virtual(t, settings{config: quick, limits: []throttle.Limit{funnel("api", 10, 1)}}, func(_ *testing.T, st *stack) {
		time.Sleep(11 * time.Second)
		for range 3 {
			st.enqueue(needing(""))
		}
		time.Sleep(500 * time.Millisecond)
		st.wantOnce(3)
	})
}

// A slot comes back before who gives turns has written that its next job waits for one:
// nobody says a word then, and the job is called at once all the same.
func TestSlotsThatComeBackUnheard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, queues := redistest.Mini(t)
		_, limiter := redistest.Mini(t)
		limiter.AddHook(redistest.Hook(slowSettle))
		st := start(t, queues, settings{config: quick, redis: limiter, rule: ruleOfPayload, limits: []throttle.Limit{
			funnel("rate", 10, 1), {Name: "slots", Kind: throttle.Concurrency, Capacity: 1, Lease: time.Minute},
		}})
		for range 20 {
			st.enqueue(needing("rate slots"))
		}
		time.Sleep(4 * time.Second)
		st.wantOnce(20)
		st.wantClean()
	})
}

// slowSettle has it take a while to write where lanes wait.
func slowSettle(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	if args := cmd.Args(); cmd.Name() == "evalsha" && args[1] == lua.PublishShares.Hash() {
		time.Sleep(20 * time.Millisecond)
	}
	return next(ctx, cmd)
}
