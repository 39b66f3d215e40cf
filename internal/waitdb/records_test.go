package waitdb_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// twice returns all that is on it twice.
func twice(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	err := next(ctx, cmd)
	if scan, ok := cmd.(*redis.ScanCmd); ok {
		page, cursor := scan.Val()
		scan.SetVal(slices.Concat(page, page), cursor)
	}
	return err
}

// TestScan_Duplicates: what a scan of Redis returns twice, as it may, counts once.
func TestScan_Duplicates(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		define(t, s, perMinute("l", 1))
		for i := range 3 {
			s.acquire(t, fmt.Sprint(i), one("l"))
		}
		s.rdb.AddHook(redistest.Hook(twice))
		n, err := s.lanes.CountWaiting(background, "l", 0)
		must(t, err)
		expect(t, "who wait", n, 2)
	})
}

func TestCountWaiting(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := t.Context()
		limiter := waitdb.New(throttle.New(rdb, throttle.Options{}))
		must(t, limiter.Define(ctx, throttle.Limit{Name: "log", Kind: throttle.SlidingLog, Rate: throttle.PerHour(1)}, throttle.Limit{Name: "slog", Kind: throttle.Funnel, Rate: throttle.PerHour(1), Capacity: 5}))
		for i := range 7 { // one runs; of the others some need both
			needs := []throttle.Need{{Limit: "log", Key: "k"}}
			if i%2 == 1 {
				needs = append(needs, throttle.Need{Limit: "slog", Key: "a", Cost: i}, throttle.Need{Limit: "slog", Key: "b"})
			}
			_, err := limiter.Acquire(ctx, waitdb.Job{JobID: throttle.JobID{Queue: "slog|q", ID: fmt.Sprint(i)}}, needs...)
			must(t, err)
		}
		for limit, want := range map[string][]int{"log": {6, 6, 0}, "slog": {3, 3, 2, 2, 1, 1, 0}, "q": {0}, "lo": {0}} {
			for least, want := range want {
				n, err := limiter.CountWaiting(ctx, limit, least)
				must(t, err)
				expect(t, fmt.Sprintf("jobs that wait for %d of %s", least, limit), n, want)
			}
		}
		for least, want := range []int{3, 3, 0} {
			n, err := limiter.CountWaiting(ctx, "slog", least, "b")
			must(t, err)
			expect(t, fmt.Sprintf("jobs that wait for %d of slog of b", least), n, want)
		}
	})
}
