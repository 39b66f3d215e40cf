package main

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/history"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/throttle"
)

// commandCount counts what Redis is asked, in pipelines too.
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

// TestTopAsksLittle: a look says since when and until when is waited, and asks
// Redis as little with ten thousand keys as with ten.
func TestTopAsksLittle(t *testing.T) {
	_, rdb := redistest.Mini(t)
	limiter := throttle.NewLanes(throttle.New(rdb, throttle.RedisOptions{}))
	ctx := t.Context()
	api, other := throttle.Limit{Name: "api", Kind: throttle.Funnel, Rate: throttle.PerHour(1)}, throttle.Limit{Name: "other", Kind: throttle.Concurrency, Capacity: 1}
	if err := limiter.Define(ctx, api, other); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		job := throttle.Job{JobID: throttle.JobID{Queue: "q", ID: fmt.Sprint(i)}}
		if _, err := limiter.Acquire(ctx, job, throttle.Need{Limit: "api", Key: "k"}); err != nil {
			t.Fatal(err)
		}
	}
	counted := &commandCount{}
	rdb.AddHook(counted)
	r := topRedis{&queues{rdb, &config.Config{Scope: "default"}, asynq.NewInspectorFromRedisClient(rdb), limiter}}

	view, err := r.look(ctx, "")
	if err != nil || view.told || view.jobs != 2 || view.chosen != "api" {
		t.Fatalf("%+v, %v; want two jobs, and that nobody has counted them", view, err)
	}
	var asked []int
	for _, keys := range []int{10, 10_000} {
		found := history.Survey{At: time.Now(), Limits: map[string]history.Waiting{"api": {
			Jobs: 2 * keys, Keys: keys, Oldest: time.Now().Add(-time.Hour), Busiest: []history.Backed{{Key: "k", Jobs: 2}, {Key: "l", Jobs: 2}},
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
		rdb.Set(ctx, "hg:{default}:survey", text, time.Minute)
		counted.n = 0
		if view, err = r.look(ctx, ""); err != nil {
			t.Fatal(err)
		}
		asked = append(asked, counted.n)
	}
	if asked[0] != asked[1] || asked[1] > 15 {
		t.Errorf("a look asks Redis %v times, want as often with many keys, and at most 15 times", asked)
	}
	l := view.limits[0]
	if l.Name != "api" || l.waiting != 20_000 || l.keys != 10_000 || l.since < time.Hour || l.last < time.Hour || !l.known {
		t.Errorf("%+v; want 20000 that wait at 10000 keys since an hour, and when the last runs", l)
	}
	if len(view.keys) != 2 || view.keys[0].Key != "k" || view.keys[0].Wanted != 2 || view.keys[0].jobs != 2 {
		t.Errorf("the keys are %+v, want k and l", view.keys)
	}
}

// TestTopSparesWhoWaits: a limit is not made so low that a job which waits could never
// run.
func TestTopSparesWhoWaits(t *testing.T) {
	_, rdb := redistest.Mini(t)
	limiter := throttle.NewLanes(throttle.New(rdb, throttle.RedisOptions{}))
	api := throttle.Limit{Name: "api", Kind: throttle.SlidingLog, Rate: throttle.PerMinute(10)}
	if err := limiter.Define(t.Context(), api); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"runs", "waits"} {
		if _, err := limiter.Acquire(t.Context(), throttle.Job{JobID: throttle.JobID{ID: id}}, throttle.Need{Limit: "api", Cost: 9}); err != nil {
			t.Fatal(err)
		}
	}
	r := topRedis{&queues{rdb: rdb, limiter: limiter}}
	to := func(n int) error {
		next := api
		next.Rate.N = n
		return r.set(t.Context(), api, next)
	}
	want := `limit api has 1 job waiting for more permits at once than 8, which are then archived; "worker limits set" with --yes if that is meant`
	if err := to(8); err == nil || err.Error() != want {
		t.Errorf("8 permits: %v, want %s", err, want)
	}
	if err := to(9); err != nil {
		t.Errorf("9 permits: %v", err)
	}
}
