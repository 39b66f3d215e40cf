package waitdb_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/throttle"
)

// TestGranted_JobGone: one that is not in its queue any more is forgotten, and
// the next of its lane is granted as soon as that is known.
func TestGranted_JobGone(t *testing.T) {
	for _, state := range []fairqueue.State{fairqueue.StateGone, fairqueue.StateDone} {
		onRedis(t, func(t *testing.T, s *fixture) {
			define(t, s, throttle.Limit{Name: "c", Kind: throttle.Concurrency, Capacity: 1, Lease: time.Hour})
			a := s.acquire(t, "a", one("c"))
			s.acquire(t, "gone", one("c"))
			s.acquire(t, "next", one("c"))
			s.pump(t)
			must(t, s.lanes.Free(background, a.Holder, one("c")))
			s.dispatcher.state = func(job fairqueue.GrantedJob) fairqueue.State {
				if job.ID == "gone" {
					return state
				}
				return fairqueue.StateMoved
			}
			granted := s.pumped(t)
			expect(t, "granted", granted, []string{"next"})
			s.wantTaken(t, granted, one("c"))
			s.pump(t)
			expect(t, "traces", s.traces(t), nil)
		})
	}
}

// TestGranted_LateJobTakesLaterPermits: what is reserved is the lane's, for whichever
// of its jobs arrives; the last one gets none, and is first.
func TestGranted_LateJobTakesLaterPermits(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		define(t, s, throttle.Limit{Name: "l", Kind: throttle.Funnel, Rate: throttle.PerMinute(2), Capacity: 2})
		slow := job("next")
		slow.Grant = time.Second
		s.acquire(t, "x", one("l"))
		s.acquire(t, "y", one("l"))
		s.acquire(t, "late", one("l"))
		s.acquireJob(t, slow, one("l"))
		s.acquire(t, "third", one("l"))
		s.pump(t)
		s.wait(time.Minute)
		expect(t, "granted", s.pumped(t), []string{"late", "next"})
		s.wait(grant)
		expect(t, "promoted again", s.pumped(t), []string{"late"})
		expect(t, "others take what was reserved for it", ask(t, s, "l", 1).Outcome, allowed)
		expect(t, "a late job takes what is reserved for the next", s.acquire(t, "late", one("l")).Outcome, allowed)
		d := s.acquireJob(t, slow, one("l"))
		expect(t, "the next", [2]any{d.Outcome, d.RetryAfter}, [2]any{denied, 30 * time.Second})
		s.wait(d.RetryAfter)
		expect(t, "granted then", s.pumped(t), []string{"next"})
	})
}

func TestDelete_WhileJobsWait(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		define(t, s, perMinute("l", 1), perMinute("other", 1))
		both := []throttle.Need{one("l"), one("other")}
		for _, job := range []string{"a", "b", "c"} {
			s.acquire(t, job, both...)
		}
		s.pump(t)
		must(t, s.lanes.Delete(background, "l"))
		s.wait(30 * time.Second) // the lane waits for the other limit, but is tried then
		granted := s.pumped(t)
		expect(t, "granted", granted, []string{"b", "c"})
		for _, job := range granted {
			d := s.acquire(t, job, both...)
			expect(t, job, [2]any{d.Outcome, d.Limit}, [2]any{noLimit, "l"})
		}
		s.pump(t)
		expect(t, "traces", s.traces(t), nil)
	})
}

// TestGranted_LimitLowered: a granted job that finds its permit gone keeps its
// place at the head.
func TestGranted_LimitLowered(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		define(t, s, perMinute("l", 2))
		for _, job := range []string{"a", "b", "c", "d"} {
			s.acquire(t, job, one("l"))
			s.wait(20 * time.Second)
		}
		expect(t, "granted", s.pumped(t), []string{"c", "d"}) // 80 s after a, 60 s after b
		s.wantTaken(t, []string{"c"}, one("l"))
		define(t, s, perMinute("l", 1))
		expect(t, "d", s.acquire(t, "d", one("l")).RetryAfter, time.Minute)
		s.acquire(t, "e", one("l"))
		s.wait(time.Minute)
		expect(t, "granted", s.pumped(t), []string{"d"})
		s.wantTaken(t, []string{"d"}, one("l"))
	})
}

// TestGranted_JobDenied_PermitsPassOn: what was reserved for it goes to others at once.
func TestGranted_JobDenied_PermitsPassOn(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		define(t, s, perMinute("l", 9), perMinute("m", 1))
		both := []throttle.Need{one("l"), one("m")}
		s.acquire(t, "a", both...)
		s.acquire(t, "b", both...)
		s.acquire(t, "c", one("m"))
		s.wait(time.Minute)
		expect(t, "granted", s.pumped(t), []string{"b"})
		must(t, s.lanes.Block(background, "l", "k", s.now.Add(time.Hour)))
		d := s.acquire(t, "b", both...)
		expect(t, "b", [3]any{d.Outcome, d.Limit, d.RetryAfter}, [3]any{denied, "l", time.Hour})
		expect(t, "granted in its place", s.pumped(t), []string{"c"})
	})
}
