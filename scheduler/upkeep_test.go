package scheduler

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/turns"
	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/scheduler/lanes"
	"github.com/headgate/headgate/throttle"
)

// scriptCalls counts how often a script is called, or, without one, all commands, and
// has each last.
type scriptCalls struct {
	hash  string
	lasts time.Duration
	calls atomic.Int64
}

func (s *scriptCalls) around(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	if args := cmd.Args(); s.hash == "" || len(args) > 1 && args[0] == "evalsha" && args[1] == s.hash {
		s.calls.Add(1)
		time.Sleep(s.lasts)
	}
	return next(ctx, cmd)
}

// A job that is called when it was told to be has a put-back that outlasts its
// wait: nothing need be moved on.
func TestPutBacksOutlastTheirWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Mini(t)
		moves := &scriptCalls{hash: lua.Postpone.Hash()}
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
func TestCalledWhileBeingPutBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Mini(t)
		rdb.AddHook(redistest.Hook((&scriptCalls{hash: lua.PutBack.Hash(), lasts: 35 * time.Millisecond}).around))
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
func TestTurnsAreGivenWhilePutBacksAreMovedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Mini(t)
		slow := &scriptCalls{hash: lua.Postpone.Hash(), lasts: 100 * time.Millisecond}
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

// TestScopesShareAnAsynqRedis: who gives turns in one scope leaves alone what waits in
// another.
func TestScopesShareAnAsynqRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Mini(t)
		var stacks []*stack
		for _, scope := range []string{"one", "two"} {
			spied := &spy{Lanes: lanes.New(throttle.New(rdb, throttle.RedisOptions{Scope: scope})), denials: map[string]int{}}
			config := quick
			config.Queues = map[string]int{scope: 1}
			st := start(t, rdb, settings{
				config: config, limits: []throttle.Limit{{Name: "l", Kind: throttle.Funnel, Rate: throttle.PerMinute(6)}},
				options: []Option{WithLimiter(spied)},
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

// waitsForever is a limiter whose jobs all wait, nobody knows for how long.
type waitsForever struct{ Limiter }

func (waitsForever) Places(_ context.Context, jobs ...throttle.JobID) (map[throttle.JobID]lanes.Place, error) {
	places := map[throttle.JobID]lanes.Place{}
	for _, j := range jobs {
		places[j] = lanes.Place{}
	}
	return places, nil
}

// tender is a dispatcher that gives no turns, and looks after the put-backs of queues.
func tender(rdb redis.UniversalClient, queues ...string) *dispatcher {
	limiter := lanes.New(throttle.New(rdb, throttle.RedisOptions{}))
	log := newOutageLog(slog.New(slog.DiscardHandler), "Redis", nil)
	return &dispatcher{
		limiter: waitsForever{limiter}, store: turns.NewStore(limiter), db: asynqdb.New(rdb), log: log.log, limits: log.watch(),
		queues: log.watch(), core: turns.New(), clock: clock{0, time.Now()}, passes: passes, upkeep: upkeep{queues: queues},
	}
}

// tendFor looks after them for some time.
func tendFor(t *testing.T, d *dispatcher, long time.Duration, until func() bool) {
	for end := time.Now().Add(long); time.Now().Before(end) && !until(); time.Sleep(max(interval, time.Until(d.upkeep.due()))) {
		if err := d.tend(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// However many put-backs end together, all are moved on before.
func TestManyPutBacksEndTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Mini(t)
		end := time.Now().Add(10 * time.Second).Unix()
		for i := range 2500 {
			id := fmt.Sprint(i)
			rdb.HSet(t.Context(), asynqdb.Hash("default", id), "state", "retry", "denied", end)
			rdb.ZAdd(t.Context(), asynqdb.Key("default", asynqdb.Retry), redis.Z{Score: float64(end), Member: id})
		}
		tendFor(t, tender(rdb, "default"), 9*time.Second, func() bool { return false })
		if n := rdb.ZCount(t.Context(), asynqdb.Key("default", asynqdb.Retry), "-inf", fmt.Sprint(end)).Val(); n > 0 {
			t.Errorf("%d put-backs end, want all moved on", n)
		}
	})
}

// Only denied jobs that were sent back are told of; where that fails they are found
// once more.
func TestStraysThatCannotBeSentBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Mini(t)
		end := time.Now().Add(time.Minute).Unix()
		rdb.HSet(t.Context(), asynqdb.Hash("default", "it"), "state", "retry", "denied", end, "scope", "hg:{default}:")
		rdb.ZAdd(t.Context(), asynqdb.Key("default", asynqdb.Retry), redis.Z{Score: float64(end), Member: "it"})
		rdb.AddHook(redistest.Hook((&scriptCalls{hash: lua.Promote.Hash(), lasts: 2 * time.Second}).around))
		d := tender(rdb)
		var log strings.Builder
		d.log = slog.New(slog.NewTextHandler(&log, nil))
		d.upkeep.pass = comparison{queues: []string{"default"}}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := d.upkeepStep(short); err == nil || log.Len() > 0 {
			t.Errorf("cut short: error %v, log %s; want an error, and nothing told", err, &log)
		}
		d.core = turns.New() // it gave the lease back
		if err := d.upkeepStep(t.Context()); err != nil || !strings.Contains(log.String(), "jobs=1") {
			t.Errorf("error %v, log %s; want one job sent back", err, &log)
		}
		if state := rdb.HGet(t.Context(), asynqdb.Hash("default", "it"), "state").Val(); state != "pending" {
			t.Errorf("the job is in state %s, want pending", state)
		}
	})
}

// Where put-backs take all the time that there is, comparing goes on all the same.
func TestComparesWhilePutBacksAreMovedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Mini(t)
		var queues []string
		for i := range 98 {
			queues = append(queues, fmt.Sprintf("q%03d", i))
			rdb.SAdd(t.Context(), "asynq:queues", queues[i])
		}
		rdb.AddHook(redistest.Hook((&scriptCalls{lasts: 20 * time.Millisecond}).around))
		d, began := tender(rdb, queues...), time.Now()
		d.core.Made("q000\napi|", 1) // turns are due
		tendFor(t, d, time.Hour, func() bool { return !d.upkeep.begun.IsZero() && !d.upkeep.pass.underway() })
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("a pass over %d queues took %s, want half a minute at most", len(queues), took)
		}
	})
}

// Redis hung while put-backs were moved on: comparing does not rest for as long.
func TestComparesSoonAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Mini(t)
		rdb.SAdd(t.Context(), "asynq:queues", "default")
		var toRedis wire
		rdb.AddHook(redistest.Hook(toRedis.around))
		d := tender(rdb, "default")
		toRedis.slow.Store(int64(25 * time.Second))
		tendFor(t, d, time.Second, func() bool { return false })
		toRedis.slow.Store(0)
		began := time.Now()
		tendFor(t, d, time.Hour, func() bool { return !d.upkeep.underway() })
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("what was underway took another %s, want few seconds", took)
		}
	})
}

// TestOneThatIsGoneHasAllCompared: where a called job was deleted others may have been,
// also such as are not called for an hour.
func TestOneThatIsGoneHasAllCompared(t *testing.T) {
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
