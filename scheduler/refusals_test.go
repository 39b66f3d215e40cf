package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/throttle"
)

// TestRefusals: the upstream refuses some jobs for ever, as those of an account without credit, and
// serves all others of the host. The others run, and the refused ones fail in the end. This holds for
// a refusal with a time and without one, for several such jobs, and for jobs that come back at once.
func TestRefusals(t *testing.T) {
	limits := []throttle.Limit{funnel("host", 1, 1), funnel("all", 100, 10)}
	for name, row := range map[string]struct {
		err    func() error
		needs  string
		bad    int
		within time.Duration // by when all good jobs have run
		level  PriorityLevel
	}{
		"429":           {err: func() error { return RateLimited(time.Time{}) }, needs: "host/a", bad: 1, within: 15 * time.Second},
		"with a time":   {err: func() error { return RateLimited(time.Now().Add(2 * time.Second)) }, needs: "host/a", bad: 1, within: 15 * time.Second},
		"two limits":    {err: func() error { return RateLimited(time.Time{}) }, needs: "host/a all", bad: 1, within: 15 * time.Second},
		"low priority":  {err: func() error { return RateLimited(time.Time{}) }, needs: "host/a", bad: 1, within: 15 * time.Second, level: PriorityLow},
		"high priority": {err: func() error { return RateLimited(time.Time{}) }, needs: "host/a", bad: 1, within: 15 * time.Second, level: PriorityHigh},
		"five of them":  {err: func() error { return RateLimited(time.Time{}) }, needs: "host/a", bad: 5, within: time.Minute},
		"three of them": {err: func() error { return RateLimited(time.Time{}) }, needs: "host/a", bad: 3, within: 40 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			const good = 10
			var calls []string
			var last time.Time
			handle := func(ctx context.Context, _ *asynq.Task) error {
				id, _ := asynq.GetTaskID(ctx)
				calls = append(calls, id)
				time.Sleep(50 * time.Millisecond)
				if strings.HasPrefix(id, "bad") {
					return row.err()
				}
				last = time.Now()
				return nil
			}
			rule := func(task *asynq.Task) (Rule, error) {
				r, err := ruleOfPayload(task)
				r.Priority = row.level
				return r, err
			}
			config := retrying(oneWorker, time.Second)
			virtual(t, settings{config: config, limits: limits, rule: rule, handle: handle}, func(t *testing.T, st *stack) {
				began := time.Now()
				for i := range row.bad {
					st.enqueue(needing(row.needs, asynq.MaxRetry(1)), asynq.TaskID(fmt.Sprint("bad", i)))
				}
				want := st.enqueueN(good, row.needs)
				time.Sleep(time.Duration(3*row.bad) * time.Minute)
				ran := slices.DeleteFunc(slices.Clone(calls), func(id string) bool { return strings.HasPrefix(id, "bad") })
				if !slices.Equal(ran, want) || last.Sub(began) > row.within {
					t.Errorf("the calls are %v: want all good jobs in their order within %s, not %s", calls, row.within, last.Sub(began))
				}
				next := slices.Index(calls, want[0])
				for ; next+2 < len(calls) && calls[next+1] != want[good-1]; next++ {
					if strings.HasPrefix(calls[next], "bad") && strings.HasPrefix(calls[next+1], "bad") {
						t.Errorf("the calls are %v: want a good job after each refusal, once one was served", calls)
						break
					}
				}
				if row.bad == 1 && !slices.Equal(calls[:2+good], append(append([]string{"bad0"}, want...), "bad0")) {
					t.Errorf("the calls are %v: want the refused job first and then last", calls)
				}
				for i := range row.bad { // two refusals are free, the third and fourth are its attempts
					id := fmt.Sprint("bad", i)
					info := st.wantJob(id, asynq.TaskStateArchived, "blocked by the upstream")
					if n := asynqdb.Refusals(job{Queue: "default", ID: id}, info.Headers); n != 4 && row.bad == 1 || n < 4 {
						t.Errorf("%s was refused %d times in a row, want 4: %v", id, n, calls)
					}
				}
				st.wantClean()
			})
		})
	}
}

// TestRefusals_LostKey: if Redis loses what is known of refusals again and again, the good jobs run as
// soon. Only whose problem it is stays open.
func TestRefusals_LostKey(t *testing.T) {
	const good = 10
	served := 0
	handle := func(ctx context.Context, _ *asynq.Task) error {
		if id, _ := asynq.GetTaskID(ctx); id == "bad" {
			return RateLimited(time.Time{})
		}
		served++
		return nil
	}
	virtual(t, settings{config: oneWorker, limits: []throttle.Limit{funnel("host", 1, 1)}, rule: ruleOfPayload, handle: handle}, func(t *testing.T, st *stack) {
		st.enqueue(needing("host/a"), asynq.TaskID("bad"))
		st.enqueueN(good, "host/a")
		lost := int64(0)
		for range 150 {
			time.Sleep(100 * time.Millisecond)
			lost += st.limits.Del(t.Context(), "hg:{default}:refused:host|a").Val()
		}
		if served != good || lost < 2 {
			t.Errorf("%d jobs ran while the key was lost %d times, want %d jobs", served, lost, good)
		}
	})
}

// TestRefusals_Host: if the host refuses every job, the block lasts, none of them fails, and they keep
// their order but for the one that tries next.
func TestRefusals_Host(t *testing.T) {
	var opens time.Time
	var ran []string
	limited := 0
	handle := func(ctx context.Context, _ *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		if time.Now().Before(opens) {
			limited++
			return RateLimited(time.Time{})
		}
		ran = append(ran, id)
		return nil
	}
	virtual(t, settings{config: oneWorker, limits: []throttle.Limit{funnel("host", 10, 1)}, rule: ruleOfPayload, handle: handle}, func(t *testing.T, st *stack) {
		opens = time.Now().Add(10 * time.Minute)
		want := st.enqueueN(30, "host/a")
		time.Sleep(20 * time.Minute)
		sorted := slices.Sorted(slices.Values(ran))
		if !slices.Equal(sorted, slices.Sorted(slices.Values(want))) || limited > 12 {
			t.Errorf("ran %v after %d refusals, want all jobs, and at most 12", ran, limited)
		}
		if !slices.Equal(slices.DeleteFunc(slices.Clone(ran), func(id string) bool { return id == ran[0] }), slices.DeleteFunc(want, func(id string) bool { return id == ran[0] })) {
			t.Errorf("ran %v, want %v, but for the first", ran, want)
		}
		st.wantNotReported()
		st.wantClean()
	})
}

// TestRefusals_Alone: a job that no other job is compared with is refused for ever, and does not fail.
// A failure of another kind ends the row.
func TestRefusals_Alone(t *testing.T) {
	calls := 0
	handle := func(context.Context, *asynq.Task) error {
		if calls++; calls == 8 {
			return errors.New("something else")
		}
		return RateLimited(time.Now().Add(time.Second))
	}
	virtual(t, settings{config: retrying(oneWorker, 0), limits: []throttle.Limit{funnel("host", 10, 1)}, rule: ruleOfPayload, handle: handle}, func(t *testing.T, st *stack) {
		st.enqueue(needing("host/a", asynq.MaxRetry(1)), asynq.TaskID("it"))
		time.Sleep(30 * time.Second)
		if info := st.info("it"); info == nil || info.Retried != 1 || calls < 20 || asynqdb.Refusals(job{Queue: "default", ID: "it"}, info.Headers) > calls-8 {
			t.Errorf("%+v after %d calls, want one failure", info, calls)
		}
	})
}

// TestRefusals_OtherJob: a header that a handler has copied to another job counts for nothing.
func TestRefusals_OtherJob(t *testing.T) {
	headers := map[string]string{asynqdb.HeaderRefusals: "3 1772366407000000 true\ndefault\nit"}
	for id, want := range map[string]int{"it": 3, "another": 0} {
		if n := asynqdb.Refusals(job{Queue: "default", ID: id}, headers); n != want {
			t.Errorf("%s: %d refusals, want %d", id, n, want)
		}
	}
}

// TestRefusals_PutBack: a put-back ends the row of refusals, as a failure does.
func TestRefusals_PutBack(t *testing.T) {
	for name, back := range map[string]error{"a time": RetryAfter(time.Hour), "a payload": PutBackAs([]byte("host/b")), "a worker": ErrUnable} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			handle := func(context.Context, *asynq.Task) error {
				switch calls++; calls {
				case 1, 2:
					return RateLimited(time.Now().Add(time.Second))
				case 3:
					return back
				}
				return RetryAfter(time.Hour)
			}
			virtual(t, settings{config: oneWorker, limits: []throttle.Limit{funnel("host", 10, 1)}, rule: ruleOfPayload, handle: handle}, func(t *testing.T, st *stack) {
				st.enqueue(needing("host/a"), asynq.TaskID("it"))
				time.Sleep(1900 * time.Millisecond)
				before := asynqdb.Refusals(job{Queue: "default", ID: "it"}, st.info("it").Headers)
				time.Sleep(time.Minute)
				if after := asynqdb.Refusals(job{Queue: "default", ID: "it"}, st.info("it").Headers); before == 0 || after != 0 {
					t.Errorf("%d refusals in a row, and %d after the put-back; want some and then none, after %d calls", before, after, calls)
				}
			})
		})
	}
}
