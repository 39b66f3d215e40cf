package waitdb_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/throttle"
)

// TestAllow_LeavesPermitsToLanes: a job that needs all permits at once runs as soon as
// they exist, though a caller asks for one each millisecond; a caller that waits as long as it was told to,
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
		for arrived := s.now; s.now.Sub(arrived) < 2*time.Second; s.wait(time.Millisecond) {
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
