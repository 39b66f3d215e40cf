package waitdb_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
	"github.com/headgate/headgate/throttle/throttletest"
)

// TestAdvance_BlockedMeter: it would return from then on, though the calls
// begin when the meter opens.
func TestAdvance_BlockedMeter(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		define(t, s, throttle.Limit{Name: "l", Kind: throttle.Funnel, Rate: throttle.PerSecond(100), Capacity: 8})
		must(t, s.Block(background, "l", "k", s.now.Add(time.Second)))
		for i := range 8 {
			s.acquire(t, fmt.Sprint(i), one("l"))
		}
		s.wait(970 * time.Millisecond)
		for _, id := range s.pumped(t) {
			expect(t, "asks too soon", s.acquire(t, id, one("l")).Outcome, denied)
		}
		s.wait(30 * time.Millisecond)
		s.wantTaken(t, s.pumped(t), one("l"))
		expect(t, "left", ask(t, s, "l", 0).Remaining, 0)
	})
}

// TestAdvance_LateJob: it goes behind what is reserved for others, who may
// not arrive. Then what it took would have returned before it begins.
func TestAdvance_LateJob(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		define(t, s, throttle.Limit{Name: "l", Kind: throttle.Funnel, Rate: throttle.PerSecond(20), Capacity: 2})
		s.acquire(t, "a", one("l"))
		s.acquire(t, "b", one("l"))
		s.acquire(t, "late", one("l"))
		s.wait(50 * time.Millisecond)
		expect(t, "granted", s.pumped(t), []string{"late"})
		s.wait(2 * grant)
		s.pump(t)
		must(t, s.lanes.Block(background, "l", "k", s.now.Add(time.Second)))
		other := waitdb.Job{JobID: throttle.JobID{Queue: "other", ID: "dear"}}
		s.acquireJob(t, other, throttle.Need{Limit: "l", Key: "k", Cost: 2})
		s.wait(time.Second)
		expect(t, "granted, and promoted again", s.pumped(t), []string{"late", "dear"})
		d := s.acquire(t, "late", one("l"))
		expect(t, "behind what is reserved", [2]any{d.Outcome, d.RetryAfter}, [2]any{denied, 50 * time.Millisecond})
	})
}

// TestAdvance_Settle: calls that have their permits and have not begun count
// from when they begin.
func TestAdvance_Settle(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		define(t, s, throttle.Limit{Name: "l", Kind: throttle.Funnel, Rate: throttle.PerSecond(100), Capacity: 8})
		dear := s.acquire(t, "dear", throttle.Need{Limit: "l", Key: "k", Cost: 8})
		for i := range 4 {
			s.acquire(t, fmt.Sprint(i), one("l"))
		}
		s.wait(20 * time.Millisecond)
		var last time.Duration
		for _, id := range s.pumped(t) {
			d := s.acquire(t, id, one("l"))
			expect(t, id, d.Outcome, allowed)
			last = d.BeginIn
		}
		expect(t, "the last begins in", last, 20*time.Millisecond)
		must(t, s.Settle(background, dear.Decision, "l", "k", 0))
		s.wait(last)
		expect(t, "left when it does", ask(t, s, "l", 0).Remaining, 4)
	})
}

// TestAdvance_WaitDeadline: a granted job whose time is up before its
// permits exist is not let by, however soon they do.
func TestAdvance_WaitDeadline(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		define(t, s, throttle.Limit{Name: "l", Kind: throttle.Funnel, Rate: throttle.PerSecond(100), Capacity: 8})
		s.acquireJob(t, job("dear"), throttle.Need{Limit: "l", Key: "k", Cost: 8})
		hurries := job("hurries")
		hurries.MaxWait = 25 * time.Millisecond
		s.acquire(t, "a", one("l"))
		s.acquire(t, "b", one("l"))
		s.acquireJob(t, hurries, one("l"))
		s.wait(20 * time.Millisecond)
		expect(t, "granted", s.pumped(t), []string{"a", "b", "hurries"})
		s.wantTaken(t, []string{"a", "b"}, one("l"))
		expect(t, "10 ms early, 5 ms too late", s.acquireJob(t, hurries, one("l")).Outcome, denied)
		s.wait(5 * time.Millisecond)
		expect(t, "after that", s.acquireJob(t, hurries, one("l")).Outcome, throttle.Expired)
	})
}

// TestAdvance_CallsKeepTheirDistance: at a rate that is no whole number of microseconds,
// who has the permit early begins as long after the one before as the limit allows.
func TestAdvance_CallsKeepTheirDistance(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	onRedis(t, func(t *testing.T, s *fixture) {
		limit := throttle.Limit{Name: "l", Kind: throttle.Funnel, Rate: throttle.PerSecond(22), Capacity: 1}
		define(t, s, limit)
		var begun []throttletest.Admission
		early := 0
		try := func(id string) {
			if d := s.acquire(t, id, one("l")); d.OK() {
				begun = append(begun, throttletest.Admission{At: d.At.Add(d.BeginIn).UnixMicro(), Cost: 1})
				if d.BeginIn > 0 {
					early++
				}
			}
		}
		for i := range 12 {
			try(fmt.Sprint(i))
		}
		for range 1200 {
			s.wait(501 * time.Microsecond)
			for _, id := range s.pumped(t) {
				try(id)
			}
		}
		if len(begun) != 12 || early < 6 {
			t.Errorf("%d jobs began, %d with permits that they had early; want 12, and half of them", len(begun), early)
		}
		must(t, throttletest.Check(limit, begun))
	})
}
