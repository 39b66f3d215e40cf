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

// TestPriority: a head start is counted in the lane's own jobs, so who has it is
// first of few, and goes not before those that arrived a thousand jobs earlier.
func TestPriority(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		define(t, s, perMinute("l", 1))
		need := one("l")
		arrive := func(id string, p waitdb.Priority) {
			t.Helper()
			d := s.acquireJob(t, waitdb.Job{JobID: job(id).JobID, Priority: p}, need)
			expect(t, id, d.Outcome, denied)
		}
		s.acquire(t, "first", need)
		arrive("low", waitdb.Low)
		arrive("normal", waitdb.Normal)
		arrive("high", waitdb.High)
		arrive("normal 2", waitdb.Normal)
		// As if as many others had arrived meanwhile.
		must(t, s.rdb.HIncrBy(background, hg("tickets"), "default\nl|k", 2*waitdb.HeadStart*step).Err())
		arrive("high, late", waitdb.High)
		for _, want := range []string{"high", "normal", "normal 2", "low", "high, late"} {
			s.wait(time.Minute)
			expect(t, "granted", s.pumped(t), []string{want})
			s.wantTaken(t, []string{want}, need)
		}
	})
}

// TestForget_Head: what the head of a lane waited for is not what the next
// one needs.
func TestForget_Head(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		define(t, s, perMinute("l", 3))
		s.acquire(t, "a", throttle.Need{Limit: "l", Key: "k", Cost: 2})
		s.acquire(t, "big", throttle.Need{Limit: "l", Key: "k", Cost: 3})
		s.acquire(t, "small", one("l"))
		expect(t, "granted behind the big one", s.pumped(t), nil)
		s.forget(t, "big")
		s.wait(time.Second)
		expect(t, "granted", s.pumped(t), []string{"small"})
	})
}

// A record that no script has written is deleted as a whole.
func TestForget_MalformedRecord(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		define(t, s, perMinute("l", 1))
		s.acquire(t, "a", one("l"))
		s.acquire(t, "it", one("l"))
		records := "hg:{default}:jobs"
		must(t, s.rdb.HSet(background, records, "default\nit", "not a record").Err())
		known, err := s.lanes.Forget(background, throttle.JobID{Queue: "default", ID: "it"})
		must(t, err)
		expect(t, "known", known, 0)
		expect(t, "is stored", s.rdb.HExists(background, records, "default\nit").Val(), false)
	})
}

// TestAcquire_BehindExpensiveHead: there is enough for the newcomer, but not for the one
// before it, so it is not asked to run at once.
func TestAcquire_BehindExpensiveHead(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
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
	turn := slices.Repeat([]fairqueue.Turn{{Lane: lanes[0], Held: []int64{0}}}, 100)
	granted := map[string]bool{}
	for len(granted) < jobs+1 {
		_, results, held, err := store.Grant(t.Context(), "me", turn)
		must(t, err)
		if !held { // this took longer than the lease lasts
			_, err = store.BecomeLeader(t.Context(), "me", time.Second, 0, "epoch")
			must(t, err)
		}
		for _, r := range results {
			if r.Outcome == fairqueue.Impossible {
				granted[r.Job] = true
			}
		}
	}
}
