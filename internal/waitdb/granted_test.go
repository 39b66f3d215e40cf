package waitdb_test

import (
	"fmt"
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
		expect(t, "nothing is reserved for the next", s.rdb.ZScore(background, hg("granted:default\nl|k"), "next").Val(), 0)
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
		s.wait(time.Second) // the lane waits for the other limit, but is tried each second
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

// TestMaxWait_GrantedButExpired: a granted job whose time is up before it arrives is not let by,
// and what was reserved for it is another's at once.
func TestMaxWait_GrantedButExpired(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		define(t, s, perMinute("l", 1))
		s.acquire(t, "a", one("l"))
		b := job("b")
		b.MaxWait = time.Minute + 100*time.Millisecond
		s.acquireJob(t, b, one("l"))
		s.acquire(t, "c", one("l"))
		s.pump(t)
		s.wait(time.Minute)
		expect(t, "granted in time", s.pumped(t), []string{"b"})
		s.wait(100 * time.Millisecond)
		expect(t, "it arrives", s.acquireJob(t, b, one("l")).Outcome, throttle.Expired)
		s.wantTaken(t, s.pumped(t), one("l"))
		s.pump(t)
		expect(t, "traces", s.traces(t), nil)
	})
}

// TestMaxWait_ExpiredJobsGetNoTurns: if they were not listed yet, too.
func TestMaxWait_ExpiredJobsGetNoTurns(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		define(t, s, perMinute("l", 1))
		s.acquire(t, "a", one("l"))
		for i := range 5 {
			b := job(fmt.Sprint("b", i))
			b.MaxWait = time.Second
			s.acquireJob(t, b, one("l"))
		}
		s.acquire(t, "c", one("l"))
		s.pump(t)
		s.wait(time.Minute)
		_, results, _, err := s.lanes.Grant(background, "dispatcher", []fairqueue.Turn{{Lane: "default\nl|k", Held: []int64{0}}})
		must(t, err)
		expect(t, "granted", results[0].Job, "c")
		expect(t, "what is wanted", s.rdb.HGetAll(background, hg("demand")).Val(), map[string]string{})
	})
}

// TestMaxWait_UnknownWait: if it is unknown when permits return, a job waits until
// it may wait no longer. Then it is granted, so that it expires; its
// place counts for nothing.
func TestMaxWait_UnknownWait(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		define(t, s, throttle.Limit{Name: "c", Kind: throttle.Concurrency, Capacity: 1, Lease: time.Hour})
		d := s.acquire(t, "a", one("c"))
		b := job("b")
		b.MaxWait = 20 * time.Second
		expect(t, "though the lease takes an hour", s.acquireJob(t, b, one("c")).Outcome, denied)
		s.acquire(t, "c", one("c"))
		s.pump(t)
		s.wait(20*time.Second - time.Microsecond)
		expect(t, "granted before that", s.pumped(t), nil)
		s.wait(time.Microsecond)
		expect(t, "promoted to expire", s.pumped(t), []string{"b"})
		expect(t, "granted again at once", s.pumped(t), nil)
		for _, later := range []time.Duration{1, 2, 4, 8, 16, 32, 32} {
			s.wait(later*time.Second - time.Microsecond)
			expect(t, "granted too soon again", s.pumped(t), nil)
			s.wait(time.Microsecond)
			expect(t, "granted again", s.pumped(t), []string{"b"})
		}
		late := s.acquireJob(t, b, one("c"))
		expect(t, "b", [2]any{late.Outcome, late.RetryAfter}, [2]any{throttle.Expired, time.Duration(0)})
		expect(t, "why", late.String(), "limit c for k did not let the job run within the time that it may wait")
		s.wait(time.Second)
		expect(t, "granted when it is gone", s.pumped(t), nil)
		must(t, s.lanes.Free(background, d.Holder, one("c")))
		s.wantTaken(t, s.pumped(t), one("c"))
		s.pump(t)
		expect(t, "traces", s.traces(t), nil)
	})
}

// TestPutBack: a job is put back for a little longer than it is expected to wait;
// if that is unknown, for a minute, and then for as long as it has waited.
func TestPutBack(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		define(t, s, perMinute("l", 1), throttle.Limit{Name: "c", Kind: throttle.Concurrency, Capacity: 1, Lease: 4 * time.Hour})
		s.acquire(t, "a", one("l"))
		d := s.acquire(t, "b", one("l"))
		expect(t, "known", [3]any{d.Unknown, d.RetryAfter, d.PutBack}, [3]any{false, time.Minute, 71 * time.Second})
		s.acquire(t, "x", one("c"))
		for _, tt := range []struct{ wait, putBack time.Duration }{
			{0, time.Minute}, {30 * time.Second, time.Minute}, {2 * time.Minute, 150 * time.Second}, {2 * time.Hour, time.Hour},
		} {
			s.wait(tt.wait)
			d := s.acquire(t, "y", one("c"))
			expect(t, "unknown", [3]any{d.Unknown, d.RetryAfter, d.PutBack}, [3]any{true, tt.putBack, tt.putBack})
		}
	})
}
