package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/throttle"
)

// TestRateLimited: the upstream answers 429 until a moment. Calls under way get a 429 too, and all
// other jobs wait. A job that alone got a 429 runs last. If several did, they run first but for the
// one that has tried for them, in the old order. No attempt is spent.
func TestRateLimited(t *testing.T) {
	limits := []throttle.Limit{
		{Name: "host", Kind: throttle.SlidingLog, Rate: throttle.PerSecond(3)},
		{Name: "all", Kind: throttle.SlidingLog, Rate: throttle.PerSecond(100)},
	}
	for name, test := range map[string]struct {
		err  func(opens time.Time) error
		most int  // 429s
		last bool // whether one job alone gets a 429
	}{
		"until a moment":            {func(opens time.Time) error { return fmt.Errorf("429: %w", RateLimited(opens)) }, 3, true},
		"until an unknown time":     {func(time.Time) error { return RateLimited(time.Time{}) }, 24, false},
		"until a time that is past": {func(time.Time) error { return RateLimited(time.Now()) }, 24, false},
	} {
		t.Run(name, func(t *testing.T) {
			var opens time.Time
			limited := 0
			var ran []string
			refused := map[string]bool{}
			handle := func(ctx context.Context, task *asynq.Task) error {
				id, _ := asynq.GetTaskID(ctx)
				if strings.Contains(string(task.Payload()), "host/a") && time.Now().Before(opens) {
					limited++
					refused[id] = true
					return test.err(opens)
				}
				ran = append(ran, id)
				return nil
			}
			virtual(t, settings{config: asynq.Config{Concurrency: 1, TaskCheckInterval: 10 * time.Second}, limits: limits, rule: ruleOfPayload, handle: handle}, func(t *testing.T, st *stack) {
				opens = time.Now().Add(90 * time.Second)
				want := st.enqueueN(12, "host/a all")
				time.Sleep(30 * time.Second)
				want = append(st.enqueueN(1, "host/b all"), want...)
				time.Sleep(20 * time.Second)
				if !slices.Equal(ran, want[:1]) {
					t.Errorf("ran %v while host a was blocked, want %v", ran, want[:1])
				}
				time.Sleep(10 * time.Minute)
				if len(ran) != len(want) {
					t.Fatalf("ran %v, want %v", ran, want)
				}
				place, moved := 1, ran[1] // of the job that has tried for the others
				if test.last {
					place, moved = len(want)-1, want[1]
				} else {
					slices.Sort(ran[2 : 2+len(refused)])
				}
				want = slices.Insert(slices.DeleteFunc(want, func(id string) bool { return id == moved }), place, moved)
				if !slices.Equal(ran, want) || limited > test.most {
					t.Errorf("ran %v after %d 429s, want %v and at most %d", ran, limited, want, test.most)
				}
				st.wantNotReported()
				if keys, err := st.limiter.Keys(t.Context(), "host"); err != nil || len(keys) != 0 {
					t.Errorf("after a success: %v, %v", keys, err)
				}
				st.wantClean()
			})
		})
	}
}

// TestRule_BlockedNeeds: which keys a 429 blocks.
func TestRule_BlockedNeeds(t *testing.T) {
	shared, other := throttle.Need{Limit: "shared"}, throttle.Need{Limit: "other"}
	host := throttle.Need{Limit: "host", Key: "a"}
	for name, test := range map[string]struct {
		rule Rule
		want string
	}{
		"only those with a key":    {Rule{Needs: []throttle.Need{shared, host}}, "host of a"},
		"all if none has a key":    {Rule{Needs: []throttle.Need{shared, other}}, "shared, other"},
		"the limits that it names": {Rule{Needs: []throttle.Need{shared, host}, BlockOnRateLimit: []string{"shared"}}, "shared"},
		"nothing":                  {Rule{Needs: []throttle.Need{shared, host}, BlockOnRateLimit: []string{}}, ""},
	} {
		if got := meterNames(test.rule.blockedNeeds()); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// upstream lets a burst and a rate through, and answers 429 with a Retry-After in whole seconds.
type upstream struct {
	mu                  sync.Mutex
	rate, burst, tokens float64
	at                  time.Time
	served, limited     []time.Time
}

func (u *upstream) call() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	u.tokens = min(u.burst, u.tokens+now.Sub(u.at).Seconds()*u.rate)
	if u.at = now; u.tokens < 1 {
		u.limited = append(u.limited, now)
		wait := time.Duration((1 - u.tokens) / u.rate * float64(time.Second))
		return RateLimited(now.Add((wait + time.Second - 1).Truncate(time.Second)))
	}
	u.tokens--
	u.served = append(u.served, now)
	return nil
}

// TestRateLimited_Storm: an API halves its limit without saying so. After the first 429 come at
// most as many more as jobs run at once, all jobs are done, no attempt is spent, and within 30 s at
// least 95 % of the new limit is used.
func TestRateLimited_Storm(t *testing.T) {
	slow(t)
	const concurrency, jobs = 4, 200
	limit := throttle.Limit{Name: "host", Kind: throttle.Funnel, Rate: throttle.PerSecond(4), Capacity: 2, Adapt: &throttle.Adapt{}}
	for _, latency := range []time.Duration{50 * time.Millisecond, 700 * time.Millisecond} {
		api := &upstream{rate: 4, burst: 4, tokens: 4}
		handle := func(context.Context, *asynq.Task) error {
			time.Sleep(latency)
			return api.call()
		}
		config := asynq.Config{Concurrency: concurrency, TaskCheckInterval: 50 * time.Millisecond}
		virtual(t, settings{config: config, limits: []throttle.Limit{limit}, rule: ruleOfPayload, handle: handle}, func(t *testing.T, st *stack) {
			api.at = time.Now()
			st.enqueueN(jobs, "host/api")
			time.Sleep(5 * time.Second)
			api.rate = 2
			from := time.Now().Add(30 * time.Second)
			time.Sleep(2 * time.Minute)
			if more := len(api.limited) - 1; len(api.served) != jobs || more > concurrency {
				t.Fatalf("latency %s: %d of %d jobs done, %d 429s after the first, want at most %d", latency, len(api.served), jobs, more, concurrency)
			}
			st.wantNotReported()
			late := slices.DeleteFunc(slices.Clone(api.served), func(at time.Time) bool { return !at.After(from) })
			if use := float64(len(late)) / (late[len(late)-1].Sub(from).Seconds() * 2); use < 0.95 {
				t.Errorf("latency %s: %.3f of the new limit is used, want 0.95", latency, use)
			}
		})
	}
}

// TestRateLimited_AfterTimeout: a handler outlives its Timeout and then reports a 429, while the
// job's next attempt waits under a rule with one more limit. That attempt keeps its record and its
// position, and jobs that share nothing with it notice nothing.
func TestRateLimited_AfterTimeout(t *testing.T) {
	slow(t)
	config := retrying(quick, time.Second)
	config.Concurrency = 20
	var attempts atomic.Int32
	rule := func(task *asynq.Task) (Rule, error) {
		r, err := ruleOfPayload(task)
		if string(task.Payload()) == "a" && attempts.Load() > 0 {
			r.Needs = append(r.Needs, throttle.Need{Limit: "b"})
		}
		return r, err
	}
	handle := func(_ context.Context, task *asynq.Task) error {
		if string(task.Payload()) != "a" || attempts.Add(1) > 1 {
			return nil
		}
		time.Sleep(10 * time.Second)
		return RateLimited(time.Now().Add(time.Second))
	}
	limits := []throttle.Limit{funnel("a", 100, 1), {Name: "b", Kind: throttle.Funnel, Rate: throttle.Every(time.Minute)}, funnel("c", 5, 1)}
	virtual(t, settings{config: config, limits: limits, rule: rule, handle: handle}, func(t *testing.T, st *stack) {
		st.takePermit("b")
		st.enqueue(needing("a", asynq.Timeout(2*time.Second), asynq.MaxRetry(3)), asynq.TaskID("it"))
		record := func() string { return st.limits.HGet(t.Context(), scopePrefix+"jobs", "default\nit").Val() }
		time.Sleep(8 * time.Second)
		was := record()
		if was == "" {
			t.Fatal("its next attempt does not wait: the test shows nothing")
		}
		time.Sleep(5 * time.Second)
		if is := record(); is != was {
			t.Errorf("its record is\n%q, was\n%q", is, was)
		}
		st.enqueueN(100, "c")
		time.Sleep(22 * time.Second)
		st.wantRuns(1 + 100)
		time.Sleep(3 * time.Minute)
		st.wantRuns(2 + 100)
		st.wantClean()
	})
}

// TestLease_LostCancelsHandler: the context of a job ends when another may have its slot: at once
// if the lease is lost, and a tenth of the lease before it ends in Redis if it cannot be extended.
func TestLease_LostCancelsHandler(t *testing.T) {
	slow(t)
	unavailable := fmt.Errorf("%w: cut off", throttle.ErrUnavailable)
	calls := 0
	for name, test := range map[string]struct {
		extend   func() (time.Duration, error)
		from, to time.Duration // when the context ends; never if zero
	}{
		"lost":      {func() (time.Duration, error) { return 0, nil }, 10 * time.Second, 11 * time.Second},
		"cut off":   {func() (time.Duration, error) { return 0, unavailable }, 26 * time.Second, 27 * time.Second},
		"no answer": {func() (time.Duration, error) { time.Sleep(5 * time.Minute); return 30 * time.Second, nil }, 26 * time.Second, 27 * time.Second},
		"cut off after a while": {func() (time.Duration, error) {
			if calls++; calls <= 5 {
				return 30 * time.Second, nil
			}
			return 0, unavailable
		}, 76 * time.Second, 77 * time.Second},
		"cut off for a while": {func() (time.Duration, error) {
			if calls++; calls%10 == 0 {
				return 30 * time.Second, nil
			}
			return 0, unavailable
		}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			calls = 0
			var ended time.Duration
			var cause error
			handle := func(ctx context.Context, _ *asynq.Task) error {
				began := time.Now()
				select {
				case <-ctx.Done():
					ended, cause = time.Since(began), context.Cause(ctx)
				case <-time.After(3 * time.Minute):
				}
				return nil
			}
			virtual(t, settings{limits: []throttle.Limit{oneSlot}, handle: handle, extend: test.extend, quiet: time.Minute}, func(t *testing.T, st *stack) {
				st.enqueueN(1, "")
				time.Sleep(6 * time.Minute)
				if ended < test.from || ended > test.to || (ended > 0) != errors.Is(cause, errLeaseLost) {
					t.Errorf("the context ended after %s by %v, want %s to %s", ended, cause, test.from, test.to)
				}
				st.wantOnce(1)
			})
		})
	}
}

// TestLog_NamesLimits: a log line about a lost lease or a 429 names the limits that it is about, and
// the time of the block, also if it is unknown when the job runs.
func TestLog_NamesLimits(t *testing.T) {
	var log journal
	virtual(t, settings{
		limits: []throttle.Limit{funnel("host", 1, 1), oneSlot}, log: log.logger(), rule: ruleOfPayload,
		extend: func() (time.Duration, error) { return 0, nil },
	}, func(t *testing.T, st *stack) {
		st.handle = func(ctx context.Context, _ *asynq.Task) error {
			if len(st.ran()) == 1 {
				return RateLimited(time.Now().Add(20 * time.Second))
			}
			<-ctx.Done()
			return nil
		}
		st.enqueueN(1, "host/a slot")
		time.Sleep(5 * time.Minute)
		st.wantClean()
	})
	for _, want := range []string{`lost its lease and is canceled" job=`, ` limits=slot`, `"blocked by the upstream" job=`, ` limits="host of a" for=20s`} {
		if log.times(want) == 0 {
			t.Errorf("no %s in %s", want, &log)
		}
	}
}
