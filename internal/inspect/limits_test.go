package inspect

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// commandCount counts commands to Redis, also in pipelines.
type commandCount struct{ n int }

func (c *commandCount) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *commandCount) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.n++
		return next(ctx, cmd)
	}
}

func (c *commandCount) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.n += len(cmds)
		return next(ctx, cmds)
	}
}

// TestStatus_ManyKeys: ten thousand keys cost few commands.
func TestStatus_ManyKeys(t *testing.T) {
	_, rdb := redistest.Mini(t)
	limiter := waitdb.New(throttle.New(rdb, throttle.Options{}))
	ctx := t.Context()
	api, other := throttle.Limit{Name: "api", Kind: throttle.Funnel, Rate: throttle.PerHour(1)}, throttle.Limit{Name: "other", Kind: throttle.Concurrency, Capacity: 1}
	if err := limiter.Define(ctx, api, other); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		job := waitdb.Job{JobID: throttle.JobID{Queue: "q", ID: fmt.Sprint(i)}}
		if _, err := limiter.Acquire(ctx, job, throttle.Need{Limit: "api", Key: "k"}); err != nil {
			t.Fatal(err)
		}
	}
	demand := map[string]any{}
	for i := range 10_000 {
		demand[fmt.Sprint("api|k", i)] = 2
	}
	rdb.HSet(ctx, "hg:{default}:demand", demand)
	counted := &commandCount{}
	rdb.AddHook(counted)
	status, err := New(limiter).Status(ctx, false)
	if err != nil || counted.n > 50 || len(status.Limits) != 2 {
		t.Fatalf("%d commands, %v; want two limits with at most 50 commands", counted.n, err)
	}
	if l := status.Limits[0]; l.Name != "api" || l.Waiting != 2 || l.Total != 20_002 || l.KeyCount != 10_001 || l.Since.IsZero() || !l.ETA.Known || l.ETA.StartsIn < time.Hour {
		t.Errorf("%+v; want two jobs, 20002 permits at 10001 keys, and when the last runs", l)
	}
}

// TestStatus_OneBottleneck: a job needs three limits and waits for one of them. Only that limit holds
// the job back, counts it and is saturated; a quota that later jobs reach will be exhausted.
func TestStatus_OneBottleneck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Mini(t)
		limiter, ctx := waitdb.New(throttle.New(rdb, throttle.Options{})), t.Context()
		requests := throttle.Limit{Name: "requests", Kind: throttle.SlidingLog, Rate: throttle.PerMinute(120)}
		tokens := throttle.Limit{Name: "tokens", Kind: throttle.TokenBucket, Rate: throttle.PerMinute(6000), Capacity: 6000}
		daily := throttle.Limit{Name: "daily", Kind: throttle.FixedWindow, Rate: throttle.PerDay(20)}
		if err := limiter.Define(ctx, requests, tokens, daily); err != nil {
			t.Fatal(err)
		}
		if _, err := limiter.AllowN(ctx, "tokens", "model", 6000); err != nil {
			t.Fatal(err)
		}
		for i := range 30 {
			needs := []throttle.Need{{Limit: "requests", Key: "model"}, {Limit: "tokens", Key: "model", Cost: 1000}, {Limit: "daily"}}
			if _, err := limiter.Acquire(ctx, waitdb.Job{JobID: throttle.JobID{Queue: "q", ID: fmt.Sprint(i)}}, needs...); err != nil {
				t.Fatal(err)
			}
		}
		check := func(want map[string]string) {
			t.Helper()
			status, err := New(limiter).Status(ctx, false)
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range status.Limits {
				if got := fmt.Sprint(l.State, " ", l.Waiting, " ", l.WaitingPermits, " ", l.WaitedFor(status.At)); got != want[l.Name] {
					t.Errorf("%s: %s, want %s", l.Name, got, want[l.Name])
				}
			}
		}
		check(map[string]string{"requests": "idle 0 0 0s", "tokens": "flowing 20 20000 0s", "daily": "will be exhausted 10 10 0s"})
		time.Sleep(4 * time.Second)
		check(map[string]string{"requests": "idle 0 0 0s", "tokens": "saturated 20 20000 4s", "daily": "will be exhausted 10 10 0s"})
	})
}
