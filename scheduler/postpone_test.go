package scheduler

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/script"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// scriptCalls counts how often a script is called, and has each call last.
type scriptCalls struct {
	hash  string
	lasts time.Duration
	calls atomic.Int64
}

func (s *scriptCalls) around(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	if args := cmd.Args(); len(args) > 1 && args[0] == "evalsha" && args[1] == s.hash {
		s.calls.Add(1)
		time.Sleep(s.lasts)
	}
	return next(ctx, cmd)
}

// A job that is called when it was told to be has a put-back that outlasts its
// wait: nothing need be moved on.
func TestPutBack_OutlastsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Mini(t)
		moves := &scriptCalls{hash: script.New("asynq/postpone").Hash()}
		rdb.AddHook(redistest.Hook(moves.around))
		limit := throttle.Limit{Name: "api", Kind: throttle.Funnel, Rate: throttle.PerSecond(20), Capacity: 10}
		st := start(t, rdb, settings{config: asynq.Config{Concurrency: 5, TaskCheckInterval: 20 * time.Millisecond}, limits: []throttle.Limit{limit}})
		for range 200 {
			st.enqueue(NewTask("job", nil))
		}
		time.Sleep(15 * time.Second)
		st.wantOnce(200)
		st.wantClean()
		if n := moves.calls.Load(); n > 0 {
			t.Errorf("put-backs were moved on in %d calls, want none", n)
		}
	})
}

// A job that is called while its worker is still writing its put-back comes as soon
// as that is written, not when its permits have been given to another.
func TestPutBack_GrantedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Mini(t)
		rdb.AddHook(redistest.Hook((&scriptCalls{hash: script.New("asynq/put_back").Hash(), lasts: 35 * time.Millisecond}).around))
		limit := throttle.Limit{Name: "api", Kind: throttle.Funnel, Rate: throttle.PerSecond(50)}
		st := start(t, rdb, settings{config: asynq.Config{Concurrency: 5, TaskCheckInterval: 10 * time.Millisecond}, limits: []throttle.Limit{limit}})
		time.Sleep(10 * time.Second) // it gives turns
		began := time.Now()
		for range 2 {
			st.enqueue(NewTask("job", nil))
		}
		time.Sleep(10 * time.Second)
		st.wantOnce(2)
		st.wantLastBy(began, 2, 100*time.Millisecond)
		st.wantDenials(2, 0.5, 1)
	})
}

// Jobs whose permits took longer than they were told, as where many lanes share, have
// put-backs that must be moved on. However many that are: turns are given meanwhile.
func TestPostpone_TurnsGoOn(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Mini(t)
		slow := &scriptCalls{hash: script.New("asynq/postpone").Hash(), lasts: 100 * time.Millisecond}
		rdb.AddHook(redistest.Hook(slow.around))
		all := throttle.Limit{Name: "all", Kind: throttle.Funnel, Rate: throttle.PerSecond(20), Capacity: 2}
		host := throttle.Limit{Name: "host", Kind: throttle.Funnel, Rate: throttle.PerSecond(1)}
		st := start(t, rdb, settings{config: asynq.Config{Concurrency: 10, TaskCheckInterval: 10 * time.Millisecond}, limits: []throttle.Limit{all, host}})
		st.rule = func(task *asynq.Task) (Rule, error) {
			return Rule{Needs: []throttle.Need{{Limit: "all"}, {Limit: "host", Key: string(task.Payload())}}}, nil
		}
		const jobs = 600
		for i := range jobs {
			st.enqueue(NewTask("job", fmt.Append(nil, i%200)))
		}
		time.Sleep(time.Minute)
		st.wantOnce(jobs)
		if calls := slow.calls.Load(); calls < 5 {
			t.Fatalf("put-backs were moved on in %d calls: too few to be in the way", calls)
		}
		for i, r := range st.ran()[1:] {
			if gap := r.at.Sub(st.ran()[i].at); gap > 250*time.Millisecond {
				t.Errorf("no job for %s before %s", gap, r.id)
			}
		}
	})
}

// TestScopes_ShareAsynqRedis: who gives turns in one scope leaves alone what waits in
// another.
func TestScopes_ShareAsynqRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Mini(t)
		var stacks []*stack
		for _, scope := range []string{"one", "two"} {
			spied := &spy{DB: waitdb.New(throttle.New(rdb, throttle.Options{Scope: scope})), denials: map[string]int{}}
			config := quick
			config.Queues = map[string]int{scope: 1}
			st := start(t, rdb, settings{
				config: config, limits: []throttle.Limit{{Name: "l", Kind: throttle.Funnel, Rate: throttle.PerMinute(6)}},
				options: []Option{withSpy(spied)},
			})
			st.limiter = spied
			stacks = append(stacks, st)
		}
		for i, scope := range []string{"one", "two"} {
			for k := range 20 {
				stacks[i].enqueue(NewTask("job", nil, asynq.MaxRetry(0)), asynq.Queue(scope), asynq.TaskID(fmt.Sprintf("%s-%d", scope, k)))
			}
		}
		time.Sleep(4 * time.Minute)
		for _, st := range stacks {
			st.wantOnce(20)
		}
	})
}

// TestReconcile_GoneJobComparesAll: where a called job was deleted others may have been,
// also such as are not called for an hour.
func TestReconcile_GoneJobComparesAll(t *testing.T) {
	limits := []throttle.Limit{funnel("fast", 1, 1), {Name: "slow", Kind: throttle.Funnel, Rate: throttle.Every(time.Hour)}}
	virtual(t, settings{config: quick, limits: limits, rule: ruleOfPayload}, func(t *testing.T, st *stack) {
		for range 20 {
			st.enqueue(needing("fast"))
			st.enqueue(needing("slow"))
		}
		time.Sleep(10 * time.Second)
		if n, err := st.tasks.DeleteAllRetryTasks("default"); err != nil || n < 25 {
			t.Fatalf("deleted %d, %v; want over 25", n, err)
		}
		time.Sleep(2 * time.Second)
		st.wantClean()
	})
}
