package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// TestStalePermits_StoppedProcess: a process that is stopped for a second, each time that some jobs have
// been allowed, starts no more jobs than the limits guarantee, whatever was taken ahead. The
// witness counts starts.
func TestStalePermits_StoppedProcess(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	for _, limit := range []throttle.Limit{
		{Kind: throttle.Funnel, Rate: throttle.PerSecond(20), Capacity: 5},
		{Kind: throttle.TokenBucket, Rate: throttle.PerSecond(20), Capacity: 20},
		{Kind: throttle.SlidingLog, Rate: throttle.PerSecond(20)},
		{Kind: throttle.SlidingWindow, Rate: throttle.PerSecond(20)},
		{Kind: throttle.FixedWindow, Rate: throttle.PerSecond(20)},
	} {
		t.Run(string(limit.Kind), func(t *testing.T) {
			limit.Name = "api"
			allowed := 0
			virtual(t, settings{config: quick, limits: []throttle.Limit{limit}, asked: func(_ waitdb.Job, _ []throttle.Need, d waitdb.Decision) {
				if d.OK() {
					if allowed++; allowed%30 == 7 {
						time.Sleep(time.Second)
					}
				}
			}}, func(t *testing.T, st *stack) {
				for range 100 {
					st.enqueue(asynq.NewTask("job", nil))
				}
				time.Sleep(time.Minute)
				st.wantOnceEach(100)
				wantNotOver(t, limit, time.Time{}, st)
				st.wantClean()
			})
		})
	}
}

// TestStalePermits_KeepPosition: jobs that were allowed and begin too late for their permits ask
// anew, and run before all that came after them, but for those whose turn it was meanwhile.
func TestStalePermits_KeepPosition(t *testing.T) {
	var waited time.Duration
	stopped := false
	virtual(t, settings{config: quick, limits: []throttle.Limit{funnel("api", 1, 1)}, asked: func(job waitdb.Job, _ []throttle.Need, d waitdb.Decision) {
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

// TestStalePermits_KeepMaxWait: MaxWait goes on when a job that was allowed has to ask anew.
func TestStalePermits_KeepMaxWait(t *testing.T) {
	var told time.Time
	stopped := false
	virtual(t, settings{config: quick, limits: []throttle.Limit{funnel("api", 1, 1)}, rule: func(*asynq.Task) (Rule, error) {
		return Rule{Needs: []throttle.Need{{Limit: "api"}}, MaxWait: 20 * time.Second}, nil
	}}, func(t *testing.T, st *stack) {
		began := time.Now()
		st.limiter.asked = func(job waitdb.Job, _ []throttle.Need, d waitdb.Decision) {
			switch {
			case job.ID == "job" && d.OK() && !stopped:
				stopped = true
				st.must(st.limiter.Pause(t.Context(), "api"))
				time.Sleep(5 * time.Second)
			case job.ID == "job" && d.Outcome == throttle.Expired:
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

// TestGiveBack_KeepsPosition: a server gives jobs back that were allowed and that it cannot
// begin within a second. They run before all that wait.
func TestGiveBack_KeepsPosition(t *testing.T) {
	one := quick
	one.Concurrency = 1
	limit := throttle.Limit{Name: "api", Kind: throttle.FixedWindow, Rate: throttle.Rate{N: 2, Per: 4 * time.Second}}
	virtual(t, settings{config: one, limits: []throttle.Limit{limit}, handle: func(context.Context, *asynq.Task) error {
		time.Sleep(1500 * time.Millisecond)
		return nil
	}}, func(t *testing.T, st *stack) {
		st.server.redis.prefetcher.believe(2) // it takes one more than it can begin
		var got, want []string
		for i := range 12 {
			want = append(want, st.enqueue(asynq.NewTask("job", nil), asynq.TaskID(fmt.Sprintf("job-%02d", i))))
		}
		time.Sleep(2 * time.Minute)
		for _, r := range st.ran() {
			got = append(got, r.id)
		}
		if !slices.Equal(got, want) || len(st.limiter.allowed) == len(want) {
			t.Errorf("ran %v under %d decisions, want each in its place, and some allowed twice", got, len(st.limiter.allowed))
		}
		st.wantClean()
	})
}

// TestStalePermits_NotStartedKeepsPosition: if asynq gives a job up that was allowed and has not begun, the
// job is put back to where it stood, also if retries stand at the back.
func TestStalePermits_NotStartedKeepsPosition(t *testing.T) {
	for _, place := range []RetryPosition{PositionKeep, PositionBack} {
		t.Run(string(place), func(t *testing.T) {
			limit := funnel("api", 1, 1)
			rule := Rule{Needs: []throttle.Need{{Limit: "api"}}, RetryPosition: place}
			virtual(t, settings{config: quick, limits: []throttle.Limit{limit}, rule: func(*asynq.Task) (Rule, error) { return rule, nil }}, func(t *testing.T, st *stack) {
				q := &attempt{scope: st.server.scopes[0], job: job{Queue: "default", ID: "job"}, task: asynq.NewTask("job", nil)}
				st.server.scopes[0].request(q)
				<-q.done
				ctx, giveUp := context.WithCancel(t.Context())
				giveUp()
				err := st.server.try(ctx, q, q.task, asynq.HandlerFunc(st.run))
				back, ok := errors.AsType[*putBackError](err)
				if !ok || !back.denied || !back.position.notStarted || !back.position.queuedAt.Equal(q.decision.At) {
					t.Fatalf("%+v, want it put back to where it stood", err)
				}
				for i := range 5 {
					st.enqueue(asynq.NewTask("job", nil), asynq.TaskID(fmt.Sprint(i)))
				}
				time.Sleep(500 * time.Millisecond) // they wait
				again := &attempt{scope: st.server.scopes[0], job: q.job, task: q.task, position: back.position}
				st.server.scopes[0].request(again)
				<-again.done
				waiting := st.limits.ZRange(t.Context(), scopePrefix+"lane:default\napi|", 0, -1).Val()
				if again.decision.Outcome != throttle.Denied || slices.Index(waiting, "job") != 0 {
					t.Errorf("%v, %q wait; want it before the others", again.decision, waiting)
				}
			})
		})
	}
}
