package scheduler

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// Was: {a,b} never ran beside {a} and {b}.
func overlappingLimitsShare(t *testing.T) {
	for _, rates := range []struct {
		a, b    int
		seconds int
	}{{50, 50, 6}, {10, 3, 20}, {20, 1, 30}} {
		t.Run(fmt.Sprintf("a %d per s, b %d per s", rates.a, rates.b), func(t *testing.T) {
			limits := []throttle.Limit{funnel("a", rates.a, 10), funnel("b", rates.b, 10)}
			virtual(t, settings{config: quick, limits: limits, rule: ruleOfPayload}, func(t *testing.T, st *stack) {
				for i := range rates.seconds*rates.a + 10 {
					st.enqueue(needing("a"), numbered("a", i))
					if i < rates.seconds*rates.b+10 {
						st.enqueue(needing("b"), numbered("b", i))
						st.enqueue(needing("a b"), numbered("ab", i))
					}
				}
				turns := map[string]int{}
				began := time.Now()
				time.Sleep(time.Duration(rates.seconds) * time.Second)
				for _, r := range st.ran() {
					if r.at.Sub(began) > time.Second { // by then all wait
						turns[strings.Split(r.id, "-")[0]]++
					}
				}
				t.Logf("turns: %v", turns)
				of := map[string]int{"a": rates.a, "b": rates.b, "ab": min(rates.a, rates.b)}
				for lane, rate := range of {
					if want := 0.8 * float64((rates.seconds-1)*rate) / 2; float64(turns[lane]) < want {
						t.Errorf("lane %s had %d turns, want %.0f: 0.8 of an equal share", lane, turns[lane], want)
					}
				}
			})
		})
	}
}

// Was: 600 jobs of new hosts passed it in a minute; the alphabet decided.
func costAgainstNewHosts(t *testing.T) {
	for _, shared := range []string{"shared", "all"} {
		t.Run(shared, func(t *testing.T) {
			virtualAndReal(t, func(t *testing.T, rdb redis.UniversalClient) {
				ran, handle := announcing(100)
				limits := []throttle.Limit{funnel(shared, 10, 5), funnel("host", 1, 1)}
				config := asynq.Config{Concurrency: 1, TaskCheckInterval: 20 * time.Millisecond}
				st := start(t, rdb, settings{config: config, limits: limits, rule: ruleOfPayload, handle: handle})
				if d, err := st.limiter.AllowN(t.Context(), shared, "", 5); !d.OK() {
					t.Fatal(d, err)
				}
				st.enqueue(needing(shared+":5"), asynq.TaskID("big"))
				for i := range 60 {
					st.enqueue(needing(fmt.Sprintf("%s host/%d", shared, i)), numbered("host", i))
				}
				before := 0
				for <-ran != "big" {
					before++
				}
				if before > 3 {
					t.Errorf("%d newcomers ran before the job of cost 5, want it 4th or sooner", before)
				}
			})
		})
	}
}

// Was: 4.68 denials a job, most 24.
func tenants(t *testing.T) {
	limits := []throttle.Limit{funnel("api", 10, 10), funnel("tenant", 10, 10)}
	virtual(t, settings{config: quick, limits: limits, rule: ruleOfPayload}, func(_ *testing.T, st *stack) {
		began := time.Now()
		for i := range 1000 {
			st.enqueue(needing("api tenant/big"), numbered("big", i))
			if i%10 == 0 {
				tenant := i / 10 % 20
				st.enqueue(needing(fmt.Sprintf("api tenant/%d", tenant)), numbered("small", i))
			}
		}
		time.Sleep(115 * time.Second)
		st.wantOnceEach(1100)
		st.wantDenials(1100, 1.02, 2)
		st.wantLastBy(began, 1100, 112*time.Second)
		st.wantClean()
	})
}

// Was: 3.44 denials a job, most 16.
func busyWorkers(t *testing.T) {
	handle := func(_ context.Context, task *asynq.Task) error {
		if len(task.Payload()) == 0 {
			time.Sleep(3 * time.Second)
		}
		return nil
	}
	limits := []throttle.Limit{funnel("api", 5, 5)}
	virtual(t, settings{config: quick, limits: limits, rule: ruleOfPayload, handle: handle}, func(_ *testing.T, st *stack) {
		began := time.Now()
		for i := range 300 {
			st.enqueue(needing("api"), numbered("job", i))
		}
		for range 7 {
			time.Sleep(8 * time.Second)
			for range 4 {
				st.enqueue(needing(""))
			}
		}
		time.Sleep(60 * time.Second)
		st.wantOnceEach(300 + 28)
		st.wantDenials(300, 1.1, 3)
		st.wantLastBy(began, 300+28, 90*time.Second)
		st.wantClean()
	})
}

// Was: denied up to 5 times: small jobs were called ahead of permits that came later,
// as a big one took all that there are at once, and took them late.
func smallBesideBig(t *testing.T) {
	config := quick
	config.Queues = map[string]int{"default": 1, "other": 1}
	limits := []throttle.Limit{funnel("api", 44, 3)}
	virtual(t, settings{config: config, limits: limits, rule: ruleOfPayload}, func(_ *testing.T, st *stack) {
		for range 100 {
			st.enqueue(needing("api:3"))
			st.enqueue(needing("api:1"), asynq.Queue("other"))
		}
		time.Sleep(30 * time.Second)
		st.wantOnceEach(200)
		st.wantDenials(200, 1.02, 2)
	})
}

// Was: the other queue's 50 jobs took 118 s.
func onePausedQueue(t *testing.T) {
	config := quick
	config.Queues = map[string]int{"default": 1, "other": 1}
	virtual(t, settings{config: config, limits: []throttle.Limit{funnel("api", 50, 10)}}, func(_ *testing.T, st *stack) {
		for range 60 {
			st.enqueue(needing(""), asynq.Queue("other"))
		}
		time.Sleep(300 * time.Millisecond) // those that wait are denied
		st.must(st.tasks.PauseQueue("other"))
		time.Sleep(10 * time.Second)
		began, done := time.Now(), len(st.ran())
		for range 50 {
			st.enqueue(needing(""))
		}
		time.Sleep(10 * time.Second)
		st.wantLastBy(began, done+50, 1100*time.Millisecond)
		st.must(st.tasks.UnpauseQueue("other"))
		time.Sleep(10 * time.Second)
		st.wantOnceEach(110)
		st.wantClean()
	})
}

// Was: denied each hour.
func longJobs(t *testing.T) {
	limit := throttle.Limit{Name: "slot", Kind: throttle.Concurrency, Capacity: 1}
	handle := func(context.Context, *asynq.Task) error {
		time.Sleep(2 * time.Minute)
		return nil
	}
	config := asynq.Config{Concurrency: 4, TaskCheckInterval: time.Second, DelayedTaskCheckInterval: 20 * time.Second}
	virtual(t, settings{config: config, limits: []throttle.Limit{limit}, handle: handle, quiet: time.Minute}, func(_ *testing.T, st *stack) {
		for range 40 {
			st.enqueue(needing(""))
		}
		time.Sleep(85 * time.Minute)
		st.wantOnceEach(40)
		st.wantDenials(40, 1, 1)
		st.wantClean()
	})
}

// Was: they came after an hour, out of order, and the Unique lock was gone.
func plainJobs(t *testing.T) {
	limit := throttle.Limit{Name: "slot", Kind: throttle.Concurrency, Capacity: 1}
	handle := func(context.Context, *asynq.Task) error {
		time.Sleep(time.Second)
		return nil
	}
	config := asynq.Config{Concurrency: 1, TaskCheckInterval: 20 * time.Millisecond}
	virtual(t, settings{config: config, limits: []throttle.Limit{limit}, handle: handle}, func(t *testing.T, st *stack) {
		other := throttle.Need{Limit: "slot"}
		held, err := st.limiter.AllowAll(t.Context(), other)
		if !held.OK() {
			t.Fatal(held, err)
		}
		began := time.Now()
		var want, got []string
		for i := range 20 {
			retries := i % 2 * 3
			opts := []asynq.Option{asynq.MaxRetry(retries), asynq.Unique(time.Minute)}
			want = append(want, st.enqueue(asynq.NewTask("job", fmt.Append(nil, i)), append(opts, numbered("job", i))...))
		}
		time.Sleep(time.Second)
		if _, err := st.client.Enqueue(asynq.NewTask("job", []byte("0")), asynq.Unique(time.Minute)); err == nil {
			t.Error("a duplicate was enqueued beside a waiting job")
		}
		st.must(st.limiter.Free(t.Context(), held.Holder, other))
		time.Sleep(time.Minute)
		for _, r := range st.ran() {
			got = append(got, r.id)
		}
		if !slices.Equal(got, want) {
			t.Errorf("order %v, want %v", got, want)
		}
		st.wantLastBy(began, 20, 22*time.Second)
		st.wantClean()
	})
}

// Was: it ran after a minute.
func deletedIDAgain(t *testing.T) {
	one := idle
	one.Concurrency = 1 // they ask in order
	virtual(t, settings{config: one, limits: []throttle.Limit{perMinute(1, 1)}}, func(t *testing.T, st *stack) {
		for i := range 4 {
			st.enqueue(needing(""), numbered("job", i))
		}
		time.Sleep(20 * time.Second)
		st.must(st.tasks.DeleteTask("default", "job-0001"))
		again := time.Now()
		st.enqueue(needing(""), numbered("job", 1), asynq.ProcessIn(20*time.Minute))
		time.Sleep(30 * time.Minute)
		st.wantOnceEach(4)
		for _, r := range st.ran() {
			if r.id == "job-0001" && r.at.Sub(again) < 20*time.Minute {
				t.Errorf("it ran after %s, want after 20 min", r.at.Sub(again))
			}
		}
		st.wantClean()
	})
}

// Was: 3 ran at once under concurrency 1, and a grant leaked for good.
func sameIDInTwoQueues(t *testing.T) {
	virtualAndReal(t, func(t *testing.T, rdb redis.UniversalClient) {
		var running, most counter
		ran := make(chan string, 100)
		handle := func(ctx context.Context, _ *asynq.Task) error {
			most.atLeast(running.add(1))
			time.Sleep(20 * time.Millisecond) // the work
			running.add(-1)
			queue, _ := asynq.GetQueueName(ctx)
			ran <- queue
			return nil
		}
		config := quick
		config.Queues = map[string]int{"default": 1, "other": 1}
		limit := throttle.Limit{Name: "slot", Kind: throttle.Concurrency, Capacity: 1}
		st := start(t, rdb, settings{config: config, limits: []throttle.Limit{limit}, handle: handle})
		for i := range 10 {
			st.enqueue(needing(""), numbered("job", i))
			st.enqueue(needing(""), numbered("job", i), asynq.Queue("other"))
		}
		times := map[string]int{}
		for range 20 {
			times[<-ran]++
		}
		st.server.Shutdown()
		if times["default"] != 10 || times["other"] != 10 || most.get() != 1 {
			t.Errorf("ran %v, %d at once; want 10 of each queue, one at a time", times, most.get())
		}
		if slots, err := st.limiter.AllowN(t.Context(), "slot", "", 0); err != nil || slots.Remaining != 1 {
			t.Errorf("slots: %+v, %v; want it free", slots, err)
		}
		st.wantClean()
	})
}

// Was: 171 of 200 were archived: "no such limit".
func flushedLimiter(t *testing.T) {
	test := func(t *testing.T, queues, limiter redis.UniversalClient) *stack {
		ran, handle := announcing(400)
		st := start(t, queues, settings{config: quick, redis: limiter, limits: []throttle.Limit{funnel("api", 40, 1)}, handle: handle})
		for i := range 210 {
			st.enqueue(needing(""), numbered("job", i))
		}
		for range 10 {
			<-ran
		}
		if err := limiter.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		for range 200 {
			<-ran
		}
		return st
	}
	t.Run("virtual time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			_, queues := redistest.Mini(t)
			_, limiter := redistest.Mini(t)
			began := time.Now()
			st := test(t, queues, limiter)
			time.Sleep(time.Minute)
			st.wantLastBy(began, 210, time.Minute)
			st.wantNothingLeft("default")
			st.wantOnceEach(210)
		})
	})
	t.Run("redis", func(t *testing.T) {
		st := test(t, redistest.Real(t), redistest.Real(t))
		st.server.Shutdown()
		st.wantOnceEach(210)
		st.wantNothingLeft("default")
	})
}
