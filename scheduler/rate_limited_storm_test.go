package scheduler

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/throttle"
)

// An upstream lets a burst and a rate through, and answers 429 with Retry-After in
// whole seconds. Handlers that run at the same time call it.
type upstream struct {
	mu                  sync.Mutex
	rate, burst, tokens float64
	at                  time.Time
	served, refused     []time.Time
}

func (u *upstream) call() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	u.tokens = min(u.burst, u.tokens+now.Sub(u.at).Seconds()*u.rate)
	if u.at = now; u.tokens < 1 {
		u.refused = append(u.refused, now)
		wait := time.Duration((1 - u.tokens) / u.rate * float64(time.Second))
		return RateLimited(now.Add((wait + time.Second - 1).Truncate(time.Second)))
	}
	u.tokens--
	u.served = append(u.served, now)
	return nil
}

// TestRateLimited_Storm: an API halves its limit untold. After the first refusal at most as many
// more as jobs run at once, all jobs are done, no attempt is spent, and within 30 s
// the new limit is used by 95 % at least.
func TestRateLimited_Storm(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	const concurrency, jobs = 4, 200
	limit := throttle.Limit{Name: "host", Kind: throttle.Funnel, Rate: throttle.PerSecond(4), Capacity: 2, Adapt: &throttle.Adapt{}}
	for _, latency := range []time.Duration{50 * time.Millisecond, 700 * time.Millisecond} {
		t.Run(fmt.Sprint("latency ", latency), func(t *testing.T) {
			api := &upstream{rate: 4, burst: 4, tokens: 4}
			handle := func(context.Context, *asynq.Task) error {
				time.Sleep(latency)
				return api.call()
			}
			rule := func(*asynq.Task) (Rule, error) {
				return Rule{Needs: []throttle.Need{{Limit: "host", Key: "api"}}}, nil
			}
			config := asynq.Config{Concurrency: concurrency, TaskCheckInterval: 50 * time.Millisecond}
			virtual(t, settings{config: config, limits: []throttle.Limit{limit}, rule: rule, handle: handle}, func(t *testing.T, st *stack) {
				api.at = time.Now()
				for range jobs {
					st.enqueue(NewTask("job", nil, asynq.MaxRetry(0)))
				}
				time.Sleep(5 * time.Second)
				api.rate = 2
				halved := time.Now()
				time.Sleep(3 * time.Minute)
				if len(api.served) != jobs {
					t.Errorf("%d of %d jobs done", len(api.served), jobs)
				}
				if more := len(api.refused) - 1; more > concurrency {
					t.Errorf("%d refusals after the first, want at most %d", more, concurrency)
				}
				if len(st.reported) != 0 {
					t.Errorf("failures: %v", st.reported)
				}
				end := api.served[len(api.served)-1]
				from := halved.Add(30 * time.Second)
				n := 0
				for _, at := range api.served {
					if at.After(from) {
						n++
					}
				}
				use := float64(n) / (end.Sub(from).Seconds() * 2)
				t.Logf("%d refusals, %.1f %% of the new limit used from 30 s on, for %s", len(api.refused), 100*use, end.Sub(from))
				if use < 0.95 {
					t.Errorf("use %.3f, want 0.95", use)
				}
			})
		})
	}
}
