package scheduler

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// freed is what is logged where waiting jobs were taken away.
const freed = "their places are free"

// redefined is what is logged where the limiter's Redis lost its data.
const redefined = "Redis has lost its limits: they are defined again as the config says"

// Whatever is done to asynq's jobs, or to either Redis, behind headgate's back:
// no other job is lost, nothing goes over, and a minute later all is as if
// nothing had been.
func TestOperator(t *testing.T) {
	for _, test := range []struct {
		name string
		act  func(st *stack) error
		runs func(ran int) (least, most int) // of the 60 jobs, of which so many have run
		log  string                          // a line that says what happened, or "" where there is nothing to say
	}{
		{"delete a job", func(st *stack) error { return st.tasks.DeleteTask("default", "job-0040") }, but(1), freed},
		{"delete all that wait", func(st *stack) error { return count(st.tasks.DeleteAllRetryTasks("default")) }, onlyThose, freed},
		{"archive a job", func(st *stack) error { return st.tasks.ArchiveTask("default", "job-0040") }, but(1), freed},
		{"archive all that wait", func(st *stack) error { return count(st.tasks.ArchiveAllRetryTasks("default")) }, onlyThose, freed},
		{"run a job", func(st *stack) error { return st.tasks.RunTask("default", "job-0040") }, but(0), ""},
		{"run all that wait", func(st *stack) error { return count(st.tasks.RunAllRetryTasks("default")) }, but(0), ""},
		{"pause the queue", pauseForAWhile, but(0), ""},
		{"delete called jobs from a paused queue", deleteCalled, but(1), freed},
		{"delete the queue", func(st *stack) error { return st.tasks.DeleteQueue("default", true) }, onlyThose, freed},
		{"the same ID again", func(st *stack) error {
			if err := st.tasks.DeleteTask("default", "job-0040"); err != nil {
				return err
			}
			_, err := st.client.Enqueue(needing(""), numbered("job", 40))
			return err
		}, but(0), ""},
		{"FLUSHALL of the limiter's Redis", func(st *stack) error { return st.limits.FlushAll(st.t.Context()).Err() }, but(0), redefined},
		{"FLUSHALL of asynq's Redis", func(st *stack) error { return st.rdb.FlushAll(st.t.Context()).Err() }, onlyThose, freed},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				_, queues := redistest.Mini(t)
				_, limiter := redistest.Mini(t)
				limit := throttle.Limit{Name: "api", Kind: throttle.Funnel, Rate: throttle.PerSecond(2)}
				var log journal
				st := start(t, queues, settings{config: quick, redis: limiter, limits: []throttle.Limit{limit}, log: log.logger()})
				for i := range 60 {
					st.enqueue(needing(""), numbered("job", i))
				}
				time.Sleep(5100 * time.Millisecond)
				least, most := test.runs(len(st.ran()))
				acted := time.Now()
				st.must(test.act(st))
				time.Sleep(time.Minute)
				if n := len(st.ran()); n < least || n > most {
					t.Errorf("%d jobs ran, want %d to %d", n, least, most)
				}
				st.wantClean()
				st.wantHealthy()
				lost := time.Time{} // nothing is
				if test.log == redefined {
					lost = acted
				}
				wantNotOver(t, limit, lost, st)
				if got := log.String(); (test.log == "") != (got == "") || test.log != "" && strings.Count(got, test.log) != 1 {
					t.Errorf("logged:\n%swant %q once", got, test.log)
				}
			})
		})
	}
}

// count leaves the error of an inspector's call.
func count(_ int, err error) error { return err }

// but is all jobs but n.
func but(n int) func(int) (int, int) {
	return func(int) (least, most int) { return 60 - n, 60 - n }
}

// onlyThose is those that have run, and one that was called just then.
func onlyThose(ran int) (least, most int) { return ran, ran + 1 }

func pauseForAWhile(st *stack) error {
	if err := st.tasks.PauseQueue("default"); err != nil {
		return err
	}
	time.Sleep(20 * time.Second)
	return st.tasks.UnpauseQueue("default")
}

// deleteCalled deletes the jobs that were called while their queue was paused.
func deleteCalled(st *stack) error {
	if err := st.tasks.PauseQueue("default"); err != nil {
		return err
	}
	time.Sleep(2 * time.Second)
	if n, err := st.tasks.DeleteAllPendingTasks("default"); err != nil || n != 1 {
		return fmt.Errorf("%d called jobs deleted, %w; want one: nobody took it", n, err)
	}
	return st.tasks.UnpauseQueue("default")
}

// wantHealthy fails unless each job ran once, and jobs that come now run as if
// nothing had been.
func (st *stack) wantHealthy() {
	st.t.Helper()
	st.wantOnceEach(len(st.ran()))
	before, began := len(st.ran()), time.Now()
	for range 3 {
		st.enqueue(needing(""), asynq.Retention(time.Hour))
	}
	time.Sleep(3 * time.Second)
	for _, r := range st.ran()[before:] {
		if late := r.at.Sub(began); late > 1600*time.Millisecond {
			st.t.Errorf("a job ran %s after it came, want 1.6 s", late)
		}
	}
	if n := len(st.ran()) - before; n != 3 {
		st.t.Errorf("%d of 3 new jobs ran", n)
	}
}

// TestReconcile_DeletedJobForgotten within a minute, long before its turn would tell.
func TestReconcile_DeletedJobForgotten(t *testing.T) {
	virtual(t, settings{limits: []throttle.Limit{{Name: "api", Kind: throttle.Funnel, Rate: throttle.Every(time.Hour)}}}, func(t *testing.T, st *stack) {
		var ids []string
		for range 4 { // one runs
			ids = append(ids, st.enqueue(NewTask("job", nil)))
		}
		time.Sleep(30 * time.Second)
		waiting := func() int64 { return st.limits.HLen(t.Context(), "hg:{default}:jobs").Val() }
		before := waiting()
		for _, id := range ids {
			_ = st.tasks.DeleteTask("default", id) // the one that ran is gone
		}
		time.Sleep(65 * time.Second)
		if after := waiting(); before != 3 || after != 0 {
			t.Errorf("%d jobs waited, and %d do after all were deleted; want 3 and 0", before, after)
		}
	})
}
