package page_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/throttle"
)

// after is a world on a redis-server whose worker goes on with what it has done for
// so long before, in virtual time: the same jobs, limits and handlers, and what
// they and the operators did is what history and changelog say.
func after(t *testing.T, past time.Duration) *world {
	t.Helper()
	var kept []keep
	jobs := 0
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(wallClock().Add(-past)))
		_, rdb := redistest.Mini(t)
		w := newWorld(t, rdb)
		stop := w.run(busyDay)
		w.story(&jobs, past)
		for time.Now().Before(wallClock()) { // what the virtual time took
			time.Sleep(time.Second)
		}
		stop()
		kept = w.dump()
	})
	rdb := redistest.Real(t)
	restore(t, rdb, kept)
	w := newWorld(t, rdb)
	w.run(busyDay)
	var producer sync.WaitGroup
	t.Cleanup(producer.Wait)
	producer.Go(func() {
		for w.t.Context().Err() == nil {
			w.traffic(&jobs, 9)
			select {
			case <-w.t.Context().Done():
			case <-time.After(time.Second):
			}
		}
	})
	return w
}

// traffic is what producers add in a second.
func (w *world) traffic(jobs *int, n int) {
	w.add(jobs, 2, "mail", "")
	w.add(jobs, 3, "api-daily", "")
	w.add(jobs, n, "everyone", "")
}

// add adds jobs, numbered on.
func (w *world) add(jobs *int, n int, limit, key string) {
	for range n {
		*jobs++
		w.enqueue(fmt.Sprintf("%s-%05d", limit, *jobs), limit, key)
	}
}

// wallClock is the time outside of a bubble.
func wallClock() time.Time {
	var now syscall.Timeval
	if err := syscall.Gettimeofday(&now); err != nil {
		panic(err) // there is always one
	}
	return time.Unix(now.Unix())
}

// busyDay is what jobs do in the story.
func busyDay(ctx context.Context, limit, key string) error {
	each := 50 * time.Millisecond
	switch {
	case limit == "slots":
		each = 25 * time.Second
	case limit == "everyone" && key == "gone.example":
		return fmt.Errorf("the server answered 404: %w", asynq.SkipRetry)
	case key == "api.example" && time.Now().Second() < 2:
		return scheduler.RateLimited(time.Now().Add(3 * time.Minute))
	}
	select {
	case <-ctx.Done():
		return errors.New("the worker stops")
	case <-time.After(each):
		return nil
	}
}

// story is what producers and operators do in so long a time.
func (w *world) story(jobs *int, past time.Duration) {
	ops := throttle.WithActor(w.t.Context(), "ops@terminal")
	funnel := func(per time.Duration) throttle.Limit {
		return throttle.Limit{Name: "host", Kind: throttle.Funnel, Rate: throttle.Rate{N: 1, Per: per}}
	}
	w.must(w.limiter.Set(ops, funnel(4*time.Second)))
	crowd := max(20, int(past/time.Second)*4/5)
	const ticks = 30
	for tick := range ticks {
		switch tick {
		case 2, 6, 22:
			for i, host := range []string{"news.example", "slow.example", "api.example", "blog.example", "shop.example", "wiki.example", "docs.example"} {
				w.add(jobs, crowd/(i+1), "host", host)
			}
		case 8:
			w.must(w.limiter.Set(ops, funnel(2*time.Second)))
		case 20:
			w.add(jobs, 5, "everyone", "gone.example")
		case 24:
			w.add(jobs, 40, "slots", "")
		case 28:
			w.must(w.limiter.Pause(ops, "mail"))
		}
		// Some traffic in each of so many parts.
		step := past / ticks
		for begin := time.Now(); time.Since(begin) < step; time.Sleep(time.Second) {
			w.traffic(jobs, 4+tick/6)
		}
	}
}

// keep is one key of Redis, with all that is in it.
type keep struct {
	name  string
	life  time.Duration
	value any
}

// dump reads all keys.
func (w *world) dump() (all []keep) {
	ctx := w.t.Context()
	names, err := w.rdb.Keys(ctx, "*").Result()
	w.must(err)
	for _, name := range names {
		k := keep{name: name}
		k.life, err = w.rdb.PTTL(ctx, name).Result()
		w.must(err)
		kind, err := w.rdb.Type(ctx, name).Result()
		w.must(err)
		switch kind {
		case "string":
			k.value, err = w.rdb.Get(ctx, name).Result()
		case "hash":
			k.value, err = w.rdb.HGetAll(ctx, name).Result()
		case "set":
			k.value, err = w.rdb.SMembers(ctx, name).Result()
		case "list":
			var items []string
			items, err = w.rdb.LRange(ctx, name, 0, -1).Result()
			k.value = list(items)
		case "zset":
			k.value, err = w.rdb.ZRangeWithScores(ctx, name, 0, -1).Result()
		case "stream":
			k.value, err = w.rdb.XRange(ctx, name, "-", "+").Result()
		case "none": // it ended just now
			continue
		default:
			err = fmt.Errorf("%s is a %s", name, kind)
		}
		w.must(err)
		all = append(all, k)
	}
	return all
}

// list tells a list from a set.
type list []string

// restore writes what dump has read.
func restore(t *testing.T, rdb redis.UniversalClient, all []keep) {
	t.Helper()
	pipe := rdb.Pipeline()
	for _, k := range all {
		switch value := k.value.(type) {
		case string:
			pipe.Set(t.Context(), k.name, value, 0)
		case map[string]string:
			pipe.HSet(t.Context(), k.name, value)
		case []string:
			pipe.SAdd(t.Context(), k.name, value)
		case list:
			pipe.RPush(t.Context(), k.name, []string(value))
		case []redis.Z:
			pipe.ZAdd(t.Context(), k.name, value...)
		case []redis.XMessage:
			for _, m := range value {
				pipe.XAdd(t.Context(), &redis.XAddArgs{Stream: k.name, ID: m.ID, Values: m.Values})
			}
		}
		if k.life > 0 {
			pipe.PExpire(t.Context(), k.name, k.life)
		}
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
}
