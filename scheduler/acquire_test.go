package scheduler

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
	"github.com/headgate/headgate/throttle/throttletest"
)

// TestAcquire_DeniedJobsMeetNoWorker: of jobs that are fetched together, those that must wait go
// back before a worker meets them, except jobs that were fetched before the first denial. All get
// their permits in their order, whatever they cost.
func TestAcquire_DeniedJobsMeetNoWorker(t *testing.T) {
	slow(t)
	var admitted []string
	var toWorkers atomic.Int64 // BaseContext is called for each of these and for each rule
	virtual(t, settings{
		config: asynq.Config{Concurrency: 10, BaseContext: func() context.Context { toWorkers.Add(1); return context.Background() }},
		limits: []throttle.Limit{perMinute(600, 3)}, rule: func(task *asynq.Task) (Rule, error) { toWorkers.Add(-1); return ruleOfPayload(task) },
		asked: func(job waitdb.Job, _ []throttle.Need, d waitdb.Decision) {
			if d.OK() {
				admitted = append(admitted, job.ID)
			}
		},
	}, func(t *testing.T, st *stack) {
		st.must(st.tasks.PauseQueue("default"))
		var want []string
		for i := range 200 {
			want = append(want, st.enqueueN(1, []string{"api", "api:2", "api:3"}[i%3])...)
		}
		st.must(st.tasks.UnpauseQueue("default"))
		time.Sleep(time.Minute)
		st.wantOnce(200)
		if !slices.Equal(admitted, want) {
			t.Errorf("order %v", admitted)
		}
		if n := toWorkers.Load(); n < 200 || n > 200+10 {
			t.Errorf("asynq got %d jobs, want each of the 200 once, and the first 10 perhaps twice", n)
		}
	})
}

// TestAcquire_SlowRule: a rule that takes long holds up its own job only. Other jobs of the same
// batch start at once.
func TestAcquire_SlowRule(t *testing.T) {
	rule := func(task *asynq.Task) (Rule, error) {
		if string(task.Payload()) == "slow" {
			time.Sleep(time.Minute)
		}
		return needs("api"), nil
	}
	virtual(t, settings{config: asynq.Config{Concurrency: 10}, limits: []throttle.Limit{perMinute(6000, 100)}, rule: rule}, func(t *testing.T, st *stack) {
		st.must(st.tasks.PauseQueue("default"))
		for _, id := range []string{"slow", "a", "slow2", "b"} {
			st.enqueue(asynq.NewTask("job", []byte(strings.TrimSuffix(id, "2"))), asynq.TaskID(id))
		}
		st.must(st.tasks.UnpauseQueue("default"))
		began := time.Now()
		time.Sleep(2 * time.Minute)
		st.wantOnce(4)
		for _, r := range st.ran() {
			late := r.at.Sub(began)
			if strings.HasPrefix(r.id, "slow") {
				late -= time.Minute
			}
			if late < 0 || late > 2*time.Second {
				t.Errorf("%s ran after %s", r.id, r.at.Sub(began))
			}
		}
	})
}

// TestStalePermits_NotUsed: permits of jobs that do not start at once are not used later. Leases go
// back, and a job that starts late asks for new permits.
func TestStalePermits_NotUsed(t *testing.T) {
	slots := throttle.Limit{Name: "slots", Kind: throttle.Concurrency, Capacity: 100, Lease: time.Hour}
	gate := make(chan struct{})
	var freed atomic.Int64
	virtual(t, settings{
		config: asynq.Config{Concurrency: 1}, limits: []throttle.Limit{slots}, freed: func(string) { freed.Add(1) },
		handle: func(context.Context, *asynq.Task) error { <-gate; return nil },
	}, func(t *testing.T, st *stack) {
		gate = make(chan struct{})
		held := func() int {
			d, err := st.limiter.AllowN(t.Context(), "slots", "", 0)
			st.must(err)
			return 100 - d.Remaining
		}
		st.fetch(11)
		time.Sleep(3*time.Second + 50*time.Millisecond)
		st.server.prefetcher.setSlots(1)
		time.Sleep(2 * time.Second)
		if n := held(); n != 1 || freed.Load() < 10 {
			t.Errorf("%d slots are held and %d were freed by jobs that did not start, want 1 and 10", n, freed.Load())
		}
		close(gate)
		time.Sleep(time.Minute)
		st.wantOnce(11)
		if n := held(); n != 0 {
			t.Errorf("%d slots are held by no job", n)
		}
	})
}

// TestStalePermits_GivenBack: a slow process spends no permits of a quota. A job whose permits are
// too old gives them back and asks again. The permits of windows become too old sooner.
func TestStalePermits_GivenBack(t *testing.T) {
	for kind, age := range map[throttle.Kind]time.Duration{
		throttle.FixedWindow: waitdb.MaxWindowAge, throttle.SlidingLog: waitdb.MaxWindowAge, throttle.SlidingWindow: waitdb.MaxWindowAge,
		throttle.Funnel: maxPermitAge, throttle.TokenBucket: maxPermitAge,
	} {
		few := throttle.Limit{Name: "api", Kind: kind, Rate: throttle.PerDay(2)}
		if !isWindow(few) {
			few.Capacity = 2
		}
		for late, asks := range map[time.Duration]int{age: 1, age + time.Millisecond: 2} {
			virtual(t, settings{limits: []throttle.Limit{few}}, func(t *testing.T, st *stack) {
				a := st.request("job", queuePosition{})
				time.Sleep(late)
				st.must(st.server.try(t.Context(), a, a.task, asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil })))
				d, err := st.limiter.AllowN(t.Context(), "api", "", 0)
				st.must(err)
				if d.Remaining != 1 || len(st.limiter.allowed) != asks {
					t.Errorf("%s, %s late: %d permits are left and the job asked %d times, want 1 and %d", kind, late, d.Remaining, len(st.limiter.allowed), asks)
				}
			})
		}
	}
}

// TestStalePermits_Starts: processes stop for a moment between the permits and the start of jobs,
// again and again. No window of starts holds more than its kind promises, all jobs run, and almost
// no permit is lost.
func TestStalePermits_Starts(t *testing.T) {
	slow(t)
	for _, kind := range []throttle.Kind{throttle.FixedWindow, throttle.SlidingLog, throttle.SlidingWindow, throttle.TokenBucket, throttle.Funnel} {
		limit := throttle.Limit{Name: "api", Kind: kind, Rate: throttle.PerSecond(20)}
		if kind == throttle.TokenBucket {
			limit.Capacity = 5
		}
		for seed := range uint64(2) {
			random := rand.New(rand.NewPCG(seed, 1))
			late := 0
			stops := func(_ waitdb.Job, _ []throttle.Need, d waitdb.Decision) {
				if d.OK() && random.IntN(20) == 0 {
					stop := time.Duration(random.IntN(120)) * time.Millisecond
					if time.Sleep(stop); stop > waitdb.MaxWindowAge {
						late++
					}
				}
			}
			virtual(t, settings{config: asynq.Config{Concurrency: 30}, limits: []throttle.Limit{limit}, asked: stops}, func(t *testing.T, st *stack) {
				began, other := time.Now(), st.beside(settings{config: asynq.Config{Concurrency: 30}, limits: []throttle.Limit{limit}, asked: stops})
				st.enqueueN(400, "")
				time.Sleep(time.Minute)
				var starts []throttletest.Admission
				last := time.Duration(0)
				for _, r := range append(st.ran(), other.ran()...) {
					starts = append(starts, throttletest.Admission{At: r.at.UnixMicro(), Cost: 1})
					last = max(last, r.at.Sub(began))
				}
				if err := throttletest.CheckStarts(limit, starts, latestStart(isWindow(limit), st.server, other.server)); err != nil {
					t.Errorf("seed %d: %v", seed, err)
				}
				if len(starts) != 400 || late == 0 || last > 25*time.Second {
					t.Errorf("%s, seed %d: %d jobs ran, the last after %s, want 400 in about 20 s; %d were late", kind, seed, len(starts), last, late)
				}
			})
		}
	}
}

// TestStalePermits_SlowMachine: no job of a window can start in time on a machine that takes 70 ms
// for it. Its jobs run nevertheless, no later than the age that is allowed there, and the log says so
// once. A minute after the last late job, starts must be as young as elsewhere again.
func TestStalePermits_SlowMachine(t *testing.T) {
	limit := throttle.Limit{Name: "api", Kind: throttle.SlidingLog, Rate: throttle.PerSecond(20)}
	var log journal
	isSlow := true
	slowly := func(_ waitdb.Job, _ []throttle.Need, d waitdb.Decision) {
		if d.OK() && isSlow {
			time.Sleep(70 * time.Millisecond)
		}
	}
	virtual(t, settings{config: oneWorker, limits: []throttle.Limit{limit}, asked: slowly, log: log.logger()}, func(t *testing.T, st *stack) {
		age := func() time.Duration { return max(waitdb.MaxWindowAge, st.server.permitAge.raised) }
		st.enqueueN(100, "")
		time.Sleep(30 * time.Second)
		st.wantOnceEach(100)
		if n := log.times("windows"); n != 1 || age() != 80*time.Millisecond {
			t.Errorf("logged %d times, want once; starts are allowed after %s, want 80ms\n%s", n, age(), &log)
		}
		isSlow = false
		time.Sleep(slowTime)
		st.enqueueN(1, "")
		time.Sleep(time.Second)
		st.enqueueN(1, "")
		time.Sleep(time.Second)
		if age() != waitdb.MaxWindowAge {
			t.Errorf("a minute later starts are allowed after %s, want %s", age(), waitdb.MaxWindowAge)
		}
	})
}

// request requests permits for a job that asynq does not have, and waits for the result.
func (st *stack) request(id string, position queuePosition) *attempt {
	a := &attempt{scope: st.server.scopes[0], Job: asynqdb.Job{JobID: job{Queue: "default", ID: id}}, task: asynq.NewTask("job", nil), position: position}
	a.scope.requestPermits(a)
	<-a.done
	return a
}

// TestStalePermits_KeepPosition: a job that was allowed and starts too late for its permits asks
// again. It runs before all jobs that came after it, except those that were granted meanwhile.
func TestStalePermits_KeepPosition(t *testing.T) {
	var waited time.Duration
	stopped := false
	virtual(t, settings{config: quick, limits: []throttle.Limit{funnel("api", 1, 1)}, asked: func(job waitdb.Job, _ []throttle.Need, d waitdb.Decision) {
		if d.OK() && job.ID == "job-0010" && !stopped {
			stopped = true
			time.Sleep(5 * time.Second)
		}
	}, handle: func(ctx context.Context, _ *asynq.Task) error {
		if id, _ := asynq.GetTaskID(ctx); id == "job-0010" {
			d, _ := GetDecision(ctx)
			waited = d.Waited
		}
		return nil
	}}, func(t *testing.T, st *stack) {
		want := st.enqueueN(40, "")
		time.Sleep(time.Minute)
		want[10], want[11] = want[11], want[10] // which was granted when the one before it was
		st.wantOrder(want)
		if !stopped || waited < 15*time.Second || waited > 17*time.Second {
			t.Errorf("the decision says that the job waited %s, want about 16 s: 10 for its turn, 5 in its process, and 1 for another turn", waited)
		}
		st.wantClean()
	})
}

// TestGiveBack_KeepsPosition: a server gives jobs back that were allowed and that it cannot start
// within a second. They run before all jobs that wait.
func TestGiveBack_KeepsPosition(t *testing.T) {
	limit := throttle.Limit{Name: "api", Kind: throttle.FixedWindow, Rate: throttle.Rate{N: 2, Per: 4 * time.Second}}
	virtual(t, settings{config: oneWorker, limits: []throttle.Limit{limit}, handle: takes(1500 * time.Millisecond)}, func(t *testing.T, st *stack) {
		st.server.prefetcher.setSlots(2) // it fetches one more than it can start
		want := st.enqueueN(12, "")
		time.Sleep(time.Minute)
		st.wantOrder(want)
		if len(st.limiter.allowed) == len(want) {
			t.Error("no job was allowed twice: the test shows nothing")
		}
		st.wantClean()
	})
}

// TestStalePermits_NotStartedKeepsPosition: if asynq gives a job up that was allowed and has not
// started, the job keeps its position, also if retries wait behind all others.
func TestStalePermits_NotStartedKeepsPosition(t *testing.T) {
	for _, position := range []RetryPosition{PositionKeep, PositionBack} {
		rule := needs("api")
		rule.RetryPosition = position
		virtual(t, settings{config: quick, limits: []throttle.Limit{funnel("api", 1, 1)}, rule: always(rule)}, func(t *testing.T, st *stack) {
			a := st.request("job", queuePosition{})
			ctx, giveUp := context.WithCancel(t.Context())
			giveUp()
			err := st.server.try(ctx, a, a.task, asynq.HandlerFunc(st.run))
			back, ok := errors.AsType[*putBackError](err)
			if !ok || !back.denied || !back.position.notStarted || !back.position.queuedAt.Equal(a.decision.At) {
				t.Fatalf("%s: %+v, want it put back to its position", position, err)
			}
			st.enqueueN(5, "")
			time.Sleep(500 * time.Millisecond) // they wait
			again := st.request("job", back.position)
			waiting := st.limits.ZRange(t.Context(), scopePrefix+"lane:default\napi|", 0, -1).Val()
			if again.decision.Outcome != throttle.Denied || slices.Index(waiting, "job") != 0 {
				t.Errorf("%s: %v, %q wait; want it before the others", position, again.decision, waiting)
			}
		})
	}
}
