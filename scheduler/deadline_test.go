package scheduler

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/throttle"
)

// A job that comes after its deadline is archived at once, or dropped if its rule
// says so. It uses up no retries, and it keeps its deadline.
func TestComesAfterItsDeadline(t *testing.T) {
	tests := []struct {
		name string
		rule Rule
		gone bool
	}{
		{"without limits", Rule{}, false},
		{"under a limit", Rule{Needs: []throttle.Need{{Limit: "api"}}}, false},
		{"that may run beyond it", Rule{Needs: []throttle.Need{{Limit: "api"}}, OnMaxWait: Run}, false},
		{"dropped", Rule{Needs: []throttle.Need{{Limit: "api"}}, OnMaxWait: Drop}, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			rule := func(*asynq.Task) (Rule, error) { return test.rule, nil }
			virtual(t, settings{limits: []throttle.Limit{perMinute(60, 10)}, rule: rule}, func(t *testing.T, st *stack) {
				deadline := time.Now().Add(time.Minute)
				id := st.enqueue(asynq.NewTask("job", nil, asynq.MaxRetry(25)), asynq.Deadline(deadline), asynq.ProcessIn(2*time.Minute))
				time.Sleep(3 * time.Minute)
				info := st.info(id)
				switch {
				case test.gone && info != nil:
					t.Errorf("job: %v %q, want gone", info.State, info.LastErr)
				case !test.gone && (info == nil || info.State != asynq.TaskStateArchived || info.Retried != 0 || !strings.HasPrefix(info.LastErr, "too late: ") || !info.Deadline.Equal(deadline)):
					t.Errorf("job: %+v, want archived as too late, without a retry, with the deadline %v", info, deadline)
				}
				if n := len(st.ran()); n != 0 {
					t.Errorf("ran %d times", n)
				}
				st.mu.Lock()
				defer st.mu.Unlock()
				if len(st.reported) != 1 {
					t.Errorf("reported: %v, want it once", st.reported)
				}
			})
		})
	}
}

// A job whose handler is still at work at the deadline fails as asynq has it, and is
// archived when it comes again.
func TestFailsAtItsDeadline(t *testing.T) {
	handle := func(context.Context, *asynq.Task) error {
		time.Sleep(2 * time.Minute)
		return nil
	}
	virtual(t, settings{limits: []throttle.Limit{perMinute(60, 10)}, handle: handle}, func(t *testing.T, st *stack) {
		id := st.enqueue(asynq.NewTask("job", nil, asynq.MaxRetry(25)), asynq.Deadline(time.Now().Add(time.Minute)))
		time.Sleep(10 * time.Minute)
		if info := st.info(id); info == nil || info.State != asynq.TaskStateArchived || info.Retried != 1 || !strings.HasPrefix(info.LastErr, "too late: ") {
			t.Errorf("job: %+v, want archived as too late, after one retry", info)
		}
	})
}

// Where nobody knows for how long a job would wait it waits for as long as its rule
// lets it, and is then archived, or dropped, with that reason.
func TestTooLate(t *testing.T) {
	for _, action := range []Action{Archive, Drop} {
		t.Run(fmt.Sprint(action), func(t *testing.T) {
			rule := func(*asynq.Task) (Rule, error) {
				return Rule{Needs: []throttle.Need{{Limit: "api"}}, MaxWait: 20 * time.Second, OnMaxWait: action}, nil
			}
			virtual(t, settings{config: quick, limits: []throttle.Limit{perMinute(60, 10)}, rule: rule}, func(t *testing.T, st *stack) {
				st.must(st.limiter.Pause(t.Context(), "api"))
				id := st.enqueue(needing(""))
				time.Sleep(19 * time.Second)
				if info := st.info(id); info == nil || info.State != asynq.TaskStateRetry {
					t.Errorf("after 19 s: %+v, want it to wait", info)
				}
				time.Sleep(8 * time.Second) // by then all heartbeats have come
				info := st.info(id)
				archived := info != nil && info.State == asynq.TaskStateArchived && strings.Contains(info.LastErr, "as long as it may")
				if action == Archive && !archived || action == Drop && info != nil {
					t.Errorf("after 27 s: %+v, want it gone, or archived with that reason", info)
				}
				st.wantClean()
				if n := len(st.ran()); n != 0 {
					t.Errorf("ran %d times", n)
				}
			})
		})
	}
}

// Nothing is kept of the deadlines of jobs that have ended.
func TestDeadlinesThatAreOver(t *testing.T) {
	virtual(t, settings{limits: []throttle.Limit{perMinute(60, 10)}}, func(t *testing.T, st *stack) {
		id := st.enqueue(NewTask("job", nil, asynq.MaxRetry(0), asynq.Deadline(time.Now().Add(-time.Minute))))
		time.Sleep(time.Minute)
		if info := st.info(id); info == nil || info.State != asynq.TaskStateArchived || len(st.ran()) != 0 {
			t.Errorf("job: %+v, ran %v; want it archived without a run", info, st.ran())
		}
		st.server.deadlines.byJob.Range(func(j, _ any) bool {
			t.Errorf("the deadline of %v is kept", j)
			return true
		})
	})
}
