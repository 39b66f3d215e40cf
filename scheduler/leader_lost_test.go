package scheduler

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/throttle"
)

// TestDispatcher_LeaderLost: the process that leads is killed or frozen at any moment, or while no job
// waits. Another process goes on: at 100/s no more than 1.5 s lie between two starts. A frozen
// leader that continues changes nothing.
func TestDispatcher_LeaderLost(t *testing.T) {
	slow(t)
	for _, how := range []string{"killed", "frozen", "killed idle", "frozen idle"} {
		for seed := range uint64(5) {
			t.Run(fmt.Sprint(how, " ", seed), func(t *testing.T) {
				t.Parallel()
				random := rand.New(rand.NewPCG(seed, 1))
				s := settings{config: asynq.Config{Concurrency: 10}, limits: []throttle.Limit{funnel("api", 100, 1+9*random.IntN(2))}}
				var stopped atomic.Bool
				var thawed chan struct{}
				s.hooks = []redis.Hook{before(func(context.Context, ...redis.Cmder) error {
					if stopped.Load() {
						<-thawed
					}
					return nil
				})}
				virtual(t, s, func(t *testing.T, leader *stack) {
					thawed = make(chan struct{})
					isIdle := how == "killed idle" || how == "frozen idle"
					if !isIdle {
						leader.enqueueN(1500, "")
					}
					time.Sleep(time.Second)
					s.hooks = nil
					other := leader.beside(s)
					time.Sleep(time.Duration(2000+random.IntN(3000)) * time.Millisecond)
					stopped.Store(true)
					if isIdle {
						time.Sleep(time.Duration(random.IntN(1000)) * time.Millisecond)
						other.enqueueN(500, "")
					}
					frozen := 10 * time.Second
					if how == "frozen" || how == "frozen idle" {
						frozen = time.Duration(1000+random.IntN(2000)) * time.Millisecond
					}
					time.Sleep(frozen)
					stopped.Store(false)
					close(thawed)
					time.Sleep(3 * time.Second)
					wantNotOver(t, s.limits[0], time.Time{}, leader, other)
					all := append(leader.ran(), other.ran()...)
					slices.SortFunc(all, func(a, b run) int { return a.at.Compare(b.at) })
					for i := 1; i < len(all); i++ {
						if gap := all[i].at.Sub(all[i-1].at); gap > 1500*time.Millisecond {
							t.Errorf("%s between two starts, want at most 1.5 s", gap)
						}
					}
					if len(other.ran()) < 100 {
						t.Errorf("%d jobs ran in the other process", len(other.ran()))
					}
				})
			})
		}
	}
}
