package waitdb_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// TestLanesTakeTurns: two hosts share a limit; who came with many jobs does not
// keep the other waiting.
func TestLanesTakeTurns(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		define(t, s, perMinute("all", 2), perMinute("host", 100))
		needs := func(host string) []throttle.Need {
			return []throttle.Need{one("all"), {Limit: "host", Key: host, Cost: 1}}
		}
		for i := range 8 {
			s.acquire(t, fmt.Sprint("a", i), needs("a")...)
		}
		for i := range 3 {
			s.acquire(t, fmt.Sprint("b", i), needs("b")...)
		}
		for _, want := range [][]string{{"a2", "b0"}, {"a3", "b1"}, {"a4", "b2"}, {"a5", "a6"}, {"a7"}} {
			s.wait(time.Minute)
			called := s.pumped(t)
			expect(t, "called", called, want)
			for _, job := range called {
				s.wantTaken(t, []string{job}, needs(job[:1])...)
			}
		}
		s.pump(t)
		expect(t, "traces", s.traces(t), nil)
	})
}

// TestHotHostHoldsNothing: jobs that wait for their host keep no permit of the
// limit they share with others, which is the faster one.
func TestHotHostHoldsNothing(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		define(t, s, perMinute("all", 10), perMinute("host", 1))
		needs := func(host string) []throttle.Need {
			return []throttle.Need{one("all"), {Limit: "host", Key: host, Cost: 1}}
		}
		for i := range 20 {
			s.acquire(t, fmt.Sprint("hot", i), needs("hot")...)
		}
		s.pump(t)
		for i := range 9 {
			host := fmt.Sprint("cold", i)
			if d := s.acquire(t, host, needs(host)...); !d.OK() {
				t.Errorf("%s: %s", host, d)
			}
		}
		d := s.acquire(t, "cold9", needs("cold9")...)
		expect(t, "the shared limit is used up", [2]any{d.Outcome, d.Limit}, [2]any{denied, "all"})
		s.wait(time.Minute)
		called := s.pumped(t)
		slices.Sort(called)
		expect(t, "called", called, []string{"cold9", "hot1"})
	})
}

// TestNewcomersDoNotOvertake: a job of two limits waits for one of them; who
// needs only that one waits behind it, whatever the limits are called.
func TestNewcomersDoNotOvertake(t *testing.T) {
	for _, names := range [][2]string{{"a", "b"}, {"b", "a"}} {
		onRedis(t, func(t *testing.T, s *stage) {
			define(t, s, perMinute(names[0], 5), perMinute(names[1], 100))
			shared := throttle.Need{Limit: names[0], Key: "k", Cost: 5}
			s.acquire(t, "first", one(names[0]))
			expect(t, "wants all of it", s.acquire(t, "big", shared).Outcome, denied)
			for i := range 3 {
				host := throttle.Need{Limit: names[1], Key: fmt.Sprint(i)}
				d := s.acquire(t, fmt.Sprint("new", i), one(names[0]), host)
				expect(t, "a newcomer", [2]any{d.Outcome, d.Limit}, [2]any{denied, names[0]})
			}
			s.pump(t)
			s.wait(time.Minute)
			expect(t, "called", s.pumped(t), []string{"big"})
		})
	}
}

// TestPriority: a head start is counted in the lane's own jobs, so who has it is
// first of few, and goes not before those that came a thousand jobs earlier.
func TestPriority(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		define(t, s, perMinute("l", 1))
		need := one("l")
		come := func(id string, p waitdb.Priority) {
			t.Helper()
			d := s.acquireJob(t, waitdb.Job{JobID: job(id).JobID, Priority: p}, need)
			expect(t, id, d.Outcome, denied)
		}
		s.acquire(t, "first", need)
		come("low", waitdb.Low)
		come("normal", waitdb.Normal)
		come("high", waitdb.High)
		come("normal 2", waitdb.Normal)
		// As if as many others had come meanwhile.
		must(t, s.rdb.HIncrBy(background, hg("tickets"), "default\nl|k", 2*waitdb.HeadStart*step).Err())
		come("high, late", waitdb.High)
		for _, want := range []string{"high", "normal", "normal 2", "low", "high, late"} {
			s.wait(time.Minute)
			expect(t, "called", s.pumped(t), []string{want})
			s.wantTaken(t, []string{want}, need)
		}
	})
}

// TestPriorityInABusyScope: a High job is the first of three of its lane, though
// thousands have come to other lanes meanwhile.
func TestPriorityInABusyScope(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	onRedis(t, func(t *testing.T, s *stage) {
		define(t, s, perMinute("l", 1), throttle.Limit{Name: "other", Kind: throttle.Funnel, Rate: throttle.PerDay(1)})
		s.acquire(t, "first", one("l"))
		s.acquire(t, "normal", one("l"))
		for i := range 1500 {
			s.acquire(t, fmt.Sprint("other", i), throttle.Need{Limit: "other", Key: fmt.Sprint(i % 3)})
		}
		s.acquire(t, "normal 2", one("l"))
		s.acquireJob(t, waitdb.Job{JobID: job("high").JobID, Priority: waitdb.High}, one("l"))
		place, _, err := s.lanes.Position(background, job("high").JobID)
		must(t, err)
		expect(t, "place", [2]int{place.Rank, place.Total}, [2]int{1, 3})
		s.wait(time.Minute)
		if called := s.pumped(t); !slices.Contains(called, "high") {
			t.Errorf("called %v, want high", called)
		}
	})
}

// TestNewHeadWithSmallerCost: a job that goes before all others of its lane, and
// for which there is a permit, does not wait for those that they need.
func TestNewHeadWithSmallerCost(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		define(t, s, perMinute("l", 3))
		s.acquire(t, "a", throttle.Need{Limit: "l", Key: "k", Cost: 2})
		s.acquire(t, "big", throttle.Need{Limit: "l", Key: "k", Cost: 3})
		s.pump(t)
		s.acquireJob(t, waitdb.Job{JobID: job("small").JobID, Priority: waitdb.High}, one("l"))
		s.wait(time.Second) // it is no news to who gives turns: they look each second
		expect(t, "called", s.pumped(t), []string{"small"})
	})
}

// TestHeadIsForgotten: what the head of a lane waited for is not what the next
// one needs.
func TestHeadIsForgotten(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		define(t, s, perMinute("l", 3))
		s.acquire(t, "a", throttle.Need{Limit: "l", Key: "k", Cost: 2})
		s.acquire(t, "big", throttle.Need{Limit: "l", Key: "k", Cost: 3})
		s.acquire(t, "small", one("l"))
		expect(t, "called behind the big one", s.pumped(t), nil)
		s.forget(t, "big")
		s.wait(time.Second)
		expect(t, "called", s.pumped(t), []string{"small"})
	})
}

// TestJobWithoutARecord stops nobody: somebody removed it by hand.
func TestJobWithoutARecord(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		define(t, s, perMinute("l", 1))
		for _, job := range []string{"a", "b", "c"} {
			s.acquire(t, job, one("l"))
		}
		must(t, s.rdb.HDel(background, hg("jobs"), "default\nb").Err())
		s.wait(time.Minute)
		called := s.pumped(t)
		expect(t, "called", called, []string{"c"})
		s.wantTaken(t, called, one("l"))
		s.wait(time.Minute)
		expect(t, "the one that was removed begins anew", s.acquire(t, "b", one("l")).Outcome, allowed)
	})
}

// TestBehindADearerHead: there is enough for the newcomer, but not for the one
// before it, so it is not told to come at once.
func TestBehindADearerHead(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		define(t, s, throttle.Limit{Name: "l", Kind: throttle.Funnel, Rate: throttle.PerSecond(1), Capacity: 5})
		all := throttle.Need{Limit: "l", Key: "k", Cost: 5}
		s.acquire(t, "a", all)
		s.acquire(t, "b", all)
		s.wait(3 * time.Second)
		d := s.acquire(t, "c", one("l"))
		expect(t, "c", [2]any{d.Outcome, d.RetryAfter}, [2]any{denied, 3 * time.Second})
	})
}

// A lane of 20,000: the place of the last is known, and taking the limit away
// calls them all back, a bounded number at a time.
func TestLongLane(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	const jobs, clients = 20_000, 20
	rdb := redistest.Real(t)
	limiter := waitdb.New(throttle.New(rdb, throttle.Options{}))
	must(t, limiter.Define(t.Context(), throttle.Limit{Name: "api", Kind: throttle.Funnel, Rate: throttle.PerMinute(1)}))
	need := throttle.Need{Limit: "api"}
	if d, err := limiter.Allow(t.Context(), "api", ""); !d.OK() {
		t.Fatal(d, err)
	}
	var all sync.WaitGroup
	for client := range clients {
		all.Go(func() {
			for i := range jobs / clients {
				id := fmt.Sprintf("job-%d-%d", client, i)
				if d, err := limiter.Acquire(t.Context(), job(id), need); d.Outcome != throttle.Denied {
					t.Errorf("%s: %v, %v; want denied", id, d, err)
					return
				}
			}
		})
	}
	all.Wait()

	d, err := limiter.Acquire(t.Context(), job("last"), need)
	if err != nil || d.RetryAfter.Minutes() < jobs {
		t.Errorf("the last: %v, %v; want denied for over %d minutes", d, err, jobs)
	}
	place, waits, err := limiter.Position(t.Context(), job("last").JobID)
	if err != nil || !waits || place.Rank != jobs+1 || place.Total != jobs+1 {
		t.Errorf("the last: %+v, %v, %v; want position %d", place, waits, err, jobs+1)
	}

	must(t, limiter.Delete(t.Context(), "api"))
	store := limiter
	lead, err := store.BecomeLeader(t.Context(), "me", time.Second, 0, "epoch")
	must(t, err)
	lanes := []string{lead.NewLanes[0].Lane}
	turn := slices.Repeat([]fairqueue.Turn{{Lane: lanes[0]}}, 100)
	called := map[string]bool{}
	for len(called) < jobs+1 {
		_, results, held, err := store.Grant(t.Context(), "me", turn)
		must(t, err)
		if !held { // this took longer than the lease lasts
			_, err = store.BecomeLeader(t.Context(), "me", time.Second, 0, "epoch")
			must(t, err)
		}
		for _, r := range results {
			if r.Outcome == fairqueue.Learn {
				called[r.Job] = true
			}
		}
	}
}
