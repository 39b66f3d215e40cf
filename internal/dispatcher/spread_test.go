package dispatcher

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/redishealth"
	"github.com/headgate/headgate/internal/script"
	"github.com/headgate/headgate/internal/stats"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// TestSpread: processes start one after another, each is killed later, and each second it is known
// how many scopes each leads.
func TestSpread_EvenLeaders(t *testing.T) {
	for _, scopes := range []int{4, 16, 50} {
		t.Run(fmt.Sprint(scopes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, rdb := redistest.Mini(t)
				var processes []*spreadProcess
				check := func(what string) {
					t.Helper()
					led, none := map[string]int{}, 0
					for i := range scopes {
						leader := rdb.Get(t.Context(), script.Prefix(fmt.Sprint("s.", i))+"leader").Val()
						if led[leader]++; leader == "" {
							none++
						}
					}
					most := (scopes+len(processes)-1)/len(processes) + 1
					for _, p := range processes {
						if n := led[p.id]; n > most {
							t.Errorf("%s: a process of %d leads %d of %d scopes, want %d at most", what, len(processes), n, scopes, most)
						}
						delete(led, p.id)
					}
					if len(led) > 0 {
						t.Errorf("%s: %v scopes have a leader that is none of the processes, %d have none", what, led, none)
					}
				}
				for n := range 5 {
					processes = append(processes, startSpread(t, redistest.MiniClient(t, m), scopes))
					time.Sleep(10 * time.Second)
					check(fmt.Sprintf("%d started", n+1))
				}
				for len(processes) > 1 {
					processes[0].kill()
					processes = processes[1:]
					time.Sleep(2500 * time.Millisecond)
					for i := range scopes {
						if rdb.Exists(t.Context(), script.Prefix(fmt.Sprint("s.", i))+"leader").Val() == 0 {
							t.Errorf("scope %d has no leader 2.5 s after its leader died", i)
						}
					}
					time.Sleep(7500 * time.Millisecond)
					check(fmt.Sprintf("%d left", len(processes)))
				}
				processes[0].kill()
			})
		})
	}
}

// spreadProcess has the dispatchers of some scopes.
type spreadProcess struct {
	id   string
	kill func()
}

func startSpread(t *testing.T, rdb redis.UniversalClient, scopes int) *spreadProcess {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	spread, discard := NewSpread(), slog.New(slog.DiscardHandler)
	var dead atomic.Bool
	rdb.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if dead.Load() {
			return context.Canceled
		}
		return next(ctx, cmd)
	}))
	for i := range scopes {
		limiter := waitdb.New(throttle.New(rdb, throttle.Options{Scope: fmt.Sprint("s.", i), Logger: discard}))
		_, prefix := limiter.Scope()
		health := redishealth.New(discard, "Redis", rdb)
		running.Go(func() {
			Run(ctx, Config{
				Waits: limiter, DB: asynqdb.New(rdb), Log: discard, LimiterHealth: health, QueuesHealth: health, Spread: spread,
				ReconcileInterval: DefaultReconcileInterval, MaxHeartbeat: MaxSpreadHeartbeat, Stats: stats.New(rdb, prefix),
			})
		})
	}
	return &spreadProcess{spread.process, func() { dead.Store(true); cancel(); running.Wait() }}
}
