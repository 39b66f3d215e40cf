package scheduler

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/throttle"
)

// Was: {a,b} never ran beside {a} and {b}.
func overlappingLimitsShare(t *testing.T) {
	for _, rates := range []struct {
		a, b    int
		seconds int
	}{{10, 3, 20}, {20, 1, 15}} {
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
