package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/throttle"
)

// TestDenied_ComeBackOnce: jobs run in their order, none is denied twice, and none fails.
func TestDenied_ComeBackOnce(t *testing.T) {
	slow(t)
	log := perMinute(6, 3)
	log.Kind, log.Capacity = throttle.SlidingLog, 0 // six are granted at once
	for _, limit := range []throttle.Limit{perMinute(6, 3), log} {
		virtual(t, settings{config: asynq.Config{Concurrency: 1, TaskCheckInterval: 10 * time.Second}, limits: []throttle.Limit{limit}}, func(_ *testing.T, st *stack) {
			want := st.enqueueN(60, "")
			time.Sleep(12 * time.Minute)
			st.wantOnce(60)
			st.wantOrder(want)
			st.wantClean()
			st.wantNothingLeft()
			st.wantNotReported()
		})
	}
}

// TestPutBack_OutlastsWait: the put-back of a job that is granted in time ends later, so that it
// need not be extended.
func TestPutBack_OutlastsWait(t *testing.T) {
	extended := &tap{is: isScript("asynq/postpone")}
	virtual(t, settings{config: quick, limits: []throttle.Limit{funnel("api", 20, 10)}, hooks: []redis.Hook{extended.hook()}}, func(t *testing.T, st *stack) {
		st.enqueueN(200, "")
		time.Sleep(15 * time.Second)
		st.wantOnce(200)
		st.wantClean()
		if n := extended.n.Load(); n > 0 {
			t.Errorf("put-backs were extended in %d calls, want none", n)
		}
	})
}

// TestPutBack_FreePermits_KeptForOthers: while permits are free that are too few for the job whose
// turn it is, jobs that could do with them are expected to start at once. They are put back until it
// is their turn, and are not denied again.
func TestPutBack_FreePermits_KeptForOthers(t *testing.T) {
	log := throttle.Limit{Name: "api", Kind: throttle.SlidingLog, Rate: throttle.Rate{N: 5, Per: 5 * time.Minute}}
	window, bucket := log, log
	window.Kind, bucket.Kind, bucket.Capacity = throttle.SlidingWindow, throttle.TokenBucket, 5
	for _, limit := range []throttle.Limit{log, window, bucket} {
		virtual(t, settings{config: eager, limits: []throttle.Limit{limit, funnel("other", 100, 10)}, rule: ruleOfPayload}, func(_ *testing.T, st *stack) {
			st.enqueueN(1, "api:3")
			time.Sleep(3 * time.Second)
			st.enqueueN(1, "api:3") // waits for three permits, and two are free
			time.Sleep(20 * time.Second)
			st.enqueueN(2, "api:2 other:1")
			time.Sleep(20 * time.Second)
			st.enqueueN(1, "api:1")
			time.Sleep(20 * time.Minute)
			st.wantOnce(5)
			st.wantDenials(5, 0.8, 1)
		})
	}
}

// TestPutBack_GrantedMeanwhile: a job that is granted while its worker is still writing the
// put-back comes as soon as that is written, and not after its permits have gone to another job.
func TestPutBack_GrantedMeanwhile(t *testing.T) {
	writes := &tap{is: isScript("asynq/put_back"), takes: 35 * time.Millisecond}
	virtual(t, settings{config: eager, limits: []throttle.Limit{funnel("api", 50, 1)}, hooks: []redis.Hook{writes.hook()}}, func(_ *testing.T, st *stack) {
		time.Sleep(11 * time.Second) // the dispatcher leads, and sleeps
		began := time.Now()
		st.enqueueN(2, "")
		time.Sleep(10 * time.Second)
		st.wantOnce(2)
		st.wantLastBy(began, 2, 100*time.Millisecond)
		st.wantDenials(2, 0.5, 1)
	})
}

// TestPostpone_TurnsGoOn: if permits take longer than estimated, as when many lanes share a limit,
// put-backs must be extended. Turns go on meanwhile, however many put-backs there are.
func TestPostpone_TurnsGoOn(t *testing.T) {
	slow(t)
	extended := &tap{is: isScript("asynq/postpone"), takes: 100 * time.Millisecond}
	virtual(t, settings{
		config: asynq.Config{Concurrency: 10, TaskCheckInterval: 20 * time.Millisecond}, hooks: []redis.Hook{extended.hook()},
		limits: []throttle.Limit{funnel("all", 20, 2), funnel("host", 1, 1)}, rule: ruleOfPayload,
	}, func(t *testing.T, st *stack) {
		const jobs = 400
		for i := range jobs {
			st.enqueueN(1, fmt.Sprint("all host/", i%200))
		}
		time.Sleep(time.Minute)
		st.wantOnce(jobs)
		if calls := extended.n.Load(); calls < 5 {
			t.Fatalf("put-backs were extended in %d calls: too few to be in the way", calls)
		}
		for i, r := range st.ran()[1:] {
			if gap := r.at.Sub(st.ran()[i].at); gap > 250*time.Millisecond {
				t.Errorf("no job for %s before %s", gap, r.id)
			}
		}
	})
}

// TestRetryAfter_NoTime: a job that is put back for no time comes at once, not with asynq's next
// poll, and before jobs that have come since.
func TestRetryAfter_NoTime(t *testing.T) {
	runs := 0
	handle := func(context.Context, *asynq.Task) error {
		if runs++; runs <= 3 {
			return RetryAfter(0)
		}
		return nil
	}
	virtual(t, settings{config: asynq.Config{Concurrency: 1}, limits: []throttle.Limit{perMinute(60, 100)}, handle: handle}, func(t *testing.T, st *stack) {
		jobs := st.enqueueN(2, "")
		time.Sleep(10 * time.Second)
		st.wantOrder(append(slices.Repeat(jobs[:1], 4), jobs[1]))
		if ran := st.ran(); ran[3].at.Sub(ran[0].at) > 100*time.Millisecond {
			t.Errorf("4 runs within %s, want no wait between them", ran[3].at.Sub(ran[0].at))
		}
		st.wantClean()
	})
}

// TestIsPutBack: IsPutBack is true if the job is put back, also if an error wraps several others.
func TestIsPutBack(t *testing.T) {
	kinds := []error{
		errors.New("boom"), RetryAfter(time.Minute), PutBackAs(nil), RateLimited(time.Now().Add(time.Hour)), asynq.SkipRetry, asynq.RevokeTask,
	}
	for _, one := range kinds {
		for _, other := range kinds {
			err := fmt.Errorf("%w: %w", one, other)
			h := attempt{began: time.Now()} // without permits: no limiter is asked
			_, want := errors.AsType[*putBackError](h.afterRun(t.Context(), err))
			if got := IsPutBack(err); got != want {
				t.Errorf("%v: %v, want %v", err, got, want)
			}
		}
	}
}

// TestPlainAsynqJobs_NoRetries: jobs of a plain asynq producer, without a retry to spare, are jobs
// like any other: they keep their order, their ID and their Unique lock.
func TestPlainAsynqJobs_NoRetries(t *testing.T) {
	virtual(t, settings{config: quick, limits: []throttle.Limit{oneSlot}, handle: takes(time.Second)}, func(t *testing.T, st *stack) {
		var want []string
		began := time.Now()
		for i := range 20 {
			id := fmt.Sprintf("job-%02d", i)
			want = append(want, st.enqueue(asynq.NewTask("job", []byte(id)), asynq.TaskID(id), asynq.MaxRetry(0), asynq.Unique(2*time.Second), asynq.Retention(time.Hour)))
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(5 * time.Second) // longer than the locks last if they are not extended
		if _, err := st.client.Enqueue(asynq.NewTask("job", []byte("job-19")), asynq.Unique(time.Minute)); !errors.Is(err, asynq.ErrDuplicateTask) {
			t.Errorf("a second job-19 while the first waits: %v, want ErrDuplicateTask", err)
		}
		time.Sleep(time.Minute)
		st.wantClean()
		st.wantLastBy(began, 20, 21*time.Second)
		got := st.order()
		if slices.Sort(got[1:5]); !slices.Equal(got, want) { // four workers ask for the first slot at once
			t.Errorf("ran %v, want %v", got, want)
		}
		for _, id := range want {
			if info := st.wantJob(id, asynq.TaskStateCompleted, ""); info.MaxRetry != 0 || info.Retried != 0 {
				t.Errorf("%s: %+v, want it as it was enqueued", id, info)
			}
		}
		st.wantNotReported()
	})
}

// TestDeletedID_AgainAtOnce: a waiting or granted job is deleted, and its ID enqueued again at
// once: that is another job. It waits behind all others, and its MaxWait begins again.
func TestDeletedID_AgainAtOnce(t *testing.T) {
	rule := needs("api")
	rule.MaxWait = 30 * time.Second
	virtual(t, settings{config: quick, limits: []throttle.Limit{funnel("api", 1, 1)}, rule: always(rule)}, func(t *testing.T, st *stack) {
		again := func(id string) {
			st.must(st.tasks.DeleteTask("default", id))
			st.enqueue(asynq.NewTask("job", nil), asynq.TaskID(id))
		}
		jobs := st.enqueueN(25, "")
		time.Sleep(10 * time.Second)
		again(jobs[12])
		time.Sleep(time.Minute)
		st.wantOnceEach(25)
		if last := st.order()[24]; last != jobs[12] {
			t.Errorf("%s ran last, want %s", last, jobs[12])
		}
		st.must(st.limiter.Pause(t.Context(), "api"))
		st.enqueue(needing(""), asynq.TaskID("late"))
		time.Sleep(25 * time.Second)
		again("late")
		time.Sleep(25 * time.Second) // by the first one's record its wait would be over
		st.must(st.limiter.Resume(t.Context(), "api"))
		time.Sleep(time.Minute)
		st.wantOnceEach(26)
		st.wantJob("late", gone, "")
		st.wantClean()
	})
}

// TestShutdown_InterruptedJobsKeepPosition: a job that a stopping server interrupts waits before
// all that came later.
func TestShutdown_InterruptedJobsKeepPosition(t *testing.T) {
	s := settings{
		config: asynq.Config{Concurrency: 5, ShutdownTimeout: time.Second},
		limits: []throttle.Limit{funnel("api", 1, 1)},
		handle: func(ctx context.Context, _ *asynq.Task) error {
			if id, _ := asynq.GetTaskID(ctx); id == "job-0003" {
				<-ctx.Done()
			}
			return ctx.Err()
		},
	}
	virtual(t, s, func(t *testing.T, st *stack) {
		st.enqueueN(30, "")
		time.Sleep(8 * time.Second)
		st.server.Shutdown()
		s.handle = nil
		next := st.beside(s)
		time.Sleep(4 * time.Second)
		if ids := next.order(); !slices.Contains(ids[:min(2, len(ids))], "job-0003") {
			t.Errorf("the next server ran %v, want job-0003 among the first two", ids)
		}
		if info := st.info("job-0003"); info != nil && info.Retried > 0 {
			t.Errorf("job-0003 was retried %d times", info.Retried)
		}
	})
}

// TestRetryAfter: a job that its handler puts back spends no attempt, whichever attempt it is, and
// keeps its Unique lock.
func TestRetryAfter(t *testing.T) {
	for _, maxRetry := range []int{0, 3} {
		runs := 0
		handle := func(context.Context, *asynq.Task) error {
			if runs++; runs <= 3 {
				return fmt.Errorf("no room at the inn: %w", RetryAfter(90*time.Second))
			}
			return nil
		}
		virtual(t, settings{limits: []throttle.Limit{perMinute(60, 10)}, handle: handle}, func(t *testing.T, st *stack) {
			began := time.Now()
			id := st.enqueue(asynq.NewTask("job", nil, asynq.MaxRetry(maxRetry), asynq.Retention(time.Hour), asynq.Unique(30*time.Second)))
			time.Sleep(time.Minute)
			if info := st.wantJob(id, asynq.TaskStateRetry, "no room at the inn: retry after 1 min 30 s"); info.Retried != 0 {
				t.Errorf("after its first run: %+v, want it put back", info)
			}
			if _, err := st.client.Enqueue(asynq.NewTask("job", nil), asynq.Unique(time.Second)); !errors.Is(err, asynq.ErrDuplicateTask) {
				t.Errorf("a second job while the first waits: %v, want ErrDuplicateTask", err)
			}
			time.Sleep(6 * time.Minute)
			if info := st.wantJob(id, asynq.TaskStateCompleted, ""); info.Retried != 0 {
				t.Errorf("in the end: %+v, want completed without a failure", info)
			}
			st.wantLastBy(began, 4, 6*time.Minute)
			if took := st.ran()[3].at.Sub(began); took < 3*90*time.Second {
				t.Errorf("4 runs within %s, want 90 s between two", took)
			}
			st.wantNotReported()
		})
	}
}

// TestPutBackAs: a job that goes on with another payload is the same job. It takes the permits of
// the new payload, and nothing else of it changes.
func TestPutBackAs(t *testing.T) {
	var asked, ran []string
	rule := func(task *asynq.Task) (Rule, error) {
		asked = append(asked, string(task.Payload()))
		return Rule{Needs: []throttle.Need{{Limit: "api", Key: string(task.Payload())}}}, nil
	}
	handle := func(_ context.Context, task *asynq.Task) error {
		ran = append(ran, string(task.Payload()))
		if len(ran) == 1 {
			return fmt.Errorf("%w: it is at b now: %w", asynq.SkipRetry, PutBackAs([]byte("b")))
		}
		return nil
	}
	// One permit an hour for each key: under a's the second run would wait.
	virtual(t, settings{limits: []throttle.Limit{each(time.Hour)}, rule: rule, handle: handle}, func(t *testing.T, st *stack) {
		id := st.enqueue(asynq.NewTask("job", []byte("a"), asynq.MaxRetry(0), asynq.Retention(time.Hour), asynq.Timeout(time.Minute)))
		time.Sleep(2 * time.Minute)
		info := st.wantJob(id, asynq.TaskStateCompleted, "")
		if got := fmt.Sprintf("%v %v %s %d %d %s", asked, ran, info.Payload, info.Retried, info.MaxRetry, info.Timeout); got != "[a b] [a b] b 0 0 1m0s" {
			t.Errorf("asked, ran, payload, options: %s", got)
		}
		st.wantNotReported()
	})
}

// TestInFlight_FreeSlots: however jobs end, their slots are free then, and nothing is kept of them.
func TestInFlight_FreeSlots(t *testing.T) {
	base, end := context.WithCancel(context.Background())
	config := retrying(asynq.Config{Concurrency: 6, BaseContext: func() context.Context { return base }}, time.Second)
	handle := func(ctx context.Context, task *asynq.Task) error {
		switch string(task.Payload()) {
		case "fails":
			return errors.New("failed")
		case "panics":
			panic("panic")
		case "hangs":
			<-ctx.Done()
			time.Sleep(time.Minute)
		case "later":
			if n, _ := asynq.GetRetryCount(ctx); n == 0 {
				return RetryAfter(time.Second)
			}
		}
		return nil
	}
	rule := always(needs("api"))
	virtual(t, settings{config: config, limits: []throttle.Limit{perMinute(600, 1)}, rule: rule, handle: handle}, func(t *testing.T, st *stack) {
		for range 5 {
			for _, kind := range []string{"done", "fails", "panics", "hangs", "later"} {
				st.enqueue(asynq.NewTask("job", []byte(kind)), asynq.MaxRetry(1), asynq.Timeout(3*time.Second))
			}
		}
		most := 0
		for range 600 {
			time.Sleep(100 * time.Millisecond)
			most = max(most, st.server.inFlight.occupiedSlots())
		}
		if n := st.server.inFlight.occupiedSlots(); most > 6 || n != 0 {
			t.Errorf("%d slots of 6 were occupied at once, and %d when all jobs have ended", most, n)
		}
		end() // now no job reaches a handler
		st.enqueueN(5, "", asynq.MaxRetry(1))
		time.Sleep(30 * time.Second)
		if n := st.server.inFlight.occupiedSlots(); n != 0 {
			t.Errorf("%d slots are occupied by jobs that reached no handler", n)
		}
		if queue, err := st.tasks.GetQueueInfo("default"); err != nil || queue.Active != 0 {
			t.Errorf("queue: %+v, %v; want nothing active", queue, err)
		}
		for j := range st.server.inFlight.attempts {
			t.Errorf("the attempt of %v is kept", j)
		}
	})
}
