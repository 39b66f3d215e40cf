package scheduler

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/testutil/redistest"
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

// TestSettle_Canceled: a canceled handler settles what its call has cost, and gives the other permits
// back. A shutdown returns after the settlement is written.
func TestSettle_Canceled(t *testing.T) {
	const estimate, used = 1000, 100
	limit := throttle.Limit{Name: "tokens", Kind: throttle.TokenBucket, Rate: throttle.PerDay(1), Capacity: estimate}
	ends := map[string]func(st *stack, settled chan error){
		"shutdown": func(st *stack, _ chan error) { st.server.Shutdown() },
		"operator": func(st *stack, settled chan error) {
			for i := 0; i < 10 && len(settled) == 0; i++ { // the server may not have subscribed yet
				st.must(st.tasks.CancelProcessing("j"))
				time.Sleep(time.Second)
			}
		},
		"timeout": func(*stack, chan error) { time.Sleep(2 * time.Minute) },
	}
	prepare := func() (s settings, begun, settled chan error) {
		begun, settled = make(chan error, 2), make(chan error, 2)
		s = settings{config: asynq.Config{Concurrency: 1, ShutdownTimeout: time.Second}, limits: []throttle.Limit{limit}}
		s.rule = always(Rule{Needs: []throttle.Need{{Limit: limit.Name, Cost: estimate}}})
		s.handle = func(ctx context.Context, _ *asynq.Task) error {
			begun <- nil
			<-ctx.Done()
			settled <- Settle(ctx, limit.Name, used)
			return ctx.Err()
		}
		return s, begun, settled
	}
	check := func(t *testing.T, st *stack, settled chan error) {
		t.Helper()
		st.must(<-settled)
		if d, err := st.limiter.AllowN(t.Context(), limit.Name, "", 0); err != nil || d.Remaining != estimate-used {
			t.Errorf("%d permits remain (%v), want %d", d.Remaining, err, estimate-used)
		}
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			s, _, _ := prepare()
			virtual(t, s, func(t *testing.T, st *stack) {
				var begun, settled chan error
				s, begun, settled = prepare() // channels belong to the bubble
				st.handle = s.handle
				_, err := st.client.Enqueue(asynq.NewTask("job", nil, asynq.TaskID("j"), asynq.Timeout(time.Minute), asynq.MaxRetry(0)))
				st.must(err)
				<-begun
				end(st, settled)
				if len(settled) == 0 {
					t.Error("the shutdown ended before the settlement")
				}
				check(t, st, settled)
			})
		})
	}
	t.Run("shutdown of a worker of a real Redis", func(t *testing.T) {
		s, begun, settled := prepare()
		st := start(t, redistest.Run(t).Client(), s)
		_, err := st.client.Enqueue(asynq.NewTask("job", nil, asynq.TaskID("j")))
		st.must(err)
		<-begun
		st.server.Shutdown()
		check(t, st, settled)
	})
}
