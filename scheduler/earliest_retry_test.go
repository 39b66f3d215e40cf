package scheduler

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/throttle"
)

// toldError is an error with an earliest retry.
type toldError struct{ at time.Time }

func (toldError) Error() string              { return "come later" }
func (e toldError) EarliestRetry() time.Time { return e.at }

// TestEarliestRetry: a job whose error has an earliest retry does not run again before that, and soon
// after. Neither the error's text nor what decides between attempts changes.
func TestEarliestRetry(t *testing.T) {
	told := func(after time.Duration) func() error {
		return func() error { return fmt.Errorf("wrapped: %w", toldError{time.Now().Add(after)}) }
	}
	for name, row := range map[string]struct {
		rule Rule
		err  func() error
		from time.Duration // until the second attempt; it comes within two seconds more
		runs int           // 2 if zero
	}{
		"a minute":              {err: told(time.Minute), from: time.Minute},
		"part of a second":      {err: told(90*time.Second + 700*time.Millisecond), from: 90*time.Second + 700*time.Millisecond},
		"with permits":          {rule: needs("a"), err: told(time.Minute), from: time.Minute},
		"a shorter policy":      {rule: Rule{Retry: constantDelay(5 * time.Second)}, err: told(time.Minute), from: time.Minute},
		"a longer policy":       {rule: Rule{Retry: constantDelay(5 * time.Minute)}, err: told(time.Minute), from: 5*time.Minute - time.Second},
		"no time":               {err: func() error { return toldError{} }},
		"a past time":           {err: told(-time.Hour)},
		"put back":              {err: func() error { return errors.Join(told(time.Minute)(), RetryAfter(time.Minute)) }, from: time.Minute},
		"rate limited, no need": {err: func() error { return RateLimited(time.Now().Add(time.Minute)) }, from: time.Minute},
		"final":                 {err: func() error { return errors.Join(told(time.Minute)(), asynq.SkipRetry) }, runs: 1},
	} {
		t.Run(name, func(t *testing.T) {
			var starts []time.Time
			var from time.Time
			handle := func(context.Context, *asynq.Task) error {
				if starts = append(starts, time.Now()); len(starts) > 1 {
					return nil
				}
				from = time.Now()
				return row.err()
			}
			virtual(t, settings{config: retrying(quick, 0), limits: []throttle.Limit{funnel("a", 1, 1)}, rule: always(row.rule), handle: handle}, func(t *testing.T, st *stack) {
				st.enqueue(NewTask("job", nil, asynq.MaxRetry(2)))
				time.Sleep(row.from + 10*time.Second)
				if want := max(row.runs, 2-row.runs); len(starts) != want {
					t.Fatalf("%d attempts, want %d", len(starts), want)
				}
				if len(starts) == 2 {
					if after := starts[1].Sub(from); after < row.from || after > row.from+2*time.Second+50*time.Millisecond {
						t.Errorf("the next attempt came after %s, want %s and up to two seconds more", after, row.from)
					}
				}
			})
		})
	}
}

// TestEarliestRetry_Day: no error makes a job wait for more than a day.
func TestEarliestRetry_Day(t *testing.T) {
	if wait := time.Until(earliestRetry(toldError{time.Now().Add(100 * time.Hour)})); wait < 24*time.Hour-time.Minute || wait > 24*time.Hour {
		t.Errorf("the wait is %s, want a day", wait)
	}
}

// TestEarliestRetry_Spread: jobs that an upstream has told the same time start over a second, whether
// they failed or were put back.
func TestEarliestRetry_Spread(t *testing.T) {
	const jobs = 200
	for name, end := range map[string]func(at time.Time) error{
		"failed":       func(at time.Time) error { return toldError{at} },
		"put back":     func(at time.Time) error { return errors.Join(toldError{at}, RetryAfter(time.Until(at))) },
		"rate limited": RateLimited,
	} {
		t.Run(name, func(t *testing.T) {
			var at time.Time
			tenths := map[int]int{}
			handle := func(context.Context, *asynq.Task) error {
				if time.Now().Before(at) {
					return end(at)
				}
				tenths[int(time.Since(at)/(100*time.Millisecond))]++
				return nil
			}
			virtual(t, settings{config: retrying(asynq.Config{Concurrency: jobs}, 0), rule: always(Rule{}), handle: handle}, func(t *testing.T, st *stack) {
				at = time.Now().Add(8 * time.Second)
				for range jobs {
					st.enqueue(NewTask("job", nil, asynq.MaxRetry(2)))
				}
				time.Sleep(12 * time.Second)
				sum, most := 0, 0
				for _, n := range tenths {
					sum, most = sum+n, max(most, n)
				}
				if sum != jobs || most > jobs/5 {
					t.Errorf("%d of %d jobs ran, in tenths of a second %v: want all, and at most %d in a tenth", sum, jobs, tenths, jobs/5)
				}
			})
		})
	}
}

// TestEarliestRetry_Slots: jobs that wait for their start hold no worker slots, so other jobs run
// meanwhile.
func TestEarliestRetry_Slots(t *testing.T) {
	var ended []time.Time
	handle := func(_ context.Context, task *asynq.Task) error {
		if string(task.Payload()) == "other" {
			ended = append(ended, time.Now())
			return nil
		}
		at := time.Now().Add(time.Second)
		return errors.Join(toldError{at}, RetryAfter(time.Second))
	}
	config := asynq.Config{Concurrency: 2, Queues: map[string]int{"default": 2, "low": 1}, StrictPriority: true}
	virtual(t, settings{config: retrying(config, 0), rule: always(Rule{}), handle: handle}, func(t *testing.T, st *stack) {
		for range 20 {
			st.enqueue(NewTask("job", []byte("told")))
		}
		time.Sleep(3 * time.Second)
		for i := range 10 {
			began := time.Now()
			st.enqueue(NewTask("job", []byte("other"), asynq.Queue("low")))
			time.Sleep(2*time.Second - 300*time.Millisecond)
			if len(ended) != i+1 || ended[i].Sub(began) > 1500*time.Millisecond {
				t.Fatalf("jobs of the other queue ended at %v, want each within 1.5 s, the last from %s", ended, began)
			}
		}
	})
}
