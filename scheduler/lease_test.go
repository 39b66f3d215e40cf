package scheduler

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/throttle"
)

var oneSlot = throttle.Limit{Name: "slot", Kind: throttle.Concurrency, Capacity: 1, Lease: 30 * time.Second}

// A handler that runs on after its Timeout keeps its place: nobody else may do
// what it still does.
func TestLease_HeldUntilHandlerReturns(t *testing.T) {
	var running, most, ended atomic.Int32
	handle := func(context.Context, *asynq.Task) error {
		most.Store(max(most.Load(), running.Add(1)))
		time.Sleep(5 * time.Minute)
		running.Add(-1)
		ended.Add(1)
		return nil
	}
	quick := asynq.Config{Concurrency: 4, TaskCheckInterval: time.Second}
	virtual(t, settings{config: quick, limits: []throttle.Limit{oneSlot}, handle: handle}, func(t *testing.T, st *stack) {
		for range 3 {
			st.enqueue(asynq.NewTask("job", nil, asynq.MaxRetry(0), asynq.Timeout(10*time.Second)))
		}
		time.Sleep(16 * time.Minute)
		if most.Load() != 1 || ended.Load() != 3 {
			t.Errorf("%d ran at once and %d to the end, want 1 and 3", most.Load(), ended.Load())
		}
	})
}

// The context of a job ends when another may have its place: at once where the
// lease is lost, and a tenth of the lease before it ends in Redis if it cannot be extended.
func TestLease_LostCancelsHandler(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	unavailable := fmt.Errorf("%w: cut off", throttle.ErrUnavailable)
	calls := 0
	tests := []struct {
		name     string
		extend   func() (bool, error)
		from, to time.Duration // when the context ends; never where zero
	}{
		{"lost", func() (bool, error) { return false, nil }, 10 * time.Second, 11 * time.Second},
		{"cut off", func() (bool, error) { return false, unavailable }, 26 * time.Second, 27 * time.Second},
		{"no answer", func() (bool, error) { time.Sleep(time.Hour); return true, nil }, 26 * time.Second, 27 * time.Second},
		{"cut off after a while", func() (bool, error) {
			if calls++; calls <= 5 {
				return true, nil
			}
			return false, unavailable
		}, 76 * time.Second, 77 * time.Second},
		{"cut off for a while", func() (bool, error) {
			if calls++; calls%10 == 0 {
				return true, nil
			}
			return false, unavailable
		}, 0, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			calls = 0
			var ended time.Duration
			var cause error
			handle := func(ctx context.Context, _ *asynq.Task) error {
				began := time.Now()
				select {
				case <-ctx.Done():
					ended, cause = time.Since(began), context.Cause(ctx)
				case <-time.After(10 * time.Minute):
				}
				return nil
			}
			virtual(t, settings{limits: []throttle.Limit{oneSlot}, handle: handle, extend: test.extend}, func(t *testing.T, st *stack) {
				st.enqueue(asynq.NewTask("job", nil))
				time.Sleep(11 * time.Minute)
				synctest.Wait()
				if ended < test.from || ended > test.to || (ended > 0) != errors.Is(cause, errLeaseLost) {
					t.Errorf("the context ended after %s by %v, want %s to %s", ended, cause, test.from, test.to)
				}
				time.Sleep(time.Hour)
				st.wantOnce(1)
			})
		})
	}
}

// A log line about a lost lease or a 429 names the limits that it is about.
func TestLease_LogNamesLimits(t *testing.T) {
	var log bytes.Buffer
	host := throttle.Limit{Name: "host", Kind: throttle.Funnel, Rate: throttle.PerSecond(1)}
	refused := false
	virtual(t, settings{
		limits: []throttle.Limit{host, oneSlot}, log: slog.New(slog.NewTextHandler(&log, nil)),
		extend: func() (bool, error) { return false, nil },
		rule: func(*asynq.Task) (Rule, error) {
			return Rule{Needs: []throttle.Need{{Limit: "host", Key: "a"}, {Limit: "slot"}}}, nil
		},
		handle: func(ctx context.Context, _ *asynq.Task) error {
			if refused = !refused; refused {
				return RateLimited(time.Now().Add(time.Minute))
			}
			<-ctx.Done()
			return nil
		},
	}, func(t *testing.T, st *stack) {
		st.enqueue(asynq.NewTask("job", nil))
		time.Sleep(5 * time.Minute)
		st.wantClean()
	})
	for _, want := range []string{`lost its lease and is cancelled" job=`, ` limits=slot`, `"blocked by the upstream" job=`, ` limits="host of a"`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %s in %s", want, log.String())
		}
	}
}
