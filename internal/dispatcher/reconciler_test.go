package dispatcher

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
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

// lasts delays each call of a script, or, without one, each command.
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

// newReconciler returns a dispatcher that gives no turns, and extends the put-backs of queues.
func newReconciler(rdb redis.UniversalClient, queues ...string) *dispatcher {
	rdb.AddHook(redistest.Hook(waitsForever))
	limiter := waitdb.New(throttle.New(rdb, throttle.Options{}))
	discard := slog.New(slog.DiscardHandler)
	log := redishealth.New(discard, "Redis", nil)
	return &dispatcher{
		Config:        Config{Waits: limiter, DB: asynqdb.New(rdb), Log: discard, ReconcileInterval: DefaultReconcileInterval},
		limiterHealth: log.Watch(), queuesHealth: log.Watch(), core: fairqueue.New(), clock: clock{0, time.Now()}, reconciler: reconciler{queues: queues},
	}
}

// reconcileFor reconciles for some time.
func reconcileFor(t *testing.T, d *dispatcher, long time.Duration, until func() bool) {
	for end := time.Now().Add(long); time.Now().Before(end); time.Sleep(max(roundInterval, time.Until(d.nextCheck().due()), time.Until(d.reconciler.restUntil))) {
		if err := d.reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
		if until() {
			return
		}
	}
}

// hasChecked reports whether each check has ended once.
func (r *reconciler) hasChecked() bool {
	return r.checks != nil && !slices.ContainsFunc(r.checks, func(c *check) bool { return c.more || c.last.IsZero() })
}

func TestReconciler_ManyPutBacks_AllExtended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Mini(t)
		end := time.Now().Add(10 * time.Second).Unix()
		for i := range 2500 {
			id := fmt.Sprint(i)
			rdb.HSet(t.Context(), asynqdb.Hash("default", id), "state", "retry", "denied", end)
			rdb.ZAdd(t.Context(), asynqdb.Key("default", asynqdb.Retry), redis.Z{Score: float64(end), Member: id})
		}
		reconcileFor(t, newReconciler(rdb, "default"), 9*time.Second, func() bool { return false })
		if n := rdb.ZCount(t.Context(), asynqdb.Key("default", asynqdb.Retry), "-inf", fmt.Sprint(end)).Val(); n > 0 {
			t.Errorf("%d put-backs end, want all moved on", n)
		}
	})
}

// Only orphans that were sent back are logged; if that fails they are found once more.
func TestReconciler_OrphanNotSentBack_FoundAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Mini(t)
		end := time.Now().Add(time.Minute).Unix()
		rdb.HSet(t.Context(), asynqdb.Hash("default", "it"), "state", "retry", "denied", end, "scope", "hg:{default}:")
		rdb.ZAdd(t.Context(), asynqdb.Key("default", asynqdb.Retry), redis.Z{Score: float64(end), Member: "it"})
		rdb.AddHook(redistest.Hook(lasts(2*time.Second, script.New("asynq/promote").Hash())))
		d := newReconciler(rdb)
		var log strings.Builder
		d.Log = slog.New(slog.NewTextHandler(&log, nil))
		d.reconciler.checks = []*check{{step: d.checkOrphans, queue: "default", interval: &d.ReconcileInterval}}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := d.reconcile(short); err == nil || log.Len() > 0 {
			t.Errorf("cut short: error %v, log %s; want an error, and nothing promoted", err, &log)
		}
		d.core = fairqueue.New() // it gave the lease back
		if err := d.reconcile(t.Context()); err != nil || !strings.Contains(log.String(), "jobs=1") {
			t.Errorf("error %v, log %s; want one job sent back", err, &log)
		}
		if state := rdb.HGet(t.Context(), asynqdb.Hash("default", "it"), "state").Val(); state != "pending" {
			t.Errorf("the job is in state %s, want pending", state)
		}
		if d.nextCheck(); d.reconciler.jobInterval != missingInterval {
			t.Errorf("the jobs are checked again after %s, want %s", d.reconciler.jobInterval, missingInterval)
		}
	})
}

// A pass ends although put-backs take all the time that there is.
func TestReconciler_PassEndsBesidePutBacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Mini(t)
		var queues []string
		for i := range 98 {
			queues = append(queues, fmt.Sprintf("q%03d", i))
			rdb.SAdd(t.Context(), "asynq:queues", queues[i])
		}
		rdb.AddHook(redistest.Hook(lasts(20*time.Millisecond, "")))
		d, began := newReconciler(rdb, queues...), time.Now()
		d.core.AddLane("q000\napi|", 1) // turns are due
		reconcileFor(t, d, time.Hour, d.reconciler.hasChecked)
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("a pass over %d queues took %s, want half a minute at most", len(queues), took)
		}
	})
}

// Redis hung while put-backs were extended: the reconciler does not rest for as long.
func TestReconciler_RestsShortlyAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Mini(t)
		rdb.SAdd(t.Context(), "asynq:queues", "default")
		up := time.Now().Add(25 * time.Second)
		rdb.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			time.Sleep(time.Until(up))
			return next(ctx, cmd)
		}))
		d := newReconciler(rdb, "default")
		reconcileFor(t, d, time.Second, func() bool { return false })
		began := time.Now()
		reconcileFor(t, d, time.Hour, d.reconciler.hasChecked)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("what was underway took another %s, want few seconds", took)
		}
	})
}
