package scheduler

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// polling is a server to which asynq's layout is unknown.
func polling(o *options) { o.polling = true }

// TestPolling: asynq's own polls bring every job back, later.
func TestPolling(t *testing.T) {
	virtual(t, settings{limits: []throttle.Limit{perMinute(6, 3)}, options: []Option{polling}}, func(_ *testing.T, st *stack) {
		st.enqueueN(20, "")
		time.Sleep(20 * time.Minute)
		st.wantOnceEach(20)
		st.wantClean()
	})
}

// TestLimits_TwoConfigVersionsLogged: if two configs define a limit in different ways, the config
// that was read last is in force. The server that read the other one logs so, once each time that
// it happens.
func TestLimits_TwoConfigVersionsLogged(t *testing.T) {
	var olds, news journal
	old, fast := perMinute(6, 1), perMinute(60, 1)
	virtual(t, settings{limits: []throttle.Limit{old}, log: olds.logger()}, func(t *testing.T, st *stack) {
		wait := func(when string, old, newer int) {
			t.Helper()
			time.Sleep(claimInterval + time.Second)
			const line = "another process has defined a limit differently"
			if n, m := olds.times(line), news.times(line); n != old || m != newer {
				t.Errorf("%s: logged %d and %d times, want %d and %d:\n%s%s", when, n, m, old, newer, &olds, &news)
			}
		}
		wait("alone", 0, 0)
		newer := st.beside(settings{limits: []throttle.Limit{fast}, log: news.logger()})
		wait("another's config is read", 1, 0)
		wait("a while later", 1, 0)
		st.must(st.limiter.Set(t.Context(), perMinute(30, 1)))
		wait("an operator sets the limit", 1, 0)
		st.must(st.server.Define(t.Context(), old))
		wait("the old config is read again", 1, 1)
		st.must(newer.server.Define(t.Context(), fast))
		wait("and the new one", 2, 1)
		st.must(st.limiter.Delete(t.Context(), "api"))
		wait("the limit is deleted", 2, 1)
	})
}

// TestServer_Start_LogsDifferences: a server that starts logs once which of its limits are paused
// in Redis or were set at run time.
func TestServer_Start_LogsDifferences(t *testing.T) {
	virtual(t, settings{limits: []throttle.Limit{perMinute(6, 1)}}, func(t *testing.T, st *stack) {
		st.must(st.limiter.Set(t.Context(), perMinute(30, 1)))
		st.must(st.limiter.Pause(t.Context(), "api"))
		var log journal
		st.beside(settings{limits: []throttle.Limit{perMinute(6, 1)}, log: log.logger()})
		time.Sleep(3 * claimInterval)
		for _, line := range []string{
			`msg="a limit was set at run time: that overrides its definition until the definition changes"`,
			`msg="a limit is paused"`,
		} {
			if n := log.times(line); n != 1 {
				t.Errorf("logged %d times, want once: %s\nthe log: %s", n, line, &log)
			}
		}
	})
}

// changing is a rule that changes: a job whose payload is "it" needs the limit of this name; every
// other job needs the limits of its payload.
type changing struct{ limit atomic.Value }

func newChanging() *changing {
	c := &changing{}
	c.limit.Store("slow")
	return c
}

func (c *changing) rule(task *asynq.Task) (Rule, error) {
	if string(task.Payload()) != "it" {
		return ruleOfPayload(task)
	}
	return Rule{Needs: []throttle.Need{{Limit: c.limit.Load().(string)}}, MaxWait: 10 * time.Minute}, nil
}

var slowAndFast = []throttle.Limit{
	{Name: "slow", Kind: throttle.Funnel, Rate: throttle.Every(4 * time.Minute)},
	{Name: "slower", Kind: throttle.Funnel, Rate: throttle.Every(8 * time.Minute)},
	funnel("fast", 100, 1),
}

// TestRulesChanged: jobs wait for a permit in four minutes when their rule is changed to one of 100
// a second. All run within seconds, in order, and jobs whose rule is the same notice nothing.
func TestRulesChanged(t *testing.T) {
	slow(t)
	c := newChanging()
	virtual(t, settings{config: oneWorker, limits: slowAndFast, rule: c.rule}, func(t *testing.T, st *stack) {
		var want []string
		for range 50 {
			want = append(want, st.enqueueN(1, "it")...)
			st.enqueue(needing("slower"), numbered("other", len(want)))
		}
		time.Sleep(6 * time.Minute)
		st.wantRuns(3)
		c.limit.Store("fast")
		st.server.RulesChanged()
		time.Sleep(3 * time.Second)
		if got := slices.DeleteFunc(st.order(), func(id string) bool { return strings.HasPrefix(id, "other") }); !slices.Equal(got, want) {
			t.Errorf("ran\n%v, want\n%v", got, want)
		}
		time.Sleep(3 * time.Minute)
		for id, n := range st.limiter.denials {
			if n > 2 || strings.HasPrefix(id, "other") && n > 1 {
				t.Errorf("%s was denied %d times", id, n)
			}
		}
	})
}

// TestRulesChanged_NoServerRan: jobs wait when their worker stops. The next worker has another rule
// for them.
func TestRulesChanged_NoServerRan(t *testing.T) {
	c := newChanging()
	s := settings{config: quick, limits: slowAndFast, rule: c.rule}
	virtual(t, s, func(_ *testing.T, st *stack) {
		st.enqueueN(51, "it")
		time.Sleep(time.Minute)
		st.server.Shutdown()
		st.wantRuns(1)
		c.limit.Store("fast")
		next := st.beside(s)
		time.Sleep(5 * time.Second)
		next.wantRuns(50)
		next.wantClean()
	})
}

// TestRulesChanged_OneServerFirst: rules do not change everywhere at once. Jobs that a worker with
// the old rules got ask again later.
func TestRulesChanged_OneServerFirst(t *testing.T) {
	slow(t)
	here, there := newChanging(), newChanging()
	virtual(t, settings{config: quick, limits: slowAndFast, rule: here.rule}, func(t *testing.T, st *stack) {
		other := st.beside(settings{config: quick, limits: slowAndFast, rule: there.rule})
		want := func(n int) {
			t.Helper()
			if ran := len(st.ran()) + len(other.ran()); ran != n {
				t.Fatalf("%d jobs ran, want %d", ran, n)
			}
		}
		st.enqueueN(51, "it")
		time.Sleep(2 * time.Minute)
		st.server.Stop() // so that the other gets them all
		here.limit.Store("fast")
		st.server.RulesChanged()
		time.Sleep(30 * time.Second)
		want(1)
		there.limit.Store("fast")
		time.Sleep(40 * time.Second)
		want(51)
		st.wantClean()
	})
}

// TestRulesChanged_ContextOfRule: a rule gets the same task and context for a waiting job as for
// one that runs. If it panics for a waiting job, that job fails, and no other.
func TestRulesChanged_ContextOfRule(t *testing.T) {
	type key struct{}
	config := quick
	config.BaseContext = func() context.Context { return context.WithValue(context.Background(), key{}, "the program's") }
	asked, faulty := map[string]int{}, false
	virtual(t, settings{config: config, limits: slowAndFast}, func(t *testing.T, st *stack) {
		st.server.rules.RuleFor = func(ctx context.Context, task *asynq.Task) (Rule, error) {
			queue, id, ok := GetJob(ctx)
			if id == "it" {
				asked[fmt.Sprint(queue, id, ok, task.Type(), string(task.Payload()), task.Headers(), ctx.Value(key{}))]++
				if faulty {
					panic("a fault")
				}
			}
			return needs("slow"), nil
		}
		for _, id := range []string{"first", "it", "other"} {
			st.enqueue(NewTask("job", []byte(id), Priority(PriorityHigh), asynq.MaxRetry(0)), asynq.TaskID(id))
			time.Sleep(time.Second)
		}
		st.server.RulesChanged()
		time.Sleep(10 * time.Second)
		faulty = true
		st.server.RulesChanged()
		time.Sleep(10 * time.Second)
		for what, times := range asked {
			if times < 4 || !strings.Contains(what, "the program's") {
				t.Errorf("the rule was asked %d times for %s; want the same each time, with the program's context", times, what)
			}
		}
		st.wantJob("it", asynq.TaskStateArchived, "a fault")
		st.wantJob("other", asynq.TaskStateRetry, "denied")
	})
}

// TestDefinitions_Lost: a definition that lacks any one of its fields is lost. A limit that was
// deleted is not.
func TestDefinitions_Lost(t *testing.T) {
	_, rdb := redistest.Mini(t)
	limiter := throttle.New(rdb, throttle.Options{})
	for _, l := range []throttle.Limit{
		{Name: "api", Kind: throttle.Funnel, Rate: throttle.PerMinute(6), Capacity: 2, Apps: []string{"a"}, MaxBlock: time.Hour, Adapt: &throttle.Adapt{Min: throttle.PerMinute(1)}},
		{Name: "day", Kind: throttle.FixedWindow, Rate: throttle.PerDay(100), Zone: "Europe/Berlin", Margin: time.Second},
		{Name: "slots", Kind: throttle.Concurrency, Capacity: 3},
	} {
		lost := func() bool {
			t.Helper()
			_, lost, err := storedLimits(t.Context(), waitdb.New(limiter), []string{l.Name})
			if err != nil {
				t.Fatal(err)
			}
			return lost[0]
		}
		if err := limiter.Define(t.Context(), l); err != nil || lost() {
			t.Fatalf("%s is lost from the start: %v", l.Name, err)
		}
		key := scopePrefix + "limit:" + l.Name
		for field, value := range rdb.HGetAll(t.Context(), key).Val() {
			rdb.HDel(t.Context(), key, field)
			if want := field != "file" && field != "since_us" && field != "by"; lost() != want {
				t.Errorf("%s without %s: lost %t, want %t", l.Name, field, !want, want)
			}
			rdb.HSet(t.Context(), key, field, value)
		}
		if err := limiter.Delete(t.Context(), l.Name); err != nil || lost() {
			t.Errorf("%s is lost after it was deleted: %v", l.Name, err)
		}
	}
}
