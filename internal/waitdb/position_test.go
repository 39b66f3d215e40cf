package waitdb_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/limittest"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

func TestPosition(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		define(t, s, perMinute("all", 3), perMinute("host", 2))
		needs := []throttle.Need{one("all"), {Limit: "host", Key: "h", Cost: 1}}
		for i := range 6 {
			s.acquire(t, fmt.Sprint(i), needs...)
		}
		since := time.UnixMicro(s.now.UnixMicro())
		s.wait(10 * time.Second)
		lane := waitdb.Lane{Name: "default\nall|k\nhost|h", Queue: "default", Meters: []string{"all|k", "host|h"}, Weight: 1} // both bind job 3, so the first does
		for id, want := range map[string]waitdb.Position{
			"2": {Rank: 1, Total: 4, StartsIn: 50 * time.Second, Bottleneck: "host|h"},
			"3": {Rank: 2, Total: 4, StartsIn: 50 * time.Second, Bottleneck: "all|k"},
			"4": {Rank: 3, Total: 4, StartsIn: 110 * time.Second, Bottleneck: "host|h"},
			"5": {Rank: 4, Total: 4, StartsIn: 110 * time.Second, Bottleneck: "host|h"},
		} {
			want.Lane, want.StartsAt = lane, time.UnixMicro(s.now.Add(want.StartsIn).UnixMicro())
			want.Since, want.WaitedFor, want.Known, want.Estimated = since, 10*time.Second, true, true
			got, waits, err := s.lanes.Position(background, job(id).JobID)
			must(t, err)
			expect(t, id+" waits", waits, true)
			expect(t, id, got, want)
			expect(t, "put back", got.PutBack(), got.StartsIn*11/10+5*time.Second)
		}
		for _, id := range []string{"0", "missing"} {
			_, waits, err := s.lanes.Position(background, job(id).JobID)
			must(t, err)
			expect(t, id+" waits", waits, false)
		}
		s.wait(50 * time.Second)
		s.pump(t)
		got, _, err := s.lanes.Position(background, job("3").JobID)
		must(t, err)
		expect(t, "granted", [2]any{got.Granted, got.StartsIn}, [2]any{true, time.Duration(0)})
		got, _, err = s.lanes.Position(background, job("4").JobID)
		must(t, err)
		expect(t, "not yet", [4]any{got.Granted, got.Rank, got.Total, got.StartsIn}, [4]any{false, 1, 2, time.Minute})
	})
}

// TestPosition_DifferentCosts: those before a job count with what they cost, whatever it
// costs itself; be they 30, of which each is looked at, or more. Who waits elsewhere
// changes nothing.
func TestPosition_DifferentCosts(t *testing.T) {
	for _, settled := range []bool{false, true} {
		t.Run(fmt.Sprint("the lanes are counted: ", settled), func(t *testing.T) {
			onRedis(t, func(t *testing.T, s *fixture) {
				define(t, s, throttle.Limit{Name: "l", Kind: throttle.Funnel, Rate: throttle.PerSecond(10), Capacity: 100}, perMinute("elsewhere", 1))
				for _, id := range []string{"x", "y"} {
					s.acquire(t, id, throttle.Need{Limit: "elsewhere"})
				}
				cost := func(n int) throttle.Need { return throttle.Need{Limit: "l", Key: "k", Cost: n} }
				s.acquire(t, "a", cost(100))
				promoted := func(n, wanted int) {
					t.Helper()
					d := s.acquire(t, fmt.Sprint(n), cost(wanted))
					place, _, err := s.lanes.Position(background, job(fmt.Sprint(n)).JobID)
					must(t, err)
					expect(t, fmt.Sprint("expected of ", n), place.StartsIn, d.RetryAfter)
				}
				for n := range 30 {
					promoted(n, 100)
					if settled {
						s.pump(t)
					}
				}
				promoted(30, 1)
				promoted(31, 50)
				for n, want := range map[int]time.Duration{
					0: 10 * time.Second, 29: 300 * time.Second, 30: 300*time.Second + 100*time.Millisecond, 31: 305*time.Second + 100*time.Millisecond,
				} {
					place, _, err := s.lanes.Position(background, job(fmt.Sprint(n)).JobID)
					must(t, err)
					expect(t, fmt.Sprint("job ", n), place.StartsIn, want)
				}
				promoted(32, 1)
				for n := 33; n < 100; n++ {
					promoted(n, 100)
				}
			})
		})
	}
}

// TestPosition_Windows: what is left of a window when no job fits in any more is lost.
func TestPosition_Windows(t *testing.T) {
	for _, kind := range []throttle.Kind{throttle.FixedWindow, throttle.SlidingLog, throttle.SlidingWindow} {
		for n, atOnce := range map[int]int{4: 1, 6: 2, 40: 13} {
			t.Run(fmt.Sprint(kind, " ", n), func(t *testing.T) {
				onRedis(t, func(t *testing.T, s *fixture) {
					define(t, s, throttle.Limit{Name: "l", Kind: kind, Rate: throttle.PerSecond(n)})
					for i := range 5 * atOnce {
						d := s.acquire(t, fmt.Sprint(i), throttle.Need{Limit: "l", Cost: 3})
						want := time.Duration(i/atOnce) * time.Second
						if off := d.RetryAfter - want; off < -time.Second/2 || off > time.Second/2 {
							t.Errorf("job %d is to run in %s, want %s", i, d.RetryAfter, want)
						}
					}
				})
			})
		}
	}
}

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
			{Limit: "hour", Key: "k", Kind: "funnel", Capacity: 1, Left: 0, Wanted: 3, Known: true},
			{Limit: "log", Kind: "sliding_log", Capacity: 5, Left: 4, Wanted: 3, Known: true},
			{Limit: "day", Kind: "fixed_window", Capacity: 3, Left: 2, Known: true},
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

// TestFarTimesSaturate: one a year, and 300 jobs. No time wraps around.
func TestFarTimesSaturate(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	const year, most = 365 * throttle.Day, 230 * 365 * throttle.Day
	onRedis(t, func(t *testing.T, s *fixture) {
		for _, kind := range limittest.Kinds[:5] {
			l := throttle.Limit{Name: string(kind), Kind: kind, Rate: throttle.Every(year)}
			define(t, s, l)
			last := time.Duration(-1)
			for i := range 300 {
				d := s.acquire(t, fmt.Sprint(kind, i), one(l.Name))
				if d.RetryAfter < last || d.RetryAfter > most || d.PutBack < 0 || i > 0 && d.PutBack < d.RetryAfter {
					t.Fatalf("job %d: retry after %s, put back %s; the one before it %s", i, d.RetryAfter, d.PutBack, last)
				}
				last = d.RetryAfter
			}
			if last < 220*year {
				t.Errorf("%s: the last waits %s", kind, last)
			}
		}
		for name, l := range s.forecast(t).Limits() {
			if l.Known {
				t.Errorf("%s: the last runs in %s, after the end of time", name, l.StartsIn)
			}
		}
	})
}
