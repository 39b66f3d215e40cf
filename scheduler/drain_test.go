package scheduler

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/stats"
	"github.com/headgate/headgate/throttle"
)

// drain drains the process of a stack, or ends that.
func (st *stack) drain(drained bool) {
	st.t.Helper()
	if !drained {
		st.must(stats.EndDrain(st.t.Context(), st.limiter.DB, st.process()))
		return
	}
	_, err := stats.Drain(st.t.Context(), st.limiter.DB, st.process())
	st.must(err)
}

// process returns what status shows of the process, whose config has a name of its own.
func (st *stack) process() stats.Process {
	st.t.Helper()
	st.server.scopes[0].stats.SetConfig(fmt.Sprintf("%p", st))
	st.server.scopes[0].stats.ReportSoon()
	time.Sleep(1100 * time.Millisecond)
	rdb, _, _ := st.limiter.Internals().Scope()
	all, err := stats.ReadProcesses(st.t.Context(), rdb, "default")
	st.must(err)
	for _, p := range all {
		if p.Config == fmt.Sprintf("%p", st) {
			return p
		}
	}
	st.t.Fatalf("the process is not among %+v", all)
	return stats.Process{}
}

// TestDrain: a drained worker, which leads, finishes its jobs and takes no more. It still grants permits to the jobs of the other worker. When it is resumed, it takes jobs.
func TestDrain(t *testing.T) {
	limit := throttle.Limit{Name: "api", Kind: throttle.Funnel, Rate: throttle.PerSecond(10), Capacity: 1}
	var here, there, running atomic.Int64
	release := make(chan struct{})
	s := settings{config: quick, limits: []throttle.Limit{limit}}
	s.rule = func(task *asynq.Task) (Rule, error) {
		if string(task.Payload()) == "long" { // the jobs that run long
			return Rule{}, nil
		}
		return Rule{Needs: []throttle.Need{{Limit: limit.Name}}}, nil
	}
	s.handle = func(ctx context.Context, task *asynq.Task) error {
		if here.Add(1); string(task.Payload()) == "long" {
			running.Add(1)
			<-release
		}
		return nil
	}
	virtual(t, s, func(t *testing.T, st *stack) {
		release = make(chan struct{}) // it belongs to the bubble
		for _, id := range []string{"a", "b", "c"} {
			st.enqueue(asynq.NewTask("job", []byte("long")), asynq.TaskID(id))
		}
		time.Sleep(3 * time.Second)
		if running.Load() != 3 {
			t.Fatalf("%d jobs run, want 3", running.Load())
		}
		st.drain(true)
		time.Sleep(3 * time.Second)
		if p := st.process(); p.State != stats.StateDraining || p.Running != 3 {
			t.Errorf("the worker is %q with %d jobs, want draining with 3", p.State, p.Running)
		}
		st.enqueueN(50, "")
		time.Sleep(5 * time.Second)
		if here.Load() != 3 {
			t.Errorf("the drained worker has begun %d more jobs", here.Load()-3)
		}
		s.handle = func(context.Context, *asynq.Task) error { there.Add(1); return nil }
		other := st.beside(s)
		time.Sleep(10 * time.Second)
		if there.Load() != 50 || here.Load() != 3 {
			t.Errorf("the other worker has run %d jobs within 10 s, and the drained one %d, want 50 and 0", there.Load(), here.Load()-3)
		}
		if !st.server.scopes[0].stats.IsLeader.Load() {
			t.Error("the drained worker has stepped down")
		}
		if p := other.process(); p.State != stats.StateRunning {
			t.Errorf("the other worker is %q", p.State)
		}
		close(release)
		time.Sleep(3 * time.Second)
		if p := st.process(); p.State != stats.StateDrained || p.Running != 0 {
			t.Errorf("the worker is %q with %d jobs, want drained with none", p.State, p.Running)
		}
		other.server.Shutdown()
		st.enqueueN(1, "")
		st.drain(false)
		time.Sleep(4 * time.Second)
		if p := st.process(); here.Load() != 4 || p.State != stats.StateRunning {
			t.Errorf("after the drain the worker has begun %d jobs and is %q, want 4", here.Load(), p.State)
		}
	})
}

// TestDrain_LostKey: if Redis loses the order, the worker takes jobs again with its next sign of life. If
// only the notification is lost, the order arrives with it.
func TestDrain_LostKey(t *testing.T) {
	virtual(t, settings{config: quick, limits: onePerSecond, rule: always(Rule{})}, func(t *testing.T, st *stack) {
		time.Sleep(time.Second)
		st.must(st.limits.HSet(t.Context(), "hg:{default}:drained", st.process().ID, "order").Err())
		time.Sleep(12 * time.Second)
		if p := st.process(); p.State != stats.StateDrained {
			t.Errorf("the worker is %q, want drained", p.State)
		}
		if ttl := st.limits.PTTL(t.Context(), "hg:{default}:drained").Val(); ttl < time.Minute {
			t.Errorf("the order is kept for %s", ttl)
		}
		st.must(st.limits.Del(t.Context(), "hg:{default}:drained").Err())
		time.Sleep(4 * time.Second)
		if p := st.process(); p.State != stats.StateRunning {
			t.Errorf("the worker is %q, want running", p.State)
		}
		st.drain(true)
		time.Sleep(3 * time.Second)
		st.server.Shutdown()
		if n := st.limits.Exists(t.Context(), "hg:{default}:drained").Val(); n != 0 {
			t.Error("the order outlives its process")
		}
	})
}
