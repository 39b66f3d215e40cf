package scheduler

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// TestMaxWait_Slots: jobs that can wait for 20 s wait for a slot that may be leased for longer:
// when a running job ends is not known, and no job is archived for an estimate.
func TestMaxWait_Slots(t *testing.T) {
	for name, test := range map[string]struct {
		maxWait time.Duration
		opts    func() []asynq.Option
	}{
		"MaxWait":  {20 * time.Second, func() []asynq.Option { return nil }},
		"Deadline": {0, func() []asynq.Option { return []asynq.Option{asynq.Deadline(time.Now().Add(20 * time.Second))} }},
	} {
		t.Run(name, func(t *testing.T) {
			rule := needs("slot")
			rule.MaxWait = test.maxWait
			virtual(t, settings{config: quick, limits: []throttle.Limit{oneSlot}, rule: always(rule), handle: takes(100 * time.Millisecond)}, func(t *testing.T, st *stack) {
				began := time.Now()
				jobs := st.enqueueN(3, "", test.opts()...)
				time.Sleep(50 * time.Millisecond)
				last := throttle.JobID{Queue: "default", ID: jobs[2]}
				if _, waits, _ := st.limiter.Position(t.Context(), last); !waits {
					last.ID = jobs[1] // they ask at the same moment
				}
				if position, waits, err := st.limiter.Position(t.Context(), last); !waits || err != nil || position.Known {
					t.Errorf("%+v, %t, %v; want it to wait for an unknown time", position, waits, err)
				}
				time.Sleep(time.Minute)
				st.wantLastBy(began, 3, time.Second)
				st.wantNothingLeft()
			})
		})
	}
}

// TestMaxWait_Settle: no job is archived for an estimate: what running calls were charged is more
// than what they cost in the end.
func TestMaxWait_Settle(t *testing.T) {
	limit := throttle.Limit{Name: "tokens", Kind: throttle.SlidingWindow, Rate: throttle.PerMinute(10000)}
	handle := func(ctx context.Context, _ *asynq.Task) error {
		time.Sleep(2 * time.Second)
		return Settle(ctx, "tokens", 500)
	}
	rule := Rule{Needs: []throttle.Need{{Limit: "tokens", Cost: 4000}}, MaxWait: 30 * time.Second}
	virtual(t, settings{config: quick, limits: []throttle.Limit{limit}, rule: always(rule), handle: handle}, func(_ *testing.T, st *stack) {
		began := time.Now()
		st.enqueueN(5, "")
		time.Sleep(30 * time.Second)
		st.wantLastBy(began, 5, 5*time.Second)
		st.wantNothingLeft()
		st.wantClean()
	})
}

// TestMaxWait_Expires: jobs wait behind a slot that is held until their MaxWait is long over. Each
// is archived within a second after it, and none runs, also if many expire together, or if a job
// with a longer MaxWait waits before them and the dispatcher sleeps.
func TestMaxWait_Expires(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		jobs    int
		maxWait time.Duration
		long    bool // whether a job with a longer MaxWait waits
	}{"many": {300, 3 * time.Second, false}, "behind a long MaxWait": {1, time.Second, true}} {
		t.Run(name, func(t *testing.T) {
			rule := func(task *asynq.Task) (Rule, error) {
				r := needs("slot")
				r.MaxWait = map[string]time.Duration{"soon": test.maxWait, "later": 20 * time.Minute}[string(task.Payload())]
				return r, nil
			}
			var mu sync.Mutex
			first, expired := map[string]time.Time{}, 0
			asked := func(job waitdb.Job, _ []throttle.Need, d waitdb.Decision) {
				mu.Lock()
				defer mu.Unlock()
				if first[job.ID].IsZero() {
					first[job.ID] = time.Now().Truncate(time.Microsecond) // as Redis counts
				}
				if d.Outcome != throttle.Expired {
					return
				}
				expired++
				if late := time.Since(first[job.ID]) - test.maxWait; late < 0 || late > time.Second {
					t.Errorf("the job learned it %s after its MaxWait, want 0 to 1 s", late)
				}
			}
			virtual(t, settings{config: quick, limits: []throttle.Limit{oneSlot}, rule: rule, handle: takes(30 * time.Second), asked: asked}, func(t *testing.T, st *stack) {
				st.enqueueN(1, "")
				if test.long {
					st.enqueueN(1, "later")
					time.Sleep(20 * time.Second)
				}
				time.Sleep(100 * time.Millisecond)
				st.enqueueN(test.jobs, "soon")
				time.Sleep(2 * time.Minute)
				if q, err := st.tasks.GetQueueInfo("default"); err != nil || q.Archived != test.jobs || q.Size != test.jobs || expired != test.jobs {
					t.Errorf("queue: %+v, %v; %d jobs learned that they are too late; want %d archived", q, err, expired, test.jobs)
				}
				st.wantClean()
			})
		})
	}
}

// TestTimeout_KeepsSlot: a handler that outlives its Timeout keeps its slot until it returns.
func TestTimeout_KeepsSlot(t *testing.T) {
	var running, most, ended atomic.Int32
	handle := func(context.Context, *asynq.Task) error {
		most.Store(max(most.Load(), running.Add(1)))
		time.Sleep(40 * time.Second)
		running.Add(-1)
		ended.Add(1)
		return nil
	}
	virtual(t, settings{config: quick, limits: []throttle.Limit{oneSlot}, handle: handle}, func(t *testing.T, st *stack) {
		st.enqueueN(3, "", asynq.Timeout(5*time.Second))
		time.Sleep(3 * time.Minute)
		if most.Load() != 1 || ended.Load() != 3 {
			t.Errorf("%d ran at once and %d to the end, want 1 and 3", most.Load(), ended.Load())
		}
	})
}
