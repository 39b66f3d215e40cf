package scheduler

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// handed counts the jobs that asynq gets to see.
type handed struct {
	admitter
	jobs int
}

func (h *handed) acquireAll(ctx context.Context, l batch) []*attempt {
	jobs := h.admitter.acquireAll(ctx, l)
	h.jobs += len(jobs)
	return jobs
}

// Of jobs that are taken together those that must wait go back before a worker meets them,
// but for those that were taken when nobody had been denied yet. All get their permits in the
// order in which they came, whatever they cost.
func TestAcquire_DeniedJobsMeetNoWorker(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	var admitted []string
	virtual(t, settings{
		asked: func(job waitdb.Job, _ []throttle.Need, d waitdb.Decision) {
			if d.OK() {
				admitted = append(admitted, job.ID)
			}
		},
		config: asynq.Config{Concurrency: 10}, limits: []throttle.Limit{perMinute(600, 3)},
		rule: func(task *asynq.Task) (Rule, error) {
			return Rule{Needs: []throttle.Need{{Limit: "api", Cost: len(task.Payload())}}}, nil
		},
	}, func(t *testing.T, st *stack) {
		st.must(st.tasks.PauseQueue("default"))
		counts := &handed{admitter: st.server}
		st.server.redis.prefetcher.jobs = counts
		var want []string
		for i := range 200 {
			want = append(want, st.enqueue(asynq.NewTask("job", make([]byte, 1+i%3)), numbered("job", i)))
		}
		st.must(st.tasks.UnpauseQueue("default"))
		time.Sleep(2 * time.Minute)
		st.wantOnce(200)
		if !slices.Equal(admitted, want) {
			t.Errorf("order %v", admitted)
		}
		if counts.jobs > 200+10 {
			t.Errorf("asynq got %d jobs, want each of the 200 once, and the first 10 perhaps twice", counts.jobs)
		}
	})
}

// A rule that takes long holds up its own job only: others, of one taking, begin at once.
func TestAcquire_SlowRule(t *testing.T) {
	virtual(t, settings{
		config: asynq.Config{Concurrency: 10}, limits: []throttle.Limit{perMinute(6000, 100)},
		rule: func(task *asynq.Task) (Rule, error) {
			if string(task.Payload()) == "slow" {
				time.Sleep(time.Minute)
			}
			return Rule{Needs: []throttle.Need{{Limit: "api"}}}, nil
		},
	}, func(t *testing.T, st *stack) {
		st.must(st.tasks.PauseQueue("default"))
		for _, id := range []string{"slow", "a", "slow2", "b"} {
			st.enqueue(asynq.NewTask("job", []byte(strings.TrimSuffix(id, "2"))), asynq.TaskID(id))
		}
		st.must(st.tasks.UnpauseQueue("default"))
		began := time.Now()
		time.Sleep(5 * time.Minute)
		st.wantOnce(4)
		for _, r := range st.ran() {
			if late := r.at.Sub(began); strings.HasPrefix(r.id, "slow") != (late >= time.Minute) || late > time.Minute+2*time.Second || len(r.id) == 1 && late > 2*time.Second {
				t.Errorf("%s ran after %s", r.id, late)
			}
		}
	})
}

// A rule that panics fails its job as a handler's panic does, and no other job.
func TestAcquire_RulePanics(t *testing.T) {
	virtual(t, settings{
		config: asynq.Config{Concurrency: 10}, limits: []throttle.Limit{perMinute(6000, 100)},
		rule: func(task *asynq.Task) (Rule, error) {
			switch string(task.Payload()) {
			case "panics":
				panic("no rule for it")
			case "exits":
				runtime.Goexit()
			}
			return Rule{Needs: []throttle.Need{{Limit: "api"}}}, nil
		},
	}, func(t *testing.T, st *stack) {
		for _, id := range []string{"a", "panics", "exits", "b"} {
			st.enqueue(asynq.NewTask("job", []byte(id)), asynq.TaskID(id), asynq.MaxRetry(0))
		}
		time.Sleep(time.Minute)
		st.wantOnce(2)
		if info := st.info("panics"); info == nil || info.State != asynq.TaskStateArchived || !strings.Contains(info.LastErr, "no rule for it") {
			t.Errorf("job: %+v, want it archived with its panic", info)
		}
		if info := st.info("exits"); info == nil || info.State != asynq.TaskStateArchived || !strings.Contains(info.LastErr, "For did not return") {
			t.Errorf("job: %+v, want it archived without a rule", info)
		}
	})
}

// Permits of jobs that do not begin at once are not used later: leases go back, and a job
// that begins late asks anew.
func TestStalePermits_NotUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Mini(t)
		slots := throttle.Limit{Name: "slots", Kind: throttle.Concurrency, Capacity: 100, Lease: time.Hour}
		gate := make(chan struct{})
		var freed atomic.Int64
		st := start(t, rdb, settings{
			config: asynq.Config{Concurrency: 1}, limits: []throttle.Limit{slots}, freed: func(string) { freed.Add(1) },
			handle: func(context.Context, *asynq.Task) error { <-gate; return nil },
		})
		st.must(st.tasks.PauseQueue("default"))
		addMany(t, rdb, 11)
		st.server.redis.prefetcher.believe(100)
		st.must(st.tasks.UnpauseQueue("default"))
		time.Sleep(3*time.Second + 50*time.Millisecond)
		peek := func() int {
			d, err := st.limiter.AllowN(t.Context(), "slots", "", 0)
			st.must(err)
			return 100 - d.Remaining
		}
		st.server.redis.prefetcher.believe(1)
		time.Sleep(2 * time.Second)
		if held := peek(); held != 1 || freed.Load() != 10 {
			t.Errorf("%d slots are held and %d were freed by what did not begin, want 1 and 10", held, freed.Load())
		}
		close(gate)
		time.Sleep(time.Minute)
		st.wantOnce(11)
		if held := peek(); held != 0 {
			t.Errorf("%d slots are held by nobody", held)
		}
	})
}

// A job that begins long after its permits were taken, as when its process was stopped, asks
// anew.
func TestStalePermits_RequestedAgain(t *testing.T) {
	virtual(t, settings{config: asynq.Config{Concurrency: 1}, limits: []throttle.Limit{oneSlot}}, func(t *testing.T, st *stack) {
		id := st.enqueue(asynq.NewTask("job", nil))
		time.Sleep(time.Second)
		st.wantOnce(1)
		q := &attempt{scope: st.server.scopes[0], job: job{Queue: "default", ID: id}, task: asynq.NewTask("job", nil)}
		st.server.scopes[0].request(q)
		<-q.done
		holder := q.decision.Holder
		time.Sleep(freshTime + time.Millisecond)
		ran := 0
		err := st.server.try(t.Context(), q, q.task, asynq.HandlerFunc(func(_ context.Context, _ *asynq.Task) error {
			if d := q.decision; !d.OK() || d.Age() > 0 || d.Holder == holder {
				t.Errorf("it runs under %+v, want permits that were taken just now, and the slot that it had before free", d)
			}
			ran++
			return nil
		}))
		if err != nil || ran != 1 {
			t.Errorf("it ran %d times, %v; want once", ran, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		never := &attempt{scope: st.server.scopes[0], done: make(chan struct{})}
		if err := never.awaitPermits(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("after asynq gave it up: %v", err)
		}
		close(never.done)
	})
}

// While the limiter hangs jobs that need none of its limits go on.
func TestAcquire_LimiterHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, queues := redistest.Mini(t)
		_, limiter := redistest.Mini(t)
		var toLimiter wire
		limiter.AddHook(redistest.Hook(toLimiter.around))
		st := start(t, queues, settings{
			config: asynq.Config{Concurrency: 20}, redis: limiter, limits: []throttle.Limit{perMinute(6000, 100)},
			rule: func(task *asynq.Task) (Rule, error) {
				if string(task.Payload()) == "free" {
					return Rule{}, nil
				}
				return Rule{Needs: []throttle.Need{{Limit: "api"}}}, nil
			},
		})
		time.Sleep(time.Minute)
		toLimiter.slow.Store(int64(20 * time.Second))
		began := time.Now()
		for i := range 10 {
			st.enqueue(asynq.NewTask("job", nil), asynq.TaskID(fmt.Sprint("needs", i)))
			st.enqueue(asynq.NewTask("job", []byte("free")), asynq.TaskID(fmt.Sprint("free", i)))
		}
		time.Sleep(time.Second)
		for _, r := range st.ran() {
			if !strings.HasPrefix(r.id, "free") || r.at.Sub(began) > 500*time.Millisecond {
				t.Errorf("%s ran after %s", r.id, r.at.Sub(began))
			}
		}
		if n := len(st.ran()); n != 10 {
			t.Errorf("%d jobs ran, want the 10 that need nothing", n)
		}
		toLimiter.slow.Store(0)
		time.Sleep(time.Minute)
		st.wantOnceEach(20)
	})
}
