package inspect

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/stats"
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

// TestStatus_ManyKeys: ten thousand keys cost no more commands than ten.
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
	counted := &commandCount{}
	rdb.AddHook(counted)
	q := New(rdb, limiter, "default")

	look := func() ([]Limit, error) {
		status, err := q.Status(ctx, false)
		return status.Limits, err
	}
	limits, err := look()
	if err != nil || len(limits) != 2 || limits[0].Waiting != 0 {
		t.Fatalf("%+v, %v; want two limits, without a sample", limits, err)
	}
	var asked []int
	for _, keys := range []int{10, 10_000} {
		found := stats.BacklogSample{At: time.Now(), Limits: map[string]stats.LimitDemand{"api": {
			Waiting: 2 * keys, Total: 2 * keys, KeyCount: keys, Since: time.Now().Add(-time.Hour), TopKeys: []string{"k", "l"},
		}}}
		text, err := json.Marshal(found)
		if err != nil {
			t.Fatal(err)
		}
		demand := map[string]any{}
		for i := range keys {
			demand[fmt.Sprint("api|k", i)] = 2
		}
		rdb.HSet(ctx, "hg:{default}:demand", demand)
		rdb.Set(ctx, "hg:{default}:backlog", text, time.Minute)
		counted.n = 0
		if limits, err = look(); err != nil {
			t.Fatal(err)
		}
		asked = append(asked, counted.n)
	}
	if asked[0] != asked[1] || asked[1] > 35 {
		t.Errorf("a look asks Redis %v times, want as often with many keys, and at most 35 times", asked)
	}
	l := limits[0]
	if l.Name != "api" || l.Waiting != 20_000 || l.KeyCount != 10_000 || time.Since(l.Since) < time.Hour || !l.ETA.Known || l.ETA.StartsIn < time.Hour {
		t.Errorf("%+v; want 20000 that wait at 10000 keys since an hour, and when the last runs", l)
	}
}

// TestSnapshot_ReadLimitsFails: the snapshot stays as it was.
func TestSnapshot_ReadLimitsFails(t *testing.T) {
	_, rdb := redistest.Mini(t)
	limiter := waitdb.New(throttle.New(rdb, throttle.Options{}))
	if err := limiter.Define(t.Context(), throttle.Limit{Name: "api", Kind: throttle.Funnel, Rate: throttle.PerHour(1)}); err != nil {
		t.Fatal(err)
	}
	k := Snapshot{}
	if err := k.ReadLimits(t.Context(), limiter); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := k.ReadLimits(ctx, limiter); err == nil || len(k.Limits) != 1 || k.Blocks == nil {
		t.Errorf("%v, and %d limits are known, want the one that was", err, len(k.Limits))
	}
}
