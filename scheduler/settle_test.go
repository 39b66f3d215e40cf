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

// TestSettle_Tokens: jobs take as many tokens as they use at most, and settle what they have used.
// So the quota is used and not exceeded. Without settling, half of it stays idle.
func TestSettle_Tokens(t *testing.T) {
	slow(t)
	const most, jobs = 200, 200
	limit := throttle.Limit{Name: "tokens", Kind: throttle.TokenBucket, Rate: throttle.PerMinute(6000), Capacity: 1000}
	use := map[bool]float64{}
	for _, settles := range []bool{false, true} {
		var history, starts []throttletest.Admission
		random := rand.New(rand.NewPCG(1, 2))
		handle := func(ctx context.Context, _ *asynq.Task) error {
			h, _ := ctx.Value(attemptKey{}).(*attempt)
			used := 20 + random.IntN(most-40)
			history = append(history, throttletest.Admission{At: h.decision.At.Add(h.decision.BeginIn).UnixMicro(), Cost: used})
			starts = append(starts, throttletest.Admission{At: time.Now().UnixMicro(), Cost: used})
			time.Sleep(time.Duration(1000+random.IntN(3000)) * time.Millisecond)
			if !settles {
				return nil
			}
			err := Settle(ctx, "tokens", (most+used)/2)
			time.Sleep(time.Duration(random.IntN(1000)) * time.Millisecond)
			return errors.Join(err, Settle(ctx, "tokens", used))
		}
		rule := always(Rule{Needs: []throttle.Need{{Limit: "tokens", Cost: most}}})
		config := asynq.Config{Concurrency: 8, TaskCheckInterval: time.Second}
		virtual(t, settings{config: config, limits: []throttle.Limit{limit}, rule: rule, handle: handle}, func(t *testing.T, st *stack) {
			st.enqueueN(jobs, "")
			time.Sleep(8 * time.Minute)
			st.wantOnceEach(jobs)
			if err := errors.Join(throttletest.Check(limit, history), throttletest.CheckStarts(limit, starts, maxPermitAge)); err != nil {
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
	if use[true] < 0.96 || use[false] > 0.6 {
		t.Errorf("of the quota %.3f are used, want 0.96; without settling %.3f, want half", use[true], use[false])
	}
}

// TestSettle_AfterReset: jobs take all permits of a window, and settle for none of them after an
// operator has reset the limit and other jobs have taken its permits again. Nothing comes back.
func TestSettle_AfterReset(t *testing.T) {
	for _, kind := range []throttle.Kind{throttle.FixedWindow, throttle.SlidingWindow} {
		t.Run(string(kind), func(t *testing.T) {
			const n = 10
			begun := 0
			handle := func(ctx context.Context, _ *asynq.Task) error {
				if begun++; begun > n {
					return nil
				}
				time.Sleep(20 * time.Second)
				return Settle(ctx, "quota", 0)
			}
			limit := throttle.Limit{Name: "quota", Kind: kind, Rate: throttle.PerDay(n)}
			rule := always(Rule{Needs: []throttle.Need{{Limit: "quota"}}})
			virtual(t, settings{config: asynq.Config{Concurrency: 3 * n}, limits: []throttle.Limit{limit}, rule: rule, handle: handle}, func(t *testing.T, st *stack) {
				st.enqueueN(3*n, "")
				time.Sleep(10 * time.Second)
				st.must(st.limiter.Reset(t.Context(), "quota", ""))
				time.Sleep(time.Minute)
				if begun != 2*n {
					t.Errorf("%d jobs ran, want %d before the reset, and as many after it", begun, n)
				}
			})
		})
	}
}
