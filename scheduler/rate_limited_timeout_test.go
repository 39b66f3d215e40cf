package scheduler

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/throttle"
)

// A handler outlives its Timeout and then says that it was blocked, while the job's next
// attempt waits under a rule with one limit more. That attempt keeps its record and its
// place, and those that share nothing with it notice nothing.
func TestRateLimited_AfterTimeout(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	config := quick
	config.Concurrency = 20
	config.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return time.Second }
	var attempts atomic.Int32
	rule := func(task *asynq.Task) (Rule, error) {
		r, err := ruleOfPayload(task)
		if string(task.Payload()) == "a" && attempts.Load() > 0 {
			r.Needs = append(r.Needs, throttle.Need{Limit: "b"})
		}
		return r, err
	}
	handle := func(ctx context.Context, _ *asynq.Task) error {
		if id, _ := asynq.GetTaskID(ctx); id != "it" {
			return nil
		}
		if attempts.Add(1) > 1 {
			return nil
		}
		time.Sleep(10 * time.Second)
		return RateLimited(time.Now().Add(time.Second))
	}
	limits := []throttle.Limit{funnel("a", 100, 1), {Name: "b", Kind: throttle.Funnel, Rate: throttle.Every(time.Minute)}, funnel("c", 5, 1)}
	virtual(t, settings{config: config, limits: limits, rule: rule, handle: handle}, func(t *testing.T, st *stack) {
		if d, err := st.limiter.Allow(t.Context(), "b", ""); !d.OK() {
			t.Fatal(d, err)
		}
		st.enqueue(needing("a", asynq.Timeout(2*time.Second), asynq.MaxRetry(3)), asynq.TaskID("it"))
		time.Sleep(8 * time.Second)
		was := st.limits.HGet(t.Context(), "hg:{default}:jobs", "default\nit").Val()
		if was == "" {
			t.Fatal("its next attempt does not wait: the test shows nothing")
		}
		time.Sleep(5 * time.Second)
		if is := st.limits.HGet(t.Context(), "hg:{default}:jobs", "default\nit").Val(); is != was {
			t.Errorf("its record is\n%q, was\n%q", is, was)
		}
		for range 100 {
			st.enqueue(needing("c"))
		}
		time.Sleep(22 * time.Second)
		if n := len(st.ran()) - 1; n != 100 {
			t.Errorf("%d of 100 jobs of another limit ran", n)
		}
		time.Sleep(3 * time.Minute)
		if n := attempts.Load(); n != 2 {
			t.Errorf("it ran %d times, want twice", n)
		}
		st.wantClean()
	})
}
