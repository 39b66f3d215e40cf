package scheduler

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/testutil/proctest"
	"github.com/headgate/headgate/throttle"
)

// A job that its worker cannot run is put back without an attempt and without permits, until
// unknown_for is over. Then it fails as its error says. The job names the worker and what it lacks.
func TestUnable_FailsAfterUnknownFor(t *testing.T) {
	lacks := fmt.Errorf("it lacks a command: %w", ErrUnable)
	for name, row := range map[string]struct {
		typename   string
		rule       error
		handler    error
		unknownFor time.Duration // 0 means the default
		retried    bool          // or archived
	}{
		"a type that the mux lacks":      {typename: "newer", retried: true},
		"a rule":                         {typename: "job", rule: lacks, retried: true},
		"a rule, archived at the end":    {typename: "job", rule: fmt.Errorf("%w: %w", lacks, asynq.SkipRetry)},
		"a handler":                      {typename: "job", handler: lacks, retried: true},
		"a handler, archived at the end": {typename: "job", handler: fmt.Errorf("%w: %w", lacks, asynq.SkipRetry)},
		"a mux within the handler":       {typename: "job", handler: asynq.NotFound(t.Context(), asynq.NewTask("newer", nil)), retried: true},
		"a short time":                   {typename: "job", rule: lacks, unknownFor: time.Minute, retried: true},
	} {
		t.Run(name, func(t *testing.T) {
			var log proctest.Log
			s := settings{config: retrying(quick, time.Hour), limits: []throttle.Limit{each(time.Hour)}, options: []Option{WithUnknownFor(row.unknownFor)}, log: slog.New(slog.NewTextHandler(&log, nil))}
			s.rule = func(*asynq.Task) (Rule, error) { return needs("api"), row.rule }
			s.handle = returns(row.handler)
			virtual(t, s, func(t *testing.T, st *stack) {
				id := st.enqueue(asynq.NewTask(row.typename, nil, asynq.MaxRetry(3)))
				last := DefaultUnknownFor
				if row.unknownFor > 0 {
					last = row.unknownFor
				}
				time.Sleep(last - 4*time.Second)
				info := st.info(id)
				if info.State != asynq.TaskStateRetry || info.Retried != 0 {
					t.Errorf("the job is %s, retried %d times, before the time is over; want it put back", info.State, info.Retried)
				}
				for _, part := range []string{asynqdb.ProcessName(), "put back for another worker until"} {
					if !strings.Contains(info.LastErr, part) {
						t.Errorf("the job's error is %q, want %q in it", info.LastErr, part)
					}
				}
				if n := strings.Count(log.String(), "jobs wait for a worker that can run them"); n != 1 {
					t.Errorf("the warning was logged %d times, want once", n)
				}
				if strings.Contains(log.String(), "denied jobs had no record") {
					t.Errorf("the job counts as denied, and it waits in no lane: %s", &log)
				}
				if len(st.reported) > 0 {
					t.Errorf("the ErrorHandler got %v, want nothing for a job that is put back", st.reported)
				}
				st.takePermit("api") // no attempt has kept it
				time.Sleep(10 * time.Second)
				if row.handler != nil { // it waits for the permit, and a worker may be able to run it by then
					return
				}
				info, state := st.info(id), asynq.TaskStateArchived
				if row.retried {
					state = asynq.TaskStateRetry
				}
				if info.State != state || info.Retried != 1 && row.retried || !strings.Contains(info.LastErr, "no other worker could run the job") {
					t.Errorf("after the time the job is %s, retried %d times: %s; want it %s", info.State, info.Retried, info.LastErr, state)
				}
				if len(st.reported) != 1 {
					t.Errorf("the ErrorHandler got %v, want one error", st.reported)
				}
			})
		})
	}
}

// In a deploy, an old worker that cannot run the new jobs spoils none. The jobs wait for permits
// meanwhile, and the old worker also takes jobs that have theirs.
func TestUnable_RollingDeploy(t *testing.T) {
	const jobs = 40
	for name, config := range map[string]asynq.Config{"many slots": {Concurrency: 20}, "one slot": oneWorker} {
		t.Run(name, func(t *testing.T) {
			newer := settings{config: config, limits: onePerSecond, rule: always(needs("a"))}
			older := settings{config: asynq.Config{Concurrency: 20}, limits: onePerSecond}
			older.rule = func(*asynq.Task) (Rule, error) { return Rule{}, errors.Join(ErrUnable, asynq.SkipRetry) }
			virtual(t, older, func(t *testing.T, old *stack) {
				st := old.beside(newer)
				st.enqueueN(jobs, "a")
				time.Sleep(90 * time.Second) // the old worker may win for half a minute
				if begun := len(st.order()); begun < 8 {
					t.Errorf("%d jobs ran in 90 s, want them to run meanwhile", begun)
				}
				time.Sleep(2 * time.Minute)
				st.wantOnceEach(jobs)
				old.wantRuns(0)
				if len(old.reported)+len(st.reported) > 0 {
					t.Errorf("failures: %v, %v", old.reported, st.reported)
				}
			})
		})
	}
}

// A worker that can run the job ends the count, even if the job then fails or is denied.
func TestUnable_CountsAgain(t *testing.T) {
	unable := false
	s := settings{config: retrying(quick, time.Second), handle: returns(errors.New("failed"))}
	s.rule = func(*asynq.Task) (Rule, error) {
		if unable {
			return Rule{}, ErrUnable
		}
		return Rule{}, nil
	}
	virtual(t, s, func(t *testing.T, st *stack) {
		unable = true
		id := st.enqueue(asynq.NewTask("job", nil, asynq.MaxRetry(100)))
		time.Sleep(9 * time.Minute)
		unable = false
		time.Sleep(20 * time.Second)
		unable = true
		time.Sleep(5 * time.Second)
		before := st.info(id).Retried
		time.Sleep(9 * time.Minute)
		if info := st.info(id); before == 0 || info.Retried != before {
			t.Errorf("the job failed %d times, and later %d times; want the first not to be 0, and no failure of a worker that cannot run it", before, info.Retried)
		}
	})
}

// A header that a handler has copied from another job does not count.
func TestUnable_CopiedHeader(t *testing.T) {
	old := time.Now().Add(-time.Hour)
	a := &attempt{Job: asynqdb.Job{JobID: job{Queue: "default", ID: "other"}}}
	msg := a.withUnableSince(nil, old)
	m, err := asynqdb.ParseMessage(msg)
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]int64{"other": old.UnixMicro(), "mine": (time.Time{}).UnixMicro()} {
		b := &attempt{Job: asynqdb.Job{JobID: job{Queue: "default", ID: id}, Msg: msg}, task: m.Task}
		if got := b.readUnableSince(); got.UnixMicro() != want {
			t.Errorf("job %s: %s, want %d", id, got, want)
		}
		cleared, err := asynqdb.ParseMessage(b.Msg)
		if err != nil || cleared.Task.Headers()[unableSinceHeader] != "" {
			t.Errorf("job %s: the header is still there: %v", id, err)
		}
	}
}

// A negative time is an error.
func TestWithUnknownFor_Negative(t *testing.T) {
	_, err := NewServer(nil, Rules{RuleFor: noNeeds}, asynq.Config{}, WithUnknownFor(-time.Second))
	if err == nil || !strings.Contains(err.Error(), "unknown for -1s: want some time, or zero for 10m0s") {
		t.Error(err)
	}
}
