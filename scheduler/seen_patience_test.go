package scheduler

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/throttle"
)

// Was: 2 of 3 were archived as too late: a lease's end was taken for a forecast.
func patienceUnderConcurrency(t *testing.T) {
	limit := throttle.Limit{Name: "slot", Kind: throttle.Concurrency, Capacity: 1}
	handle := func(context.Context, *asynq.Task) error {
		time.Sleep(100 * time.Millisecond)
		return nil
	}
	for _, test := range []struct {
		name    string
		maxWait time.Duration
		opts    func() []asynq.Option
	}{
		{"MaxWait", 20 * time.Second, func() []asynq.Option { return nil }},
		{"Deadline", 0, func() []asynq.Option { return []asynq.Option{asynq.Deadline(time.Now().Add(20 * time.Second))} }},
	} {
		t.Run(test.name, func(t *testing.T) {
			rule := func(*asynq.Task) (Rule, error) {
				return Rule{Needs: []throttle.Need{{Limit: "slot"}}, MaxWait: test.maxWait}, nil
			}
			virtual(t, settings{config: quick, limits: []throttle.Limit{limit}, rule: rule, handle: handle}, func(_ *testing.T, st *stack) {
				began := time.Now()
				for range 3 {
					st.enqueue(needing(""), test.opts()...)
				}
				time.Sleep(time.Minute)
				st.wantLastBy(began, 3, time.Second)
				st.wantNothingLeft("default")
			})
		})
	}
}

// impatient is ruleOfPayload, with a MaxWait for those whose payload has a word.
func impatient(word string, maxWait time.Duration) func(*asynq.Task) (Rule, error) {
	return func(task *asynq.Task) (Rule, error) {
		r, err := ruleOfPayload(task)
		if strings.Contains(string(task.Payload()), word) {
			r.MaxWait = maxWait
		}
		return r, err
	}
}

// Was: archived as too late; without MaxWait it ran in 0.3 s.
func quietTenant(t *testing.T) {
	rule := impatient("quiet", time.Minute)
	limits := []throttle.Limit{funnel("api", 10, 10), funnel("tenant", 10, 10)}
	virtual(t, settings{config: quick, limits: limits, rule: rule}, func(t *testing.T, st *stack) {
		for range 1540 { // 154 s of work
			st.enqueue(needing("api tenant/noisy"))
		}
		time.Sleep(10 * time.Second)
		began := time.Now()
		id := st.enqueue(needing("api tenant/quiet"))
		time.Sleep(5 * time.Second)
		for _, r := range st.ran() {
			if r.id == id {
				if wait := r.at.Sub(began); wait > time.Second {
					t.Errorf("it ran after %s, want within 1 s", wait)
				}
				return
			}
		}
		t.Errorf("it did not run: %+v", st.info(id))
	})
}

// Was: 5 of 10 were archived as too late, since every other lane was taken to go
// before each of them, also those with one job.
func smallTenant(t *testing.T) {
	before := slices.Repeat([]string{"api tenant/noisy"}, 80)
	for i := range 12 {
		before = append(before, fmt.Sprintf("api tenant/%d", i))
	}
	runInTime(t, before, "api tenant/small", 10)
}

// Was: the same of a job that costs more than those beside it.
func bigWithMaxWait(t *testing.T) {
	before := slices.Concat(slices.Repeat([]string{"api tenant/noisy"}, 60), slices.Repeat([]string{"api"}, 5))
	runInTime(t, before, "api:10", 1)
}

// runInTime has jobs that may wait for 5 s join those before, and all run.
func runInTime(t *testing.T, before []string, late string, jobs int) {
	limits := []throttle.Limit{funnel("api", 10, 10), funnel("tenant", 10, 10)}
	virtual(t, settings{config: quick, limits: limits, rule: impatient(late, 5*time.Second)}, func(_ *testing.T, st *stack) {
		for _, needs := range before {
			st.enqueue(needing(needs))
		}
		time.Sleep(200 * time.Millisecond)
		for range jobs {
			st.enqueue(needing(late))
		}
		time.Sleep(12 * time.Second)
		st.wantOnceEach(len(before) + jobs)
		st.wantNothingLeft("default")
		st.wantClean()
	})
}

// Was: what was deleted still counted, and the next job with MaxWait was archived.
func deletedBacklog(t *testing.T) {
	rule := func(task *asynq.Task) (Rule, error) {
		r := Rule{Needs: []throttle.Need{{Limit: "api"}}}
		if string(task.Payload()) == "soon" {
			r.MaxWait = time.Minute
		}
		return r, nil
	}
	virtual(t, settings{config: quick, limits: []throttle.Limit{funnel("api", 1, 1)}, rule: rule}, func(t *testing.T, st *stack) {
		for range 600 {
			st.enqueue(needing(""))
		}
		time.Sleep(30 * time.Second)
		if n, err := st.tasks.DeleteAllRetryTasks("default"); err != nil || n < 500 {
			t.Fatalf("deleted %d, %v; want over 500", n, err)
		}
		time.Sleep(time.Minute) // it heals within that
		before := len(st.ran())
		began := time.Now()
		st.enqueue(needing("soon"))
		time.Sleep(10 * time.Second)
		st.wantLastBy(began, before+1, 2*time.Second)
		st.wantNothingLeft("default")
		st.wantClean()
	})
}
