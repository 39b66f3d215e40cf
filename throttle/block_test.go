package throttle_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

func TestPause(t *testing.T) {
	onEvery(t, func(t *testing.T, s *stage) {
		ctx := t.Context()
		for _, limit := range threes {
			define(t, s, limit)
			must(t, s.Pause(ctx, limit.Name))
			d := ask(t, s, limit.Name, 1)
			expect(t, limit.Name+" paused", [3]any{d.Outcome, d.Remaining, d.RetryAfter}, [3]any{denied, 0, time.Minute})
			changed := limit
			changed.Margin = time.Millisecond
			if limit.Kind == throttle.Concurrency {
				changed.Margin, changed.Capacity = 0, 2
			}
			define(t, s, changed)
			must(t, s.Set(ctx, limit))
			expect(t, limit.Name+" paused after redefinition", ask(t, s, limit.Name, 1).Outcome, denied)
			must(t, s.Resume(ctx, limit.Name))
			must(t, s.Resume(ctx, limit.Name))
			expect(t, limit.Name+" resumed", ask(t, s, limit.Name, 1).Outcome, allowed)
		}
	})
}

func TestBlock(t *testing.T) {
	onEvery(t, func(t *testing.T, s *stage) {
		ctx := t.Context()
		define(t, s, threes...)
		for _, limit := range threes {
			must(t, s.Block(ctx, limit.Name, "k", s.now.Add(5*time.Second)))
			d := ask(t, s, limit.Name, 1)
			expect(t, limit.Name+" blocked", [3]any{d.Outcome, d.Remaining, d.RetryAfter}, [3]any{denied, 0, 5 * time.Second})
			expect(t, limit.Name+" above the capacity while blocked", ask(t, s, limit.Name, 4).Remaining, 0)
			other, err := s.Allow(ctx, limit.Name, "other")
			must(t, err)
			expect(t, limit.Name+" other key", other.Outcome, allowed)

			must(t, s.Block(ctx, limit.Name, "k", s.now.Add(-time.Second)))
			expect(t, limit.Name+" unblocked", ask(t, s, limit.Name, 1).Outcome, allowed)

			must(t, s.Block(ctx, limit.Name, "k", s.now.Add(5*time.Second)))
			s.wait(5*time.Second - time.Microsecond)
			expect(t, limit.Name+" a microsecond early", ask(t, s, limit.Name, 1).RetryAfter, time.Microsecond)
			s.wait(time.Microsecond)
			expect(t, limit.Name+" at the end of the block", ask(t, s, limit.Name, 1).Outcome, allowed)

			must(t, s.Block(ctx, limit.Name, "k", s.now.Add(time.Hour)))
			must(t, s.Reset(ctx, limit.Name, "k"))
			d = ask(t, s, limit.Name, 0)
			expect(t, limit.Name+" after reset", [3]any{d.Outcome, d.Remaining, d.ResetAfter}, [3]any{allowed, 3, time.Duration(0)})
		}
	})
}

func TestBlocks(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := t.Context()
		limiter := throttle.New(rdb, throttle.Options{})
		must(t, limiter.Define(ctx, log(5), throttle.Limit{Name: "a", Kind: throttle.Funnel, Rate: throttle.PerHour(1)}))
		now, err := rdb.Time(ctx).Result()
		must(t, err)
		until := now.Add(time.Hour).Truncate(time.Microsecond)
		must(t, limiter.Block(ctx, "log", "k|2", until.Add(time.Hour)))
		must(t, limiter.Block(ctx, "log", "", until))
		must(t, limiter.Block(ctx, "a", "k", until))
		must(t, limiter.Block(ctx, "log", "opened", until))
		must(t, limiter.Block(ctx, "log", "opened", now))
		got, err := limiter.Blocks(ctx, "log")
		must(t, err)
		expect(t, "blocked", got, []throttle.Blocked{{Key: "", Until: until}, {Key: "k|2", Until: until.Add(time.Hour)}})

		none, err := throttle.New(rdb, throttle.Options{Scope: "other"}).Blocks(ctx, "log")
		must(t, err)
		expect(t, "blocked in another scope", len(none), 0)
	})
}
