package throttle_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/throttle"
)

func TestWaiting(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		define(t, s, perMinute("all", 3), perMinute("host", 2))
		needs := []throttle.Need{one("all"), {Limit: "host", Key: "h", Cost: 1}}
		for i := range 6 {
			s.acquire(t, fmt.Sprint(i), needs...)
		}
		since := time.UnixMicro(s.now.UnixMicro())
		s.wait(10 * time.Second)
		lane := []string{"all|k", "host|h"} // both bind job 3, so the first does
		for id, want := range map[string]throttle.Place{
			"2": {Position: 1, Waiting: 4, In: 50 * time.Second, Binding: "host|h"},
			"3": {Position: 2, Waiting: 4, In: 50 * time.Second, Binding: "all|k"},
			"4": {Position: 3, Waiting: 4, In: 110 * time.Second, Binding: "host|h"},
			"5": {Position: 4, Waiting: 4, In: 110 * time.Second, Binding: "host|h"},
		} {
			want.Lane, want.Expected = lane, time.UnixMicro(s.now.Add(want.In).UnixMicro())
			want.Since, want.For, want.Known = since, 10*time.Second, true
			got, waits, err := s.lanes.Waiting(background, job(id).JobID)
			must(t, err)
			expect(t, id+" waits", waits, true)
			expect(t, id, got, want)
			expect(t, "put back", got.PutBack(), got.In*11/10+5*time.Second)
		}
		for _, id := range []string{"0", "nobody"} {
			_, waits, err := s.lanes.Waiting(background, job(id).JobID)
			must(t, err)
			expect(t, id+" waits", waits, false)
		}
		s.wait(50 * time.Second)
		s.pump(t)
		got, _, err := s.lanes.Waiting(background, job("3").JobID)
		must(t, err)
		expect(t, "called", [2]any{got.Called, got.In}, [2]any{true, time.Duration(0)})
		got, _, err = s.lanes.Waiting(background, job("4").JobID)
		must(t, err)
		expect(t, "not yet", [4]any{got.Called, got.Position, got.Waiting, got.In}, [4]any{false, 1, 2, time.Minute})
	})
}

// TestExpectedAmongOtherCosts: those before a job count with what they cost, whatever it
// costs itself; be they 30, of which each is looked at, or more. Who waits elsewhere
// changes nothing.
func TestExpectedAmongOtherCosts(t *testing.T) {
	for _, settled := range []bool{false, true} {
		t.Run(fmt.Sprint("the lanes are counted: ", settled), func(t *testing.T) {
			onRedis(t, func(t *testing.T, s *stage) {
				define(t, s, throttle.Limit{Name: "l", Kind: throttle.Funnel, Rate: throttle.PerSecond(10), Capacity: 100}, perMinute("elsewhere", 1))
				for _, id := range []string{"x", "y"} {
					s.acquire(t, id, throttle.Need{Limit: "elsewhere"})
				}
				cost := func(n int) throttle.Need { return throttle.Need{Limit: "l", Key: "k", Cost: n} }
				s.acquire(t, "a", cost(100))
				told := func(n, wanted int) {
					t.Helper()
					d := s.acquire(t, fmt.Sprint(n), cost(wanted))
					place, _, err := s.lanes.Waiting(background, job(fmt.Sprint(n)).JobID)
					must(t, err)
					expect(t, fmt.Sprint("expected of ", n), place.In, d.RetryAfter)
				}
				for n := range 30 {
					told(n, 100)
					if settled {
						s.pump(t)
					}
				}
				told(30, 1)
				told(31, 50)
				for n, want := range map[int]time.Duration{
					0: 10 * time.Second, 29: 300 * time.Second, 30: 300*time.Second + 100*time.Millisecond, 31: 305*time.Second + 100*time.Millisecond,
				} {
					place, _, err := s.lanes.Waiting(background, job(fmt.Sprint(n)).JobID)
					must(t, err)
					expect(t, fmt.Sprint("job ", n), place.In, want)
				}
				told(32, 1)
				for n := 33; n < 100; n++ {
					told(n, 100)
				}
			})
		})
	}
}

// TestExpectedAmongLanes: a lane that shares a meter has as many turns as the others,
// which cost what its own do.
func TestExpectedAmongLanes(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		define(t, s, throttle.Limit{Name: "l", Kind: throttle.Funnel, Rate: throttle.PerSecond(10), Capacity: 100}, perMinute("tenant", 100))
		needs := func(tenant string, n int) []throttle.Need {
			return []throttle.Need{{Limit: "l", Key: "k", Cost: n}, {Limit: "tenant", Key: tenant, Cost: 1}}
		}
		s.acquire(t, "a", needs("a", 100)...)
		for i := range 10 {
			s.acquire(t, fmt.Sprint("big", i), needs("big", 100)...)
			s.acquire(t, fmt.Sprint("other", i), needs("other", 100)...)
		}
		s.acquire(t, "small", needs("big", 1)...)
		s.pump(t)
		place, _, err := s.lanes.Waiting(background, job("small").JobID)
		must(t, err)
		expect(t, "behind ten of its own and ten others", place.In, 200*time.Second+100*time.Millisecond)
	})
}

func TestForecast(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		define(t, s, perMinute("l", 2), throttle.Limit{Name: "f", Kind: throttle.Funnel, Rate: throttle.PerSecond(1), Capacity: 2})
		for i := range 5 {
			s.acquire(t, fmt.Sprint(i), one("l"))
			s.acquire(t, fmt.Sprint("f", i), one("f"))
		}
		need := func(limit, key string, permits int) throttle.Need {
			return throttle.Need{Limit: limit, Key: key, Cost: permits}
		}
		define(t, s, perMinute("p", 1), throttle.Limit{Name: "slots", Kind: throttle.Concurrency, Capacity: 2})
		must(t, s.lanes.Pause(background, "p"))
		before := snapshot(t, s)
		got, err := s.lanes.Forecast(background, need("f", "k", 0), need("f", "k2", 10), need("l", "k", 4), need("none", "k", 1),
			need("p", "k", 1), need("slots", "", 2), need("slots", "k", 3))
		must(t, err)
		expect(t, "forecast", got, []throttle.Forecast{
			{Need: need("f", "k", 1), Waiting: 3, In: 4 * time.Second, Known: true},
			{Need: need("f", "k2", 10), In: 8 * time.Second, Known: true},
			{Need: need("l", "k", 4), Waiting: 3, In: 4 * time.Minute, Known: true},
			{Need: need("none", "k", 1)},
			{Need: need("p", "k", 1), In: time.Minute, Known: true, Unsure: true},
			{Need: need("slots", "", 2), Known: true},
			{Need: need("slots", "k", 3), In: 30 * time.Second, Known: true, Unsure: true},
		})
		expect(t, "keys afterwards", snapshot(t, s), before)
	})
}

// TestForecastBeyondTheCalendar: a forecast counts by the windows of its day, also when
// nobody has asked for a permit since the last that Redis was told.
func TestForecastBeyondTheCalendar(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		day := throttle.Limit{Name: "day", Kind: throttle.FixedWindow, Rate: throttle.PerDay(1), Zone: "America/New_York"}
		define(t, s, day)
		s.wait(200 * 24 * time.Hour) // it is 8:00 in New York, summer time
		got, err := s.lanes.Forecast(background, throttle.Need{Limit: "day", Cost: 2})
		must(t, err)
		midnight := time.Date(2027, 6, 9, 4, 0, 0, 0, time.UTC)
		expect(t, "the second permit", s.now.Add(got[0].In).UTC(), midnight)
	})
}

func TestBacklogs(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		define(t, s, perMinute("l", 2), perMinute("l2", 1))
		backlogs := func(limit string) map[string]throttle.Backlog {
			t.Helper()
			list, err := s.lanes.Backlogs(background, limit)
			must(t, err)
			byKey := map[string]throttle.Backlog{}
			for _, b := range list {
				byKey[b.Key] = b
			}
			return byKey
		}
		expect(t, "of nothing", backlogs("l"), nil)
		keys := []string{"a", "b*", "[c]"}
		for _, key := range keys {
			for i := range 4 {
				s.acquire(t, fmt.Sprint(key, i), throttle.Need{Limit: "l", Key: key, Cost: 1 + i%2})
			}
		}
		s.acquire(t, "x", one("l2"))
		s.acquire(t, "y", one("l2"))
		want := map[string]throttle.Backlog{}
		for _, key := range keys {
			// 1 of 2 is taken; 2, 1 and 2 permits wait.
			want[key] = throttle.Backlog{Key: key, Permits: 5, LastIn: 2 * time.Minute}
		}
		expect(t, "backlogs", backlogs("l"), want)
		expect(t, "of a limit with a similar name", len(backlogs("l2")), 1)
	})
}
