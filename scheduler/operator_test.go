package scheduler

import (
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/throttle"
)

// What is logged after waiting jobs were removed, and after the limiter's Redis lost its data.
const (
	logRemoved = "removed the records of waiting jobs"
	logDefined = "limits were missing in Redis, and were defined again from the config"
)

// TestOperator: whatever is done to asynq's jobs, or to either Redis, behind headgate's back, no
// other job is lost, no limit is exceeded, and a minute later nothing is left of it.
func TestOperator(t *testing.T) {
	const left = -1 // of the 60 jobs, those that have run, and perhaps one that was granted just then
	count := func(_ int, err error) error { return err }
	for name, test := range map[string]struct {
		act  func(st *stack) error
		runs int
		log  string // a line that says what happened, or "" if there is nothing to say
	}{
		"delete a job":          {func(st *stack) error { return st.tasks.DeleteTask("default", "job-0040") }, 59, logRemoved},
		"delete all that wait":  {func(st *stack) error { return count(st.tasks.DeleteAllRetryTasks("default")) }, left, logRemoved},
		"archive a job":         {func(st *stack) error { return st.tasks.ArchiveTask("default", "job-0040") }, 59, logRemoved},
		"archive all that wait": {func(st *stack) error { return count(st.tasks.ArchiveAllRetryTasks("default")) }, left, logRemoved},
		"run a job":             {func(st *stack) error { return st.tasks.RunTask("default", "job-0040") }, 60, ""},
		"run all that wait":     {func(st *stack) error { return count(st.tasks.RunAllRetryTasks("default")) }, 60, ""},
		"pause the queue": {func(st *stack) error {
			st.must(st.tasks.PauseQueue("default"))
			time.Sleep(20 * time.Second)
			return st.tasks.UnpauseQueue("default")
		}, 60, ""},
		"delete granted jobs from a paused queue": {func(st *stack) error {
			st.must(st.tasks.PauseQueue("default"))
			time.Sleep(2 * time.Second)
			if n, err := st.tasks.DeleteAllPendingTasks("default"); err != nil || n != 1 {
				return fmt.Errorf("%d granted jobs deleted, %w; want one: no worker took it", n, err)
			}
			return st.tasks.UnpauseQueue("default")
		}, 59, logRemoved},
		"delete the queue": {func(st *stack) error { return st.tasks.DeleteQueue("default", true) }, left, logRemoved},
		"the same ID again": {func(st *stack) error {
			st.must(st.tasks.DeleteTask("default", "job-0040"))
			st.enqueue(needing("api"), asynq.TaskID("job-0040"))
			return nil
		}, 60, ""},
		"FLUSHALL of the limiter's Redis": {func(st *stack) error { return st.limits.FlushAll(st.t.Context()).Err() }, 60, logDefined},
		"FLUSHALL of asynq's Redis":       {func(st *stack) error { return st.rdb.FlushAll(st.t.Context()).Err() }, left, logRemoved},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limit := throttle.Limit{Name: "api", Kind: throttle.Funnel, Rate: throttle.PerSecond(2)}
			var log journal
			virtual(t, settings{config: quick, split: true, limits: []throttle.Limit{limit}, log: log.logger()}, func(t *testing.T, st *stack) {
				st.enqueueN(60, "")
				time.Sleep(5100 * time.Millisecond)
				least, most := test.runs, test.runs
				if test.runs == left {
					least, most = len(st.ran()), len(st.ran())+1
				}
				acted := time.Now()
				st.must(test.act(st))
				time.Sleep(time.Minute)
				if n := len(st.ran()); n < least || n > most {
					t.Errorf("%d jobs ran, want %d to %d", n, least, most)
				}
				st.wantClean()
				before, began := len(st.ran()), time.Now()
				st.enqueueN(3, "", asynq.Retention(time.Hour))
				setMarker(t.Context(), st.rdb, markerKey("default")) // asynq's client leaves none
				time.Sleep(3 * time.Second)
				st.wantLastBy(began, before+3, 1100*time.Millisecond)
				st.wantOnceEach(before + 3)
				lost := time.Time{} // nothing is
				if test.log == logDefined {
					lost = acted
				}
				wantNotOver(t, limit, lost, st)
				if n := log.times("\n"); test.log == "" && n > 0 || test.log != "" && log.times(test.log) != 1 {
					t.Errorf("logged:\n%s\nwant %q once", &log, test.log)
				}
			})
		})
	}
}

// TestReconcile_GoneJobComparesAll: if a granted job was deleted, others may have been deleted too,
// also jobs whose turn would come in an hour.
func TestReconcile_GoneJobComparesAll(t *testing.T) {
	limits := []throttle.Limit{funnel("fast", 1, 1), {Name: "slow", Kind: throttle.Funnel, Rate: throttle.Every(time.Hour)}}
	virtual(t, settings{config: quick, limits: limits, rule: ruleOfPayload}, func(t *testing.T, st *stack) {
		for range 20 {
			st.enqueueN(1, "fast")
			st.enqueueN(1, "slow")
		}
		time.Sleep(10 * time.Second)
		if n, err := st.tasks.DeleteAllRetryTasks("default"); err != nil || n < 25 {
			t.Fatalf("deleted %d, %v; want over 25", n, err)
		}
		time.Sleep(2 * time.Second)
		st.wantClean()
	})
}

// TestReconcile_OrphansAskAgain: the limiter has lost its data, and so which jobs wait. The
// put-backs of those jobs end in hours; they ask again within a minute.
func TestReconcile_OrphansAskAgain(t *testing.T) {
	virtual(t, settings{config: quick, split: true, limits: []throttle.Limit{each(time.Hour)}}, func(t *testing.T, st *stack) {
		st.enqueueN(4, "")
		time.Sleep(10 * time.Second)
		st.limitServer.FlushAll()
		time.Sleep(time.Minute)
		st.wantRuns(2)
		if waiting := st.limits.HLen(t.Context(), scopePrefix+"jobs").Val(); waiting != 2 {
			t.Errorf("%d jobs wait, want 2: the meter was lost, too", waiting)
		}
	})
}
