package dispatcher

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/internal/redishealth"
	"github.com/headgate/headgate/internal/script"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// lasts has each call of a script last, or, without one, each command.
func lasts(d time.Duration, hash string) func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	return func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if args := cmd.Args(); hash == "" || len(args) > 1 && args[0] == "evalsha" && args[1] == hash {
			time.Sleep(d)
		}
		return next(ctx, cmd)
	}
}

// waitsForever answers for Redis that all jobs wait, each for an unknown time.
func waitsForever(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	args := cmd.Args()
	if args[0] != "evalsha" || args[1] != script.New("lanes/positions").Hash() {
		return next(ctx, cmd)
	}
	const ids = 4 // where they begin
	places := make([]any, (len(args)-ids)/2)
	for i := range places {
		places[i] = []any{int64(0), int64(1), int64(1), int64(0), int64(0), "", "default\napi|", int64(0), int64(0)}
	}
	cmd.(*redis.Cmd).SetVal(places)
	return nil
}

// tender is a dispatcher that gives no turns, and looks after the put-backs of queues.
func tender(rdb redis.UniversalClient, queues ...string) *dispatcher {
	rdb.AddHook(redistest.Hook(waitsForever))
	limiter := waitdb.New(throttle.New(rdb, throttle.RedisOptions{}))
	discard := slog.New(slog.DiscardHandler)
	log := redishealth.New(discard, "Redis", nil)
	return &dispatcher{
		Config: Config{Waits: limiter, DB: asynqdb.New(rdb), Log: discard, ReconcileInterval: ReconcileInterval},
		limits: log.Watch(), queues: log.Watch(), core: fairqueue.New(), clock: clock{0, time.Now()}, upkeep: upkeep{queues: queues},
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
		rdb.AddHook(redistest.Hook(lasts(2*time.Second, script.New("asynq/promote").Hash())))
		d := tender(rdb)
		var log strings.Builder
		d.Log = slog.New(slog.NewTextHandler(&log, nil))
		d.upkeep.pass = comparison{queues: []string{"default"}}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := d.upkeepStep(short); err == nil || log.Len() > 0 {
			t.Errorf("cut short: error %v, log %s; want an error, and nothing told", err, &log)
		}
		d.core = fairqueue.New() // it gave the lease back
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
		rdb.AddHook(redistest.Hook(lasts(20*time.Millisecond, "")))
		d, began := tender(rdb, queues...), time.Now()
		d.core.AddLane("q000\napi|", 1) // turns are due
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
		up := time.Now().Add(25 * time.Second)
		rdb.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			time.Sleep(time.Until(up))
			return next(ctx, cmd)
		}))
		d := tender(rdb, "default")
		tendFor(t, d, time.Second, func() bool { return false })
		began := time.Now()
		tendFor(t, d, time.Hour, func() bool { return !d.upkeep.underway() })
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("what was underway took another %s, want few seconds", took)
		}
	})
}
