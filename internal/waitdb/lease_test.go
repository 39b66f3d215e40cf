package waitdb_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/throttle"
)

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
		expect(t, "extended", held, true)
		s.wait(time.Second)
		expect(t, "granted when a worker has died", s.pumped(t), []string{"d"})
		s.wantTaken(t, []string{"d"}, need)
		held, err = s.lanes.Extend(background, c.Holder, need)
		must(t, err)
		expect(t, "the dead one's lease", held, false)
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
		expect(t, "the first is extended", held, false)
		held, err = s.lanes.Extend(background, second.Holder, one("c"))
		must(t, err)
		expect(t, "the second is extended", held, true)
	})
}
