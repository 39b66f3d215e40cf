package scheduler

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/throttle"
	"github.com/headgate/headgate/throttle/throttletest"
)

// TestSettle_Tokens: jobs are estimated at the most tokens that they may use, and
// settle what they have used. So the quota is used, and never more than it, counted
// by what was used; with the estimates alone half of it lies idle.
func TestSettle_Tokens(t *testing.T) {
	slow(t)
	const most, jobs = 200, 200
	limit := throttle.Limit{Name: "tokens", Kind: throttle.TokenBucket, Rate: throttle.PerMinute(6000), Capacity: 1000}
	use := make([]float64, 3)
	for settles := range use {
		var history, starts []throttletest.Admission
		random := rand.New(rand.NewPCG(1, 2))
		handle := func(ctx context.Context, _ *asynq.Task) error {
			h, _ := attemptOf(ctx)
			used := 20 + random.IntN(most-40)
			history = append(history, throttletest.Admission{At: h.decision.At.Add(h.decision.BeginIn).UnixMicro(), Cost: used})
			starts = append(starts, throttletest.Admission{At: time.Now().UnixMicro(), Cost: used})
			time.Sleep(time.Duration(1000+random.IntN(3000)) * time.Millisecond)
			if settles == 0 {
				return nil
			}
			if settles == 2 {
				if err := Settle(ctx, "tokens", (most+used)/2); err != nil {
					return err
				}
				time.Sleep(time.Duration(random.IntN(1000)) * time.Millisecond)
			}
			return Settle(ctx, "tokens", used)
		}
		rule := func(*asynq.Task) (Rule, error) {
			return Rule{Needs: []throttle.Need{{Limit: "tokens", Cost: most}}}, nil
		}
		config := asynq.Config{Concurrency: 8, TaskCheckInterval: time.Second}
		virtual(t, settings{config: config, limits: []throttle.Limit{limit}, rule: rule, handle: handle}, func(t *testing.T, st *stack) {
			for range jobs {
				st.enqueue(NewTask("job", nil, asynq.MaxRetry(0)))
			}
			time.Sleep(8 * time.Minute)
			st.wantOnceEach(jobs)
			if err := errors.Join(throttletest.Check(limit, history), throttletest.CheckStarts(limit, starts, freshTime)); err != nil {
				t.Error(err)
			}
			sum := 0
			for _, a := range history {
				sum += a.Cost
			}
			took := time.Duration(history[len(history)-1].At-history[0].At) * time.Microsecond
			use[settles] = float64(sum-limit.Capacity) / (took.Minutes() * 6000)
		})
	}
	t.Logf("use of the quota after the first burst: %.1f %% settled, %.1f %% settled twice, %.1f %% by estimates", 100*use[1], 100*use[2], 100*use[0])
	if use[1] < 0.96 || use[2] < 0.96 || use[0] > 0.6 {
		t.Errorf("use %.3f settled, %.3f settled twice, want 0.96; %.3f by estimates, want half", use[1], use[2], use[0])
	}
}
