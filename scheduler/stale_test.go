package scheduler

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/scheduler/lanes"
	"github.com/headgate/headgate/throttle"
	"github.com/headgate/headgate/throttle/throttletest"
)

// TestPermitsGrowOld: a process that is stopped for a second, each time that some jobs have
// been allowed, starts no more jobs than the limits guarantee, whatever was taken ahead. The
// witness counts starts.
func TestPermitsGrowOld(t *testing.T) {
	for _, limit := range []throttle.Limit{
		{Kind: throttle.Funnel, Rate: throttle.PerSecond(20), Capacity: 5},
		{Kind: throttle.TokenBucket, Rate: throttle.PerSecond(20), Capacity: 20},
		{Kind: throttle.SlidingLog, Rate: throttle.PerSecond(20)},
		{Kind: throttle.SlidingWindow, Rate: throttle.PerSecond(20)},
		{Kind: throttle.FixedWindow, Rate: throttle.PerSecond(20)},
	} {
		t.Run(string(limit.Kind), func(t *testing.T) {
			var starts []throttletest.Admission
			var mu sync.Mutex
			limit.Name = "api"
			allowed := 0
			virtual(t, settings{config: quick, limits: []throttle.Limit{limit}, asked: func(_ lanes.Job, _ []throttle.Need, d throttle.Decision) {
				if d.OK() {
					if allowed++; allowed%30 == 7 {
						time.Sleep(time.Second)
					}
				}
			}, handle: func(ctx context.Context, _ *asynq.Task) error {
				mu.Lock()
				defer mu.Unlock()
				starts = append(starts, throttletest.Admission{At: time.Now().UnixMicro(), Cost: 1})
				if d, _ := GetDecision(ctx); d.Age() > freshTime {
					t.Errorf("a job begins under permits that are %s old", d.Age())
				}
				return nil
			}}, func(t *testing.T, st *stack) {
				for range 200 {
					st.enqueue(asynq.NewTask("job", nil))
				}
				time.Sleep(time.Minute)
				st.wantOnceEach(200)
				if err := throttletest.CheckStarts(limit, starts, freshTime); err != nil {
					t.Error(err)
				}
				st.wantClean()
			})
		})
	}
}

// TestStaleJobsKeepTheirPlace: jobs that were allowed and begin too late for their permits ask
// anew, and run before all that came after them, but for those whose turn it was meanwhile.
func TestStaleJobsKeepTheirPlace(t *testing.T) {
	var waited time.Duration
	stopped := false
	virtual(t, settings{config: quick, limits: []throttle.Limit{funnel("api", 1, 1)}, asked: func(job lanes.Job, _ []throttle.Need, d throttle.Decision) {
		if d.OK() && job.ID == "job-10" && !stopped {
			stopped = true
			time.Sleep(5 * time.Second)
		}
	}, handle: func(ctx context.Context, _ *asynq.Task) error {
		if id, _ := asynq.GetTaskID(ctx); id == "job-10" {
			d, _ := GetDecision(ctx)
			waited = d.Waited
		}
		return nil
	}}, func(t *testing.T, st *stack) {
		var want []string
		for i := range 40 {
			want = append(want, st.enqueue(asynq.NewTask("job", nil), asynq.TaskID(fmt.Sprintf("job-%02d", i))))
		}
		time.Sleep(2 * time.Minute)
		var got []string
		for _, r := range st.ran() {
			got = append(got, r.id)
		}
		want[10], want[11] = want[11], want[10] // which was called when the one before it was
		if !stopped || !slices.Equal(got, want) {
			t.Errorf("ran %v, want each in its place", got)
		}
		if waited < 15*time.Second || waited > 17*time.Second {
			t.Errorf("the job is said to have waited %s, want about 16 s: 10 for its turn, 5 in its process, and 1 for another turn", waited)
		}
		st.wantClean()
	})
}

// TestStaleJobsKeepTheirTime: MaxWait goes on when a job that was allowed has to ask anew.
func TestStaleJobsKeepTheirTime(t *testing.T) {
	var told time.Time
	stopped := false
	virtual(t, settings{config: quick, limits: []throttle.Limit{funnel("api", 1, 1)}, rule: func(*asynq.Task) (Rule, error) {
		return Rule{Needs: []throttle.Need{{Limit: "api"}}, MaxWait: 20 * time.Second}, nil
	}}, func(t *testing.T, st *stack) {
		began := time.Now()
		st.limiter.asked = func(job lanes.Job, _ []throttle.Need, d throttle.Decision) {
			switch {
			case job.ID == "job" && d.OK() && !stopped:
				stopped = true
				st.must(st.limiter.Pause(t.Context(), "api"))
				time.Sleep(5 * time.Second)
			case job.ID == "job" && d.Outcome == throttle.TooLate:
				told = time.Now()
			}
		}
		for range 10 {
			st.enqueue(asynq.NewTask("job", nil))
		}
		st.enqueue(asynq.NewTask("job", nil), asynq.TaskID("job"))
		time.Sleep(time.Minute)
		if waited := told.Sub(began); !stopped || waited < 20*time.Second || waited > 22*time.Second {
			t.Errorf("its time was up after %s, want 20s", waited)
		}
		st.wantOnceEach(10)
	})
}

// TestGivenBackJobsKeepTheirPlace: a server that stops gives a job back that it has permits
// for. On the next server the job runs before all that wait.
func TestGivenBackJobsKeepTheirPlace(t *testing.T) {
	one := quick
	one.Concurrency = 1
	var jobs []string
	virtual(t, settings{config: one, limits: []throttle.Limit{funnel("api", 1, 1)}, handle: func(context.Context, *asynq.Task) error {
		time.Sleep(time.Second)
		return nil
	}}, func(t *testing.T, st *stack) {
		for i := range 10 {
			jobs = append(jobs, st.enqueue(asynq.NewTask("job", nil), asynq.TaskID(fmt.Sprintf("job-%02d", i))))
		}
		time.Sleep(3500 * time.Millisecond)
		st.server.redis.ahead.believe(2) // it takes one more than it can begin
		time.Sleep(1200 * time.Millisecond)
		st.server.Shutdown()
		next := start(t, st.rdb, settings{config: quick, limits: []throttle.Limit{funnel("api", 1, 1)}})
		time.Sleep(time.Minute)
		var got []string
		for _, r := range append(st.ran(), next.ran()...) {
			got = append(got, r.id)
		}
		if !slices.Equal(got, jobs) {
			t.Errorf("ran %v, want each in its place", got)
		}
	})
}
