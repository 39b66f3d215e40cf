package scheduler

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/throttle"
)

// changing is a rule that changes: a job whose payload is "it" needs the limit of this
// name; every other needs what its payload says.
type changing struct{ limit atomic.Value }

func (c *changing) rule(task *asynq.Task) (Rule, error) {
	if string(task.Payload()) != "it" {
		return ruleOfPayload(task)
	}
	return Rule{Needs: []throttle.Need{{Limit: c.limit.Load().(string)}}, MaxWait: 25 * time.Minute}, nil
}

var slowAndFast = []throttle.Limit{
	{Name: "slow", Kind: throttle.Funnel, Rate: throttle.Every(10 * time.Minute)},
	{Name: "slower", Kind: throttle.Funnel, Rate: throttle.Every(20 * time.Minute)},
	funnel("fast", 100, 1),
}

// Jobs wait for a permit in ten minutes when their rule is changed to one of 100 a second: all
// run within seconds, in order, and those whose rule is the same notice nothing.
func TestRulesChanged(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	one := quick
	one.Concurrency = 1
	var c changing
	c.limit.Store("slow")
	virtual(t, settings{config: one, limits: slowAndFast, rule: c.rule}, func(t *testing.T, st *stack) {
		var want, got []string
		for i := range 50 {
			want = append(want, st.enqueue(needing("it"), asynq.TaskID(fmt.Sprintf("it-%02d", i))))
			st.enqueue(needing("slower"), asynq.TaskID(fmt.Sprintf("other-%02d", i)))
		}
		time.Sleep(15 * time.Minute)
		if n := len(st.ran()); n != 3 {
			t.Fatalf("%d jobs ran, want 3", n)
		}
		c.limit.Store("fast")
		st.server.RulesChanged()
		time.Sleep(3 * time.Second)
		for _, r := range st.ran() {
			if r.id[:2] == "it" {
				got = append(got, r.id)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("ran\n%v, want\n%v", got, want)
		}
		time.Sleep(3 * time.Minute)
		for id, n := range st.limiter.denials {
			if n > 2 || id[:2] != "it" && n > 1 {
				t.Errorf("%s was denied %d times", id, n)
			}
		}
	})
}

// Jobs wait when their worker stops; the next one has another rule for them.
func TestRulesChanged_NoServerRan(t *testing.T) {
	var c changing
	c.limit.Store("slow")
	s := settings{config: quick, limits: slowAndFast, rule: c.rule}
	virtual(t, s, func(t *testing.T, st *stack) {
		for range 51 {
			st.enqueue(needing("it"))
		}
		time.Sleep(time.Minute)
		st.server.Shutdown()
		if n := len(st.ran()); n != 1 {
			t.Fatalf("%d jobs ran, want 1", n)
		}
		c.limit.Store("fast")
		next := start(t, st.rdb, s)
		time.Sleep(5 * time.Second)
		if n := len(next.ran()); n != 50 {
			t.Errorf("%d of 50 waiting jobs ran", n)
		}
		next.wantClean()
	})
}

// How long a job may wait counts from its first denial, whatever its rule was then.
func TestRulesChanged_MaxWait(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	var c changing
	c.limit.Store("slow")
	virtual(t, settings{config: quick, limits: slowAndFast, rule: c.rule}, func(t *testing.T, st *stack) {
		for range 10 {
			st.enqueue(needing("it"))
		}
		time.Sleep(15 * time.Minute) // two have run
		c.limit.Store("slower")
		st.server.RulesChanged()
		archived := func() int {
			queue, err := st.tasks.GetQueueInfo("default")
			st.must(err)
			return queue.Archived
		}
		time.Sleep(590 * time.Second) // the first of them has found the new limit's permit
		if ran, n := len(st.ran()), archived(); ran != 3 || n != 0 {
			t.Errorf("after 24:50 %d jobs ran, and %d were archived; want 3 and none", ran, n)
		}
		time.Sleep(20 * time.Second)
		if n := archived(); n != 7 {
			t.Errorf("after 25:10 %d jobs were archived, want 7", n)
		}
		st.wantClean()
	})
}

// Jobs that a worker with the old rules got, as rules do not change everywhere at once,
// are sent to ask once more.
func TestRulesChanged_OneServerFirst(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	var here, there changing
	here.limit.Store("slow")
	there.limit.Store("slow")
	virtual(t, settings{config: quick, limits: slowAndFast, rule: here.rule}, func(t *testing.T, st *stack) {
		other := start(t, st.rdb, settings{config: quick, limits: slowAndFast, rule: there.rule})
		for range 51 {
			st.enqueue(needing("it"))
		}
		time.Sleep(2 * time.Minute)
		st.server.Stop() // so that the other gets them all
		here.limit.Store("fast")
		st.server.RulesChanged()
		time.Sleep(30 * time.Second)
		if n := len(st.ran()) + len(other.ran()); n != 1 {
			t.Fatalf("%d jobs ran, want 1: the test shows nothing", n)
		}
		there.limit.Store("fast")
		time.Sleep(40 * time.Second)
		if n := len(st.ran()) + len(other.ran()); n != 51 {
			t.Errorf("%d of 51 jobs ran", n)
		}
		st.wantClean()
	})
}

// A rule hears of a waiting job what it hears of one that runs.
func TestRulesChanged_ContextOfRule(t *testing.T) {
	asked := make(chan string, 100)
	virtual(t, settings{config: quick, limits: slowAndFast}, func(t *testing.T, st *stack) {
		st.server.rules.RuleFor = func(ctx context.Context, task *asynq.Task) (Rule, error) {
			queue, id, ok := GetJob(ctx)
			if id == "it" {
				asked <- fmt.Sprint(queue, id, ok, task.Type(), string(task.Payload()), task.Headers())
			}
			return Rule{Needs: []throttle.Need{{Limit: "slow", Key: id}, {Limit: "slower"}}}, nil
		}
		for _, id := range []string{"first", "it"} {
			st.enqueue(NewTask("job", []byte(id), Priority(PriorityHigh)), asynq.TaskID(id))
			time.Sleep(time.Second)
		}
		st.server.RulesChanged()
		time.Sleep(time.Minute)
		if len(asked) < 2 {
			t.Fatalf("asked %d times, want once when the job ran and once while it waited", len(asked))
		}
		for first := <-asked; len(asked) > 0; { // a forecast may ask, too
			if again := <-asked; again != first {
				t.Errorf("asked of %s, and then of %s, want the same", first, again)
			}
		}
	})
}
