package waitdb_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/forecast"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// forecast is one of what waits.
func (s *fixture) forecast(t *testing.T) *forecast.Forecast {
	t.Helper()
	f, err := forecast.Make(background, s.lanes, forecast.Options{})
	must(t, err)
	return f
}

func window(name string, rate throttle.Rate) throttle.Limit {
	return throttle.Limit{Name: name, Kind: throttle.FixedWindow, Rate: rate}
}

func funnel(name string, rate throttle.Rate) throttle.Limit {
	return throttle.Limit{Name: name, Kind: throttle.Funnel, Rate: rate}
}

// TestForecast: the limits that hold jobs up, for how long, and what is
// unknown; it changes nothing.
func TestForecast(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		define(t, s, perMinute("l", 2), perMinute("p", 1), throttle.Limit{Name: "f", Kind: throttle.Funnel, Rate: throttle.PerSecond(1), Capacity: 2},
			throttle.Limit{Name: "slots", Kind: throttle.Concurrency, Capacity: 2})
		for i := range 5 {
			s.acquire(t, fmt.Sprint("l", i), one("l"))
			s.acquire(t, fmt.Sprint("f", i), one("f"))
			s.acquire(t, fmt.Sprint("s", i), one("slots"))
		}
		s.acquire(t, "p", one("p"))
		s.acquire(t, "p2", one("p"))
		s.acquire(t, "two", one("f"), one("l"))
		s.pump(t)
		must(t, s.lanes.Pause(background, "p"))
		before := redistest.Contents(t, s.rdb)
		runs := func(string) time.Duration { return 10 * time.Second }
		f, err := forecast.Make(background, s.lanes, forecast.Options{Duration: runs})
		must(t, err)
		limits := f.Limits()
		need := func(limit string) throttle.Need { return throttle.Need{Limit: limit, Key: "k"} }
		expect(t, "limits", limits, map[string]forecast.Estimate{
			"l":     {Need: need("l"), StartsIn: 2 * time.Minute, Known: true},
			"f":     {Need: need("l"), StartsIn: time.Minute, Known: true},
			"p":     {Need: need("p")},
			"slots": {Need: need("slots"), StartsIn: 15 * time.Second, Known: true, Estimated: true},
		})
		last, unknown := f.Last()
		expect(t, "last", last, limits["l"])
		expect(t, "unknown", *unknown, limits["p"])
		b := f.Backlog("f", "k")
		expect(t, "backlog", b, forecast.Backlog{Need: throttle.Need{Limit: "f", Key: "k", Cost: 4}, Since: b.Since, Last: limits["f"], IsBottleneck: true, HoldsJobs: true, Jobs: 3, Permits: 3, Read: 4})
		for limit, want := range map[string]bool{"l": true, "f": true, "slots": true, "p": true, "none": false} {
			expect(t, "is "+limit+" a bottleneck", f.Backlog(limit, "k").IsBottleneck, want)
		}
		if e := s.forecast(t).Limits()["slots"]; e.Known {
			t.Errorf("it is unknown how long jobs run, and the last waits %s", e.StartsIn)
		}
		if e, ok := s.forecast(t).Job("default\nslots|k", 1); !ok || e.Known {
			t.Errorf("it is unknown how long jobs run, and the first waits %s", e.StartsIn)
		}
		stops, err := forecast.Make(background, s.lanes, forecast.Options{Stopped: func(queue string) bool { return queue == "default" }})
		must(t, err)
		expect(t, "of a queue that takes nothing", stops.Limits()["l"].Known, false)
		expect(t, "keys afterwards", redistest.Contents(t, s.rdb), before)
	})
}

// TestForecast_BottleneckOfAJob: a quota that only the last jobs reach does not hold up the first.
func TestForecast_BottleneckOfAJob(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		define(t, s, window("daily", throttle.PerDay(6)), window("minute", throttle.PerMinute(2)))
		for i := range 10 {
			s.acquire(t, fmt.Sprint(i), one("daily"), one("minute"))
		}
		f := s.forecast(t)
		for n, want := range map[int]string{1: "minute", 4: "minute", 5: "daily", 8: "daily"} {
			if e, ok := f.Job("default\ndaily|k\nminute|k", n); !ok || e.Need.Limit != want {
				t.Errorf("waiting job %d waits longest for %v, want %s", n, e, want)
			}
		}
	})
}

// TestForecast_OneJob: the estimate of a job that waits alone is the forecast,
// to the microsecond: of each kind of limit, however it was used, changed and blocked.
func TestForecast_OneJob(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		for seed := range uint64(60) {
			s.restart(t)
			r := rand.New(rand.NewPCG(seed, 7))
			w := &forecastWorld{fixture: s, rand: r}
			l := w.anyLimit("l")
			for l.Kind == throttle.Concurrency {
				l = w.anyLimit("l")
			}
			must(t, s.lanes.Set(background, l))
			use := func() {
				for range r.IntN(4) {
					_, err := s.lanes.AllowN(background, "l", "k", 1+r.IntN(l.MaxCost()))
					must(t, err)
					s.wait(time.Duration(r.Int64N(int64(l.Rate.Per)/2)) / 1000 * 1000)
				}
			}
			use()
			switch r.IntN(4) {
			case 0:
				l.Rate.N = 1 + r.IntN(20)
				must(t, s.lanes.Set(background, l))
			case 1:
				o := throttle.Override{Rate: throttle.Rate{N: 1 + r.IntN(20), Per: l.Rate.Per}}
				must(t, s.lanes.SetKey(background, "l", "k", o))
			case 2:
				must(t, s.lanes.Block(background, "l", "k", s.now.Add(time.Duration(r.Int64N(int64(2*l.Rate.Per)))/1000*1000)))
			}
			use()
			d := s.acquire(t, "job", throttle.Need{Limit: "l", Key: "k", Cost: 1})
			if d.OK() {
				continue
			}
			e, ok := s.forecast(t).Job("default\nl|k", 1)
			expect(t, fmt.Sprintf("world %d, %s: in", seed, l), [2]any{e.StartsIn, ok && e.Known}, [2]any{d.RetryAfter, true})
		}
	})
}

// TestForecast_Impossible: a job that costs more than its limit ever gives is granted so that its
// worker fails it, and delays no other job. When a job whose limit is gone will run is unknown.
func TestForecast_Impossible(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		define(t, s, perMinute("l", 3), perMinute("gone", 1))
		for i, cost := range []int{3, 3, 1} {
			s.acquire(t, fmt.Sprint(i), throttle.Need{Limit: "l", Key: "k", Cost: cost})
			s.acquire(t, fmt.Sprint("gone", i), one("gone"))
		}
		must(t, s.lanes.Delete(background, "gone"))
		must(t, s.lanes.Set(background, perMinute("l", 2)))
		f := s.forecast(t)
		expect(t, "of no limit", f.Limits()["gone"], forecast.Estimate{Need: throttle.Need{Limit: "gone", Key: "k"}})
		for position, want := range map[int]time.Duration{1: 0, 2: time.Minute} {
			e, _ := f.Job("default\nl|k", position)
			expect(t, fmt.Sprint("job ", position), [2]any{e.StartsIn, e.Known}, [2]any{want, true})
		}
	})
}

// TestForecast_TooManyLanes: of more lanes than are read the rest is an estimate, by what
// is wanted of the meters.
func TestForecast_TooManyLanes(t *testing.T) {
	s := realFixture(t)
	define(t, s, funnel("all", throttle.PerSecond(10)), funnel("host", throttle.Every(time.Minute)))
	const all = 2100
	demand, jobs, order := map[string]any{"all|": all + 20, "host|last": 21}, map[string]any{}, []redis.Z{}
	pipe := s.rdb.Pipeline()
	for i := range all {
		host := fmt.Sprintf("host|%d", i)
		if i == all-1 {
			host = "host|last"
		}
		lane := "default\nall|\n" + host
		order = append(order, redis.Z{Score: float64(i), Member: lane})
		for k := range 1 + 20*(i/(all-1)) {
			id := fmt.Sprint(i, ".", k)
			pipe.ZAdd(background, hg("lane:"+lane), redis.Z{Score: float64(k), Member: id})
			jobs["default\n"+id] = fmt.Sprintf("%d\n%d\n250000\n0 1\n1,1\n%s", k, s.now.UnixMicro()+int64(i), lane)
		}
		if host != "host|last" {
			demand[host] = 1
		}
	}
	pipe.ZAdd(background, hg("lanes"), order...)
	pipe.HSet(background, hg("jobs"), jobs)
	pipe.HSet(background, hg("demand"), demand)
	_, err := pipe.Exec(background)
	must(t, err)
	f := s.forecast(t)
	expect(t, "estimated", f.Estimated, true)
	if e, unknown := f.Last(); unknown != nil || e.StartsIn < 20*time.Minute || e.StartsIn > 22*time.Minute || e.Limit != "host" {
		t.Errorf("the last runs in %s, when %s lets it; want 20 min, host", e.StartsIn, e.Limit)
	}
	if e := f.Limits()["all"]; !e.Known || e.StartsIn < 210*time.Second || e.StartsIn > 215*time.Second {
		t.Errorf("the last of all runs in %s, want 212 s", e.StartsIn)
	}
}

// TestForecast_ManyTurns: after those that are followed the rest is an estimate.
func TestForecast_ManyTurns(t *testing.T) {
	noon := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	opts := forecast.Options{Limits: []throttle.Limit{funnel("all", throttle.PerSecond(100)), window("day", throttle.PerDay(1_000_000))}}
	for queue, jobs := range map[string]int{"few": 1000, "many": 400_000} {
		must(t, opts.Plan(inQueue(queue), jobs, throttle.Need{Limit: "all"}, throttle.Need{Limit: "day"}))
	}
	f := opts.Forecast(noon)
	_, last := f.Planned()
	if want := 4010 * time.Second; !last.Known || !last.Estimated || last.StartsIn < want-time.Second || last.StartsIn > want+time.Second || last.Limit != "all" {
		t.Errorf("%+v, want all to let the last run in about %s", last, want)
	}
}

// TestForecast_UnknownDuration: if it is not known how long jobs run, a concurrency limit lets them
// run no sooner than their other limits do. If that is known the forecast is a time.
func TestForecast_UnknownDuration(t *testing.T) {
	noon := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	day, minute, slots := window("day", throttle.PerDay(2000)), funnel("minute", throttle.PerMinute(60)), throttle.Limit{Name: "slots", Kind: throttle.Concurrency, Capacity: 5}
	plan := func(jobs int, runs time.Duration, limits ...throttle.Limit) (first, last forecast.Estimate) {
		opts := forecast.Options{Limits: limits, Duration: func(string) time.Duration { return runs }}
		var needs []throttle.Need
		for _, l := range limits {
			needs = append(needs, throttle.Need{Limit: l.Name})
		}
		must(t, opts.Plan(inQueue("q"), jobs, needs...))
		return opts.Forecast(noon).Planned()
	}
	_, bound := plan(5000, 0, day, minute)
	first, last := plan(5000, 0, day, minute, slots)
	if !first.Known || first.StartsIn != 0 || last.Known || !last.AtLeast || last.StartsIn != bound.StartsIn || last.Limit != bound.Limit {
		t.Errorf("the first %+v, the last %+v; want the first at once, as slots are free, and the last no sooner than %+v", first, last, bound)
	}
	if _, last := plan(5, 0, day, slots); !last.Known || last.StartsIn != 0 {
		t.Errorf("the last of five %+v, want it at once: five slots are free", last)
	}
	if _, last := plan(6, 0, slots); last.Known || !last.AtLeast || last.StartsIn != 0 || last.Limit != "slots" {
		t.Errorf("the last of six %+v, want no sooner than now, by the slots", last)
	}
	if _, last := plan(2000, 10*time.Second, day, minute, slots); !last.Known || !last.Estimated || last.StartsIn < 66*time.Minute || last.StartsIn > 67*time.Minute || last.Limit != "slots" {
		t.Errorf("of jobs that run 10 s the last %+v, want about 66m30s, by the slots", last)
	}
	opts := forecast.Options{Limits: []throttle.Limit{day, slots}, Stopped: func(queue string) bool { return queue == "stops" }}
	must(t, opts.Plan(inQueue("stops"), 1, throttle.Need{Limit: "slots"}))
	must(t, opts.Plan(inQueue("q"), 2001, throttle.Need{Limit: "day"}, throttle.Need{Limit: "slots"}))
	if _, last := opts.Forecast(noon).Planned(); last.Known || !last.AtLeast || last.StartsIn != 12*time.Hour {
		t.Errorf("with a queue that takes nothing the last %+v, want no sooner than in 12 h", last)
	}
}
