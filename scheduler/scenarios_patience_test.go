package scheduler

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/script"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// Was: 2 of 3 were archived as too late: a lease's end was taken for a forecast. Nobody
// knows when a job ends that runs.
func patienceUnderConcurrency(t *testing.T) {
	limit := throttle.Limit{Name: "slot", Kind: throttle.Concurrency, Capacity: 1}
	handle := func(context.Context, *asynq.Task) error {
		time.Sleep(100 * time.Millisecond)
		return nil
	}
	for _, test := range []struct {
		name    string
		maxWait time.Duration
		opts    func() []asynq.Option
	}{
		{"MaxWait", 20 * time.Second, func() []asynq.Option { return nil }},
		{"Deadline", 0, func() []asynq.Option { return []asynq.Option{asynq.Deadline(time.Now().Add(20 * time.Second))} }},
	} {
		t.Run(test.name, func(t *testing.T) {
			rule := func(*asynq.Task) (Rule, error) {
				return Rule{Needs: []throttle.Need{{Limit: "slot"}}, MaxWait: test.maxWait}, nil
			}
			virtual(t, settings{config: quick, limits: []throttle.Limit{limit}, rule: rule, handle: handle}, func(_ *testing.T, st *stack) {
				began := time.Now()
				var jobs []string
				for range 3 {
					jobs = append(jobs, st.enqueue(needing(""), test.opts()...))
				}
				time.Sleep(50 * time.Millisecond)
				last := jobs[2]
				if _, waits, _ := st.limiter.Position(st.t.Context(), throttle.JobID{Queue: "default", ID: last}); !waits {
					last = jobs[1] // they ask at the same moment
				}
				if place, waits, err := st.limiter.Position(st.t.Context(), throttle.JobID{Queue: "default", ID: last}); !waits || err != nil || place.Known {
					st.t.Errorf("%+v, %t, %v; want it to wait, nobody knows how long", place, waits, err)
				}
				time.Sleep(time.Minute)
				st.wantLastBy(began, 3, time.Second)
				st.wantNothingLeft("default")
			})
		})
	}
}

// impatient is ruleOfPayload, with a MaxWait for those whose payload has a word.
func impatient(word string, maxWait time.Duration) func(*asynq.Task) (Rule, error) {
	return func(task *asynq.Task) (Rule, error) {
		r, err := ruleOfPayload(task)
		if strings.Contains(string(task.Payload()), word) {
			r.MaxWait = maxWait
		}
		return r, err
	}
}

// Was: 5 of 10 were archived as too late, since every other lane was taken to go
// before each of them, also those with one job.
func smallTenant(t *testing.T) {
	before := slices.Repeat([]string{"api tenant/noisy"}, 80)
	for i := range 12 {
		before = append(before, fmt.Sprintf("api tenant/%d", i))
	}
	runInTime(t, before, "api tenant/small", 10)
}

// Was: the same of a job that costs more than those beside it.
func bigWithMaxWait(t *testing.T) {
	before := slices.Concat(slices.Repeat([]string{"api tenant/noisy"}, 60), slices.Repeat([]string{"api"}, 5))
	runInTime(t, before, "api:10", 1)
}

// runInTime has jobs that may wait for 5 s join those before, and all run.
func runInTime(t *testing.T, before []string, late string, jobs int) {
	limits := []throttle.Limit{funnel("api", 10, 10), funnel("tenant", 10, 10)}
	virtual(t, settings{config: quick, limits: limits, rule: impatient(late, 5*time.Second)}, func(_ *testing.T, st *stack) {
		for _, needs := range before {
			st.enqueue(needing(needs))
		}
		time.Sleep(200 * time.Millisecond)
		for range jobs {
			st.enqueue(needing(late))
		}
		time.Sleep(12 * time.Second)
		st.wantOnceEach(len(before) + jobs)
		st.wantNothingLeft("default")
		st.wantClean()
	})
}

// Was: 3 of 5 were archived at once: what running calls owe was taken for what they cost,
// and 12 s later 9,000 permits were free.
func costsThatSettle(t *testing.T) {
	limit := throttle.Limit{Name: "tokens", Kind: throttle.SlidingWindow, Rate: throttle.PerMinute(10000)}
	handle := func(ctx context.Context, _ *asynq.Task) error {
		time.Sleep(2 * time.Second)
		return Settle(ctx, "tokens", 500)
	}
	rule := impatient("tokens", 30*time.Second)
	virtual(t, settings{config: quick, limits: []throttle.Limit{limit}, rule: rule, handle: handle}, func(_ *testing.T, st *stack) {
		began := time.Now()
		for range 5 {
			st.enqueue(needing("tokens:4000"))
		}
		time.Sleep(30 * time.Second)
		st.wantLastBy(began, 5, 5*time.Second)
		st.wantNothingLeft("default")
		st.wantClean()
	})
}

// Was: archived at once, behind 8 jobs that could not wait for as long as that took.
func behindImpatientJobs(t *testing.T) {
	limit := throttle.Limit{Name: "api", Kind: throttle.Funnel, Rate: throttle.PerSecond(1), Capacity: 10}
	rule := func(task *asynq.Task) (Rule, error) {
		r, err := impatient("api:10", 5*time.Second)(task)
		if len(task.Payload()) == len("api:10 ") {
			r.MaxWait = 30 * time.Second
		}
		return r, err
	}
	virtual(t, settings{config: quick, limits: []throttle.Limit{limit}, rule: rule}, func(t *testing.T, st *stack) {
		st.must(st.limiter.Pause(t.Context(), "api"))
		for range 9 {
			st.enqueue(needing("api:10"))
		}
		time.Sleep(time.Second)
		st.must(st.limiter.Resume(t.Context(), "api")) // one of them runs
		time.Sleep(time.Second)
		began := time.Now()
		st.enqueue(needing("api:10 "))
		time.Sleep(30 * time.Second)
		st.wantLastBy(began, 2, 11*time.Second)
		if q, err := st.tasks.GetQueueInfo("default"); err != nil || q.Archived != 8 || q.Retry > 0 {
			t.Errorf("queue: %+v, %v; want those archived whose time was up", q, err)
		}
		st.wantClean()
	})
}

// Was: of 1,000 jobs that may wait for 3 s 100 were archived each 5 s, and when the slot
// came free after 22 s 300 of them ran.
func manyWhoseTimeIsUp(t *testing.T) {
	toldOnTime(t, 300, 3*time.Second, func(st *stack) { st.enqueue(needing("slot")) })
}

// Was: one that may wait for a second ran after 3.5 s: it came behind one that may wait
// for longer, and nobody looked before.
func shortPatienceBehindLong(t *testing.T) {
	toldOnTime(t, 1, time.Second, func(st *stack) {
		st.enqueue(needing("slot"))
		st.enqueue(needing("slot long"))
		time.Sleep(20 * time.Second) // the dispatcher is at rest
	})
}

// toldOnTime has jobs wait behind a slot that is held until their time is long up: each
// is told so within a second, and none runs.
func toldOnTime(t *testing.T, jobs int, maxWait time.Duration, before func(st *stack)) {
	const slack = time.Second
	handle := func(context.Context, *asynq.Task) error {
		time.Sleep(30 * time.Second)
		return nil
	}
	rule := func(task *asynq.Task) (Rule, error) {
		r := Rule{Needs: []throttle.Need{{Limit: "slot"}}}
		switch string(task.Payload()) {
		case "slot soon":
			r.MaxWait = maxWait
		case "slot long":
			r.MaxWait = 20 * time.Minute
		}
		return r, nil
	}
	var mu sync.Mutex
	first, told := map[string]time.Time{}, map[string]bool{}
	asked := func(job waitdb.Job, _ []throttle.Need, d waitdb.Decision) {
		mu.Lock()
		defer mu.Unlock()
		if first[job.ID].IsZero() {
			first[job.ID] = time.Now().Truncate(time.Microsecond) // as Redis counts
		}
		if d.Outcome != throttle.Expired {
			return
		}
		told[job.ID] = true
		if late := time.Since(first[job.ID]) - maxWait; late < 0 || late > slack {
			t.Errorf("told %s after its time was up, want 0 to %s", late, slack)
		}
	}
	limit := throttle.Limit{Name: "slot", Kind: throttle.Concurrency, Capacity: 1}
	virtual(t, settings{config: quick, limits: []throttle.Limit{limit}, rule: rule, handle: handle, asked: asked}, func(t *testing.T, st *stack) {
		before(st)
		time.Sleep(100 * time.Millisecond)
		for range jobs {
			st.enqueue(needing("slot soon"))
		}
		time.Sleep(2 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if len(told) != jobs {
			t.Errorf("%d jobs were told that it is too late, want %d", len(told), jobs)
		}
		if q, err := st.tasks.GetQueueInfo("default"); err != nil || q.Archived != jobs || q.Retry+q.Pending+q.Active > 0 {
			t.Errorf("queue: %+v, %v; want %d archived", q, err, jobs)
		}
		st.wantClean()
	})
}

// TestMaxWait_ClockStepsBack: whose time was to be up is not asked for again
// and again until the limiter's clock is there.
func TestMaxWait_ClockStepsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queues, _ := redistest.Mini(t)
		limiter, rdb := redistest.Mini(t)
		clock, asked := &simClock{redis: limiter}, &lates{}
		rdb.AddHook(clock)
		rdb.AddHook(redistest.Hook(asked.around))
		st := start(t, redistest.MiniClient(t, queues), settings{
			config: asynq.Config{Concurrency: 2}, redis: rdb, limits: []throttle.Limit{{Name: "api", Kind: throttle.Funnel, Rate: throttle.PerMinute(1)}},
			rule: func(*asynq.Task) (Rule, error) {
				return Rule{Needs: []throttle.Need{{Limit: "api"}}, MaxWait: 5 * time.Second}, nil
			},
		})
		for range 5 {
			st.enqueue(NewTask("job", nil))
		}
		time.Sleep(4900 * time.Millisecond) // after the last heartbeat before that
		clock.step(-20 * time.Second)
		time.Sleep(24 * time.Second)
		if n := asked.calls.Load(); n > 20 {
			t.Errorf("late was called %d times", n)
		}
		if q, err := st.tasks.GetQueueInfo("default"); err != nil || q.Archived != 4 {
			t.Errorf("%+v, %v; want 4 archived", q, err)
		}
	})
}

// lates counts the calls of one script. Each takes a millisecond, or a loop of them would
// stop the bubble's clock.
type lates struct{ calls atomic.Int64 }

func (l *lates) around(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	if args := cmd.Args(); cmd.Name() == "evalsha" && args[1] == script.New("lanes/expire_waits").Hash() {
		l.calls.Add(1)
		time.Sleep(time.Millisecond)
	}
	return next(ctx, cmd)
}
