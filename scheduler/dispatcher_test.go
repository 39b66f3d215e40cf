package scheduler

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/script"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// In an idle scope who gives turns sleeps for seconds: a job that is denied wakes it.
func TestDispatcher_WakesForNewLane(t *testing.T) {
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
func TestDispatcher_SlotFreedBeforeMark(t *testing.T) {
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

// The worker that leads stops gracefully: another one gives the next turn at most 100 ms late,
// whatever the leader's lease was, also if jobs come only then.
func TestDispatcher_LeaderStops(t *testing.T) {
	for name, row := range map[string]struct {
		every  time.Duration
		before int // jobs; some of them still wait when the leader stops
		stop   time.Duration
		after  int // jobs that are enqueued then
	}{
		"many turns":         {100 * time.Millisecond, 150, 10 * time.Second, 0},
		"rare turns":         {3 * time.Second, 8, 10500 * time.Millisecond, 0},
		"just before a turn": {3 * time.Second, 8, 11900 * time.Millisecond, 0},
		"an idle scope":      {time.Second, 1, 11 * time.Second, 5},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, rdb := redistest.Mini(t)
				limit := throttle.Limit{Name: "api", Kind: throttle.Funnel, Rate: throttle.Every(row.every)}
				s := settings{config: quick, limits: []throttle.Limit{limit}}
				leader := start(t, rdb, s)
				for range row.before {
					leader.enqueue(needing(""))
				}
				time.Sleep(time.Second)
				next := start(t, redistest.MiniClient(t, m), s)
				time.Sleep(row.stop - time.Second)
				leader.server.Shutdown()
				for range row.after {
					leader.enqueue(needing(""))
				}
				time.Sleep(15 * time.Second)
				ran := append(leader.ran(), next.ran()...)
				slices.SortFunc(ran, func(a, b run) int { return a.at.Compare(b.at) })
				if len(ran) != row.before+row.after {
					t.Errorf("%d jobs ran, want %d", len(ran), row.before+row.after)
				}
				for i := 1; i < len(ran); i++ {
					if i != row.before && ran[i].at.Sub(ran[i-1].at) > row.every+100*time.Millisecond {
						t.Errorf("job %d ran %s after the one before, want %s and 100 ms at most", i, ran[i].at.Sub(ran[i-1].at), row.every)
					}
				}
			})
		})
	}
}

// slowSettle has it take a while to write where lanes wait.
func slowSettle(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	if args := cmd.Args(); cmd.Name() == "evalsha" && args[1] == script.New("lanes/publish_shares").Hash() {
		time.Sleep(20 * time.Millisecond)
	}
	return next(ctx, cmd)
}
