package waitdb_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// TestLook holds what is shown of meters, lanes and their jobs against a backlog
// of three jobs of one key and one of another.
func TestLook(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := t.Context()
		limiter := waitdb.New(throttle.New(rdb, throttle.Options{}))
		hour := throttle.Limit{Name: "hour", Kind: throttle.Funnel, Rate: throttle.PerHour(1)}
		must(t, limiter.Define(ctx, hour, throttle.Limit{Name: "log", Kind: throttle.SlidingLog, Rate: throttle.PerHour(5)},
			throttle.Limit{Name: "day", Kind: throttle.FixedWindow, Rate: throttle.PerDay(3), Zone: "Asia/Tokyo"}))
		for _, id := range []string{"a", "b", "c", "d"} {
			_, err := limiter.Acquire(ctx, waitdb.Job{JobID: throttle.JobID{Queue: "q", ID: id}},
				throttle.Need{Limit: "hour", Key: "k"}, throttle.Need{Limit: "log"})
			must(t, err)
		}
		_, err := limiter.Allow(ctx, "day", "")
		must(t, err)

		meters, err := limiter.Meters(ctx, false, throttle.Need{Limit: "hour", Key: "k"}, throttle.Need{Limit: "log"},
			throttle.Need{Limit: "day"}, throttle.Need{Limit: "none"})
		must(t, err)
		for i, want := range []waitdb.Meter{
			{Limit: "hour", Key: "k", Capacity: 1, Left: 0, Wanted: 3, Known: true},
			{Limit: "log", Capacity: 5, Left: 4, Wanted: 3, Known: true},
			{Limit: "day", Capacity: 3, Left: 2, Known: true},
			{Limit: "none"},
		} {
			got := meters[i]
			if i == 0 && got.NextIn < 59*time.Minute {
				t.Errorf("the next in %s, want 1 h", got.NextIn)
			}
			if exists := got.Capacity > 0; exists != (got.PerSecond > 0) {
				t.Errorf("%s gives %g a second", got.Limit, got.PerSecond)
			}
			got.NextIn, got.PerSecond = 0, 0
			expect(t, "meter", got, want)
		}

		waiting, in, turns, err := limiter.BacklogStats(ctx)
		must(t, err)
		expect(t, "crowd", [3]any{waiting, in, turns}, [3]any{3, 1, false})
		wants, err := limiter.Demands(ctx)
		must(t, err)
		slices.SortFunc(wants, func(a, b waitdb.Demand) int { return strings.Compare(a.Limit, b.Limit) })
		expect(t, "wants", wants, []waitdb.Demand{{"hour", "k", 3, true}, {"log", "", 3, false}})

		page, total, err := limiter.LanesFrom(ctx, 0, 10)
		must(t, err)
		expect(t, "lanes", total, 1)
		lane := waitdb.Lane{Name: "q\nhour|k\nlog|", Queue: "q", Meters: []string{"hour|k", "log|"}, Weight: 1, Waiting: 3, First: throttle.JobID{Queue: "q", ID: "b"}}
		expect(t, "page", page, []waitdb.Lane{lane})
		page, total, err = limiter.LanesFrom(ctx, 0, 0)
		must(t, err)
		expect(t, "no lanes of one", [2]int{len(page), total}, [2]int{0, 1})
	})
}
