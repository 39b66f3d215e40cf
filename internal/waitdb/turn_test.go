package waitdb_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
	"github.com/headgate/headgate/throttle/throttletest"
)

// TestAdvance: turns are given for the permits of the next 40 ms, which
// newcomers do not get, and their jobs are promoted at once. Each begins when its permit exists.
func TestAdvance(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		define(t, s, throttle.Limit{Name: "l", Kind: throttle.Funnel, Rate: throttle.PerSecond(100), Capacity: 8})
		for i := range 16 {
			s.acquire(t, fmt.Sprint(i), one("l"))
		}
		s.wait(30 * time.Millisecond)
		granted, next := s.pump(t)
		expect(t, "granted", granted, []string{"8", "9", "10", "11", "12", "13", "14"})
		expect(t, "due 10 ms before the next permit exists", next, 40*time.Millisecond)
		expect(t, "reserved now and for 40 ms", s.rdb.HGet(background, hg("meters"), "l|k").Val(), "7")
		for i, id := range granted {
			expect(t, "a newcomer", s.acquire(t, "new", one("l")).Outcome, denied)
			expect(t, "for others", ask(t, s, "l", 0).Remaining, 0)
			d := s.acquire(t, id, one("l"))
			expect(t, "a granted job", d.Outcome, allowed)
			expect(t, "begins in", d.BeginIn, time.Duration(max(0, i-2))*10*time.Millisecond)
		}
		s.wait(next)
		expect(t, "granted", s.pumped(t), []string{"15", "new"})
	})
}

// TestAdvance_NotForJobsThatBeginAtOnce: a job that does not say that it may have its permits
// ahead has them when they exist.
func TestAdvance_NotForJobsThatBeginAtOnce(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		define(t, s, throttle.Limit{Name: "l", Kind: throttle.Funnel, Rate: throttle.PerSecond(20), Capacity: 2})
		for i := range 4 {
			s.acquire(t, fmt.Sprint(i), one("l"))
		}
		s.wait(30 * time.Millisecond)
		expect(t, "granted", s.pumped(t), []string{"2"})
		job := waitdb.Job{JobID: job("2").JobID}
		expect(t, "before its permit exists", s.acquireJob(t, job, one("l")).Outcome, denied)
		s.wait(20 * time.Millisecond)
		expect(t, "granted again", s.pumped(t), []string{"2"})
		expect(t, "when its permit exists", s.acquireJob(t, job, one("l")).Outcome, allowed)
	})
}

// TestAdvance_None where that would keep a permit back or could cost a
// second denial.
func TestAdvance_None(t *testing.T) {
	for _, tt := range []struct {
		name   string
		first  time.Duration
		limits []throttle.Limit
	}{
		{"several limits", 10 * time.Millisecond, []throttle.Limit{
			{Name: "l", Kind: throttle.Funnel, Rate: throttle.PerSecond(100), Capacity: 8},
			{Name: "m", Kind: throttle.Funnel, Rate: throttle.PerSecond(1000), Capacity: 1000},
		}},
		{"spaced permits of a window", 10 * time.Millisecond, []throttle.Limit{{Name: "l", Kind: throttle.SlidingLog, Rate: throttle.Every(10 * time.Millisecond)}}},
		{"unknown", time.Second, []throttle.Limit{{Name: "l", Kind: throttle.Concurrency, Capacity: 1, Lease: time.Second}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			onRedis(t, func(t *testing.T, s *fixture) {
				define(t, s, tt.limits...)
				var needs []throttle.Need
				for _, l := range tt.limits {
					needs = append(needs, one(l.Name))
				}
				for i := range 16 {
					s.acquire(t, fmt.Sprint(i), needs...)
				}
				s.wait(tt.first)
				expect(t, "granted", s.pumped(t), []string{fmt.Sprint(max(1, tt.limits[0].Capacity))})
				expect(t, "reserved", s.rdb.HGet(background, hg("meters"), "l|k").Val(), "1")
			})
		})
	}
}

// TestAdvance_CapacityOne: where a limit gives one permit at a time, a job is granted
// as long ahead as it takes to arrive on a busy machine.
func TestAdvance_CapacityOne(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		define(t, s, throttle.Limit{Name: "l", Kind: throttle.Funnel, Rate: throttle.PerSecond(10), Capacity: 1})
		for i := range 3 {
			s.acquire(t, fmt.Sprint(i), one("l"))
		}
		s.wait(100 * time.Millisecond)
		s.wantTaken(t, s.pumped(t), one("l"))
		s.wait(89 * time.Millisecond)
		granted, next := s.pump(t)
		expect(t, "granted 11 ms ahead", granted, nil)
		expect(t, "due", next, time.Millisecond)
		s.wait(next)
		expect(t, "granted 10 ms ahead", s.pumped(t), []string{"2"})
	})
}

// TestAdvance_SmallCapacity: where a limit gives three permits at once, jobs are granted
// ahead by half of what it takes to give two of them.
func TestAdvance_SmallCapacity(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		define(t, s, throttle.Limit{Name: "l", Kind: throttle.Funnel, Rate: throttle.PerSecond(100), Capacity: 3})
		for i := range 9 {
			s.acquire(t, fmt.Sprint(i), one("l"))
		}
		s.wait(30 * time.Millisecond)
		var granted []string
		for turns := s.pumped(t); len(turns) > 0; turns = s.pumped(t) {
			s.wantTaken(t, turns, one("l"))
			granted = append(granted, turns...)
		}
		expect(t, "granted, the last of them 10 ms ahead", granted, []string{"3", "4", "5", "6"})
		_, next := s.pump(t)
		expect(t, "the next is due 10 ms before its permit exists", next, 10*time.Millisecond)
	})
}

// TestAdvance_RestOfAWindow: a dear job that is granted a little before the next
// window opens takes nothing of this one, so what is left of this one is lost, and no other
// is granted as if it were taken.
func TestAdvance_RestOfAWindow(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		define(t, s, throttle.Limit{Name: "l", Kind: throttle.FixedWindow, Rate: throttle.PerSecond(72)})
		s.wait(time.Second - time.Duration(s.now.Nanosecond()))
		cost := map[string]int{"a": 44, "b": 63, "c": 27}
		need := func(id string) throttle.Need { return throttle.Need{Limit: "l", Key: "k", Cost: cost[id]} }
		for _, id := range []string{"a", "b", "c"} {
			s.acquire(t, id, need(id))
		}
		s.wait(970 * time.Millisecond)
		_, next := s.pump(t)
		expect(t, "reserved for the next", s.rdb.HGet(background, hg("meters"), "l|k").Val(), "63")
		s.wait(next)
		granted := s.pumped(t)
		expect(t, "promoted when it opens", granted, []string{"b"})
		s.wantTaken(t, granted, need("b"))
		s.wait(time.Second)
		s.wantTaken(t, s.pumped(t), need("c"))
	})
}

// TestCalendar_NextDay: who waits for a calendar's next day, when the day has 25 hours.
func TestCalendar_NextDay(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		s.wait(instant(t, "2026-11-01T00:30:00-04:00").Sub(s.now))
		define(t, s, throttle.Limit{Name: "l", Kind: throttle.FixedWindow, Rate: throttle.PerDay(1), Zone: "America/New_York"})
		need := one("l")
		s.acquire(t, "a", need)
		const day = 24*time.Hour + 30*time.Minute
		expect(t, "b", s.acquire(t, "b", need).RetryAfter, day)
		expect(t, "c", s.acquire(t, "c", need).RetryAfter, day+24*time.Hour)
		expect(t, "granted at once", s.pumped(t), nil)
		s.wait(day - time.Microsecond)
		expect(t, "granted before midnight", s.pumped(t), nil)
		s.wait(time.Microsecond)
		expect(t, "granted at midnight", s.pumped(t), []string{"b"})
		s.wantTaken(t, []string{"b"}, need)
		s.wait(200 * 24 * time.Hour) // beyond the calendar that Redis has
		expect(t, "granted long after", s.pumped(t), []string{"c"})
		s.wantTaken(t, []string{"c"}, need)
	})
}

// TestGrant_LeavesHeldPermits: a turn takes nothing that older lanes hold, and what
// its lane knows the next one reckons with it; else it would be tried again
// and again.
func TestGrant_LeavesHeldPermits(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		define(t, s, throttle.Limit{Name: "l", Kind: throttle.Funnel, Rate: throttle.PerSecond(1), Capacity: 3})
		s.acquire(t, "a", throttle.Need{Limit: "l", Key: "k", Cost: 3})
		s.acquire(t, "b", one("l"))
		s.wait(2 * time.Second)
		store := s.lanes
		_, err := store.BecomeLeader(background, "me", leaseTime, 0, "epoch")
		must(t, err)
		try := func(held int64) fairqueue.Result {
			t.Helper()
			_, results, _, err := store.Grant(background, "me", []fairqueue.Turn{{Lane: "default\nl|k", Held: []int64{held}}})
			must(t, err)
			return results[0]
		}
		r := try(2)
		expect(t, "where both permits are held", r.Outcome, fairqueue.Refused)
		expect(t, "ready beside them", r.Next[0].Ready, s.now.Add(time.Second).UnixMicro())
		expect(t, "where one is held", try(1).Outcome, fairqueue.Granted)
	})
}

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
			expect(t, id, [2]any{d.Outcome, d.Late}, [2]any{allowed, time.Duration(0)})
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
