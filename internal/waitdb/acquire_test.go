package waitdb_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

func TestAcquire_FIFO(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		define(t, s, perMinute("l", 2))
		need := one("l")
		for i, want := range []struct {
			outcome throttle.Outcome
			retry   time.Duration
		}{{allowed, 0}, {allowed, 0}, {denied, time.Minute}, {denied, time.Minute}, {denied, 2 * time.Minute}} {
			d := s.acquire(t, fmt.Sprint(i), need)
			expect(t, "at first", [2]any{d.Outcome, d.RetryAfter}, [2]any{want.outcome, want.retry})
		}
		granted, next := s.pump(t)
		expect(t, "granted with no permit", granted, nil)
		if next <= 0 || next > time.Minute {
			t.Errorf("turns are due in %s, want by the next permit", next)
		}

		s.wait(time.Minute - time.Microsecond)
		expect(t, "granted a microsecond early", s.pumped(t), nil)
		s.wait(time.Microsecond)
		expect(t, "a newcomer", s.acquire(t, "new", need).Outcome, denied)
		d := s.acquire(t, "4", need)
		expect(t, "one whose turn it is not", [2]any{d.Outcome, d.RetryAfter}, [2]any{denied, time.Minute})
		s.wait(10 * time.Millisecond) // those granted ahead are promoted in such steps
		granted, next = s.pump(t)
		expect(t, "granted", granted, []string{"2", "3"})
		expect(t, "kept for them", ask(t, s, "l", 1).Outcome, denied)
		expect(t, "left for others", ask(t, s, "l", 0).Remaining, 0)
		if next > grant {
			t.Errorf("turns are due in %s, after a grant has ended", next)
		}
		s.wantTaken(t, []string{"3", "2"}, need)
		expect(t, "granted of those without a permit", s.pumped(t), nil)

		s.wait(time.Minute)
		granted = s.pumped(t)
		expect(t, "granted then", granted, []string{"4", "new"})
		s.wantTaken(t, granted, need)
		s.pump(t)
		expect(t, "traces", s.traces(t), nil)
	})
}

// TestAcquire_AllOrNone: a job that waits for one of its limits takes nothing of another.
func TestAcquire_AllOrNone(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		define(t, s, perMinute("l", 5), perMinute("m", 1))
		both := []throttle.Need{one("l"), one("m")}
		s.acquire(t, "a", both...)
		d := s.acquire(t, "b", both...)
		expect(t, "b", [3]any{d.Outcome, d.Limit, d.RetryAfter}, [3]any{denied, "m", time.Minute})
		expect(t, "granted", s.pumped(t), nil)
		expect(t, "left of the other limit", ask(t, s, "l", 0).Remaining, 4)
		expect(t, "a newcomer that needs only that", s.acquire(t, "c", one("l")).Outcome, allowed)
	})
}

// TestAcquire_HeadWithoutLeader: a job that asynq brings back when its permit
// exists is let by if it is first in line and no process leads. If a process
// does, it is for them to call it.
func TestAcquire_HeadWithoutLeader(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		define(t, s, perMinute("l", 1))
		for _, job := range []string{"a", "b", "c"} {
			s.acquire(t, job, one("l"))
		}
		s.wait(time.Minute)
		expect(t, "the second in line", s.acquire(t, "c", one("l")).Outcome, denied)
		expect(t, "the head of the line", s.acquire(t, "b", one("l")).Outcome, allowed)
		expect(t, "granted", s.pumped(t), nil)
		s.wait(time.Minute)
		expect(t, "the head while a process leads", s.acquire(t, "c", one("l")).Outcome, denied)
		s.wantTaken(t, s.pumped(t), one("l"))
		s.pump(t)
		expect(t, "traces", s.traces(t), nil)
	})
}

// TestContended_EndsWithoutLeader: when no process leads, the marks that keep newcomers from a
// meter vanish, so that it is not contended for ever.
func TestContended_EndsWithoutLeader(t *testing.T) {
	s := miniFixture(t)
	define(t, s, perMinute("l", 1), perMinute("m", 1))
	for _, job := range []string{"a", "b"} {
		s.acquire(t, job, one("l"), one("m"))
	}
	s.wait(time.Minute)
	other := throttle.Need{Limit: "m", Key: "k", Cost: 1}
	expect(t, "another lane's newcomer", s.acquire(t, "c", other).Outcome, allowed)
	s.restart(t)

	define(t, s, perMinute("l", 1), throttle.Limit{Name: "m", Kind: throttle.Funnel, Rate: throttle.PerSecond(1)})
	for _, job := range []string{"a", "b"} {
		s.acquire(t, job, one("m"))
	}
	s.wait(time.Second)
	expect(t, "a newcomer while the mark is there", s.acquire(t, "c", one("l"), other).Outcome, denied)
	s.wait(10 * time.Second)
	expect(t, "a newcomer of a third lane after it", s.acquire(t, "d", other, throttle.Need{Limit: "l", Key: "k2"}).Outcome, allowed)
}

func TestAcquire_Impossible(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		define(t, s, perMinute("l", 3))
		big := throttle.Need{Limit: "l", Key: "k", Cost: 3}
		d := s.acquire(t, "huge", throttle.Need{Limit: "l", Key: "k", Cost: 4})
		expect(t, "cost above the capacity", [3]any{d.Outcome, d.Cost, d.Capacity}, [3]any{never, 4, 3})
		expect(t, "traces", s.traces(t), nil)

		s.acquire(t, "a", big)
		s.acquire(t, "b", big)
		s.acquire(t, "c", one("l"))
		define(t, s, perMinute("l", 2))
		expect(t, "granted to fail", s.pumped(t), []string{"b"})
		expect(t, "asked again", s.acquire(t, "b", big).Outcome, never)
		s.wait(time.Minute)
		s.wantTaken(t, s.pumped(t), one("l"))
		s.pump(t)
		expect(t, "traces", s.traces(t), nil)
	})
}

// TestAcquire_ChangedNeeds: what it has waited counts, and it is ordered by that in its
// new lane.
func TestAcquire_ChangedNeeds(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		define(t, s, perMinute("l", 1), perMinute("m", 1))
		s.acquire(t, "x", one("m"))
		s.acquire(t, "y", one("m"))
		s.wait(time.Second)
		for _, job := range []string{"a", "b", "c"} {
			s.acquire(t, job, one("l"))
		}
		s.wait(10 * time.Second)
		s.acquire(t, "late", one("m"))
		expect(t, "b moves to another lane", s.acquire(t, "b", one("m")).Outcome, denied)
		place, _, err := s.lanes.Position(background, job("b").JobID)
		must(t, err)
		expect(t, "its place", [2]any{place.Rank, place.WaitedFor}, [2]any{2, 10 * time.Second})
		s.wait(time.Minute)
		granted := s.pumped(t)
		slices.Sort(granted)
		expect(t, "granted", granted, []string{"c", "y"})
		s.wantTaken(t, []string{"y"}, one("m"))
		s.wantTaken(t, []string{"c"}, one("l"))
		s.wait(time.Minute)
		granted = s.pumped(t)
		expect(t, "granted then", granted, []string{"b"})
		expect(t, "its cost changes as well", s.acquire(t, "b", throttle.Need{Limit: "m", Key: "k", Cost: 2}).Outcome, never)
		s.wantTaken(t, s.pumped(t), one("m"))
		s.pump(t)
		expect(t, "traces", s.traces(t), nil)
	})
}

// TestAcquire_BadInput: bad input is one short error, and no job waits or takes a permit.
func TestAcquire_BadInput(t *testing.T) {
	s := miniFixture(t)
	define(t, s, perMinute("l", 1))
	acquire := func(j waitdb.Job, needs ...throttle.Need) error {
		return second(s.lanes.Acquire(background, j, needs...))
	}
	fair := func(key string, weight int) error {
		return acquire(waitdb.Job{JobID: job("a").JobID, Fair: key, Weight: weight}, one("l"))
	}
	for want, err := range map[string]error{
		"want at least one limit": acquire(job("a")),
		"key \"a\\nb\"":           acquire(job("a"), throttle.Need{Limit: "l", Key: "a\nb"}),
		"cost -1":                 acquire(job("a"), throttle.Need{Limit: "l", Cost: -1}),
		"want at most 200 bytes and no control characters": fair(strings.Repeat("k", 10_000), 1),
		"fair \"a\\nb\": want at most":                     fair("a\nb", 1),
		"weight 1000000000: want 1 to 1000":                fair("a", 1_000_000_000),
		"weight -1: want 1 to 1000":                        fair("a", -1),
	} {
		if err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 200 {
			t.Errorf("%.200v: want an error with %q", err, want)
		}
	}
	expect(t, "left", ask(t, s, "l", 0).Remaining, 1)
}

// TestAllow_LeavesPermitsToLanes: a job that needs all permits at once runs as soon as
// they exist, though a caller asks for one each 10 ms; a caller that waits as long as it was told to,
// passes when the job has run.
func TestAllow_LeavesPermitsToLanes(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	onRedis(t, func(t *testing.T, s *fixture) {
		define(t, s, throttle.Limit{Name: "l", Kind: throttle.TokenBucket, Rate: throttle.PerSecond(20), Capacity: 50})
		all := throttle.Need{Limit: "l", Key: "k", Cost: 50}
		expect(t, "of others before", ask(t, s, "l", 40).Outcome, allowed)
		expect(t, "needs all", s.acquire(t, "all", all).Outcome, denied)
		d := ask(t, s, "l", 1)
		expect(t, "beside it", [3]any{d.Outcome, d.RetryAfter, d.Remaining}, [3]any{denied, 2050 * time.Millisecond, 0})
		look, err := s.AllowN(background, "l", "k", 0)
		must(t, err)
		expect(t, "who looks", [2]any{look.Outcome, look.Remaining}, [2]any{allowed, 0})
		passed := 0
		for arrived := s.now; s.now.Sub(arrived) < 2*time.Second; s.wait(10 * time.Millisecond) {
			if ask(t, s, "l", 1).OK() {
				passed++
			}
			if s.now.Sub(arrived)%(100*time.Millisecond) == 0 {
				s.pump(t)
			}
		}
		expect(t, "passed it", passed, 0)
		s.wantTaken(t, s.pumped(t), all)
		s.pump(t)
		s.wait(50 * time.Millisecond)
		expect(t, "when it has run", ask(t, s, "l", 1).Outcome, allowed)
	})
}

// TestAllow_LaneWaitsElsewhere: a lane that waits for one of its limits, or
// for less than there is, keeps no caller from what it leaves.
func TestAllow_LaneWaitsElsewhere(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		define(t, s, perMinute("slow", 1), perMinute("l", 9))
		both := []throttle.Need{one("slow"), one("l")}
		s.acquire(t, "a", both...)
		expect(t, "waits for the slow one", s.acquire(t, "b", both...).Limit, "slow")
		s.pump(t)
		d := ask(t, s, "l", 8)
		expect(t, "beside it", [2]any{d.Outcome, d.Remaining}, [2]any{allowed, 0})
		expect(t, "there", ask(t, s, "slow", 1).RetryAfter, 2*time.Minute)
	})
}

func TestLease_PassedOn(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		define(t, s, throttle.Limit{Name: "c", Kind: throttle.Concurrency, Capacity: 2, Lease: 10 * time.Second})
		need := one("c")
		a := s.acquire(t, "a", need)
		expect(t, "lease", a.Lease, 10*time.Second)
		b := s.acquire(t, "b", need)
		expect(t, "it is unknown when c runs", s.acquire(t, "c", need).Unknown, true)
		s.acquire(t, "d", need)
		s.acquire(t, "e", need)
		expect(t, "granted while both run", s.pumped(t), nil)

		must(t, s.lanes.Free(background, a.Holder, need))
		expect(t, "granted when one is done", s.pumped(t), []string{"c"})
		c := s.acquire(t, "c", need)
		expect(t, "c", c.Outcome, allowed)
		s.wait(9 * time.Second)
		held, err := s.lanes.Extend(background, b.Holder, need)
		must(t, err)
		expect(t, "extended", held, 10*time.Second)
		s.wait(time.Second)
		expect(t, "granted when a worker has died", s.pumped(t), []string{"d"})
		s.wantTaken(t, []string{"d"}, need)
		held, err = s.lanes.Extend(background, c.Holder, need)
		must(t, err)
		expect(t, "the dead one's lease", held, 0)
		s.wait(9*time.Second - time.Microsecond)
		expect(t, "granted before the extended lease ends", s.pumped(t), nil)
		s.wait(time.Microsecond)
		expect(t, "granted at its end", s.pumped(t), []string{"e"})
	})
}

// TestLease_BelongsToTheCall: a later call of the same job neither frees nor extends an
// earlier one's lease, nor does it take another permit's place.
func TestLease_BelongsToTheCall(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		define(t, s, throttle.Limit{Name: "c", Kind: throttle.Concurrency, Capacity: 2, Lease: 10 * time.Second})
		first, second := s.acquire(t, "a", one("c")), s.acquire(t, "a", one("c"))
		expect(t, "both run", ask(t, s, "c", 0).Remaining, 0)
		must(t, s.lanes.Free(background, first.Holder, one("c")))
		expect(t, "left after the first", ask(t, s, "c", 0).Remaining, 1)
		held, err := s.lanes.Extend(background, first.Holder, one("c"))
		must(t, err)
		expect(t, "the first is extended", held, 0)
		held, err = s.lanes.Extend(background, second.Holder, one("c"))
		must(t, err)
		expect(t, "the second is extended", held, 10*time.Second)
	})
}
