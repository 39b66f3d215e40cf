package throttle_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/throttle"
)

func TestMaxWait(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		define(t, s, perMinute("l", 1))
		s.acquire(t, "a", one("l"))
		before := s.traces(t)
		b, c := job("b"), job("c")
		b.MaxWait = time.Minute - time.Microsecond
		d := s.acquireJob(t, b, one("l"))
		expect(t, "longer than it may wait", [2]any{d.Outcome, d.RetryAfter}, [2]any{throttle.TooLate, time.Minute})
		expect(t, "what it leaves", s.traces(t), before)

		b.MaxWait, c.MaxWait = time.Minute, time.Minute
		expect(t, "as long as it may wait", s.acquireJob(t, b, one("l")).Outcome, denied)
		expect(t, "behind it", s.acquireJob(t, c, one("l")).Outcome, throttle.TooLate)
		must(t, s.Block(background, "l", "k", s.now.Add(time.Hour)))
		expect(t, "it asks again when the wait has become longer", s.acquireJob(t, b, one("l")).Outcome, throttle.TooLate)
		s.pump(t)
		expect(t, "traces", s.traces(t), []string{"blocked:l"})
	})
}

// TestMaxWaitBehindOtherCosts: of a lane that is alone at its meter what its jobs want
// is known, and so whether the last comes too late; whatever that costs itself.
func TestMaxWaitBehindOtherCosts(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		define(t, s, throttle.Limit{Name: "l", Kind: throttle.Funnel, Rate: throttle.PerSecond(1), Capacity: 10})
		big := throttle.Need{Limit: "l", Key: "k", Cost: 10}
		s.acquire(t, "a", big)
		s.acquire(t, "b", one("l"))
		c, d := job("c"), job("d")
		c.MaxWait, d.MaxWait = 11*time.Second, 20*time.Second
		expect(t, "behind a permit", s.acquireJob(t, c, big).Outcome, denied)
		late := s.acquireJob(t, d, big)
		expect(t, "behind eleven", [2]any{late.Outcome, late.RetryAfter}, [2]any{throttle.TooLate, 21 * time.Second})
		d.MaxWait += time.Second
		expect(t, "if it may wait for them", s.acquireJob(t, d, big).Outcome, denied)
	})
}

// TestMaxWaitCountsFromTheFirstDenial: however often a job is put back.
func TestMaxWaitCountsFromTheFirstDenial(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		define(t, s, perMinute("l", 1))
		b := job("b")
		b.MaxWait = 90 * time.Second
		s.acquire(t, "a", one("l"))
		expect(t, "at first", s.acquireJob(t, b, one("l")).Outcome, denied)
		s.wait(50 * time.Second)
		must(t, s.Block(background, "l", "k", s.now.Add(30*time.Second)))
		expect(t, "80 s after that it would run", s.acquireJob(t, b, one("l")).Outcome, denied)
		must(t, s.Block(background, "l", "k", s.now.Add(41*time.Second)))
		expect(t, "91 s after that it would run", s.acquireJob(t, b, one("l")).Outcome, throttle.TooLate)
	})
}

// TestUnknownWait: where nobody knows when permits come back, a job waits until
// it may wait no longer. Then it is called, to hear that it is too late; its
// place counts for nothing.
func TestUnknownWait(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		define(t, s, throttle.Limit{Name: "c", Kind: throttle.Concurrency, Capacity: 1, Lease: time.Hour})
		d := s.acquire(t, "a", one("c"))
		b := job("b")
		b.MaxWait = 20 * time.Second
		expect(t, "though the lease takes an hour", s.acquireJob(t, b, one("c")).Outcome, denied)
		s.acquire(t, "c", one("c"))
		s.pump(t)
		s.wait(20*time.Second - time.Microsecond)
		expect(t, "called before that", s.pumped(t), nil)
		s.wait(time.Microsecond)
		expect(t, "called to hear it", s.pumped(t), []string{"b"})
		expect(t, "called again at once", s.pumped(t), nil)
		s.wait(time.Second)
		expect(t, "called again a second later", s.pumped(t), []string{"b"})
		late := s.acquireJob(t, b, one("c"))
		expect(t, "b", [2]any{late.Outcome, late.Unknown}, [2]any{throttle.TooLate, true})
		expect(t, "why", late.String(), "it has waited for limit c for k as long as it may, and nobody can tell how long it would still wait")
		s.wait(time.Second)
		expect(t, "called when it is gone", s.pumped(t), nil)
		must(t, s.lanes.Free(background, d.Holder, one("c")))
		s.wantTaken(t, s.pumped(t), one("c"))
		s.pump(t)
		expect(t, "traces", s.traces(t), nil)
	})
}

// TestPutBack: a job is put back for a little longer than it was told to wait;
// where nobody knows that, for a minute, and then for as long as it has waited.
func TestPutBack(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
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
