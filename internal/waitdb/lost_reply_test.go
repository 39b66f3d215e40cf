package waitdb_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/forecast"
	"github.com/headgate/headgate/internal/script"
	"github.com/headgate/headgate/internal/testutil/limittest"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// TestLostReply_BatchGetsNoMore: of jobs that asked together one got the permit and one did
// not. The answer gets lost, and is asked for again when there is another permit: that stays
// in the limit until a job takes it.
func TestLostReply_BatchGetsNoMore(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		define(t, s, throttle.Limit{Name: "l", Kind: throttle.Funnel, Rate: throttle.PerSecond(1), Capacity: 1})
		s.acquire(t, "warm", one("l"))
		s.wait(time.Minute)
		lost := &redistest.LostReplies{Next: true, Later: func() { s.wait(time.Second) }}
		s.rdb.AddHook(redistest.Hook(lost.Around))
		admitted := 0
		asks := []waitdb.AcquireRequest{{Job: job("a"), Needs: []throttle.Need{one("l")}}, {Job: job("b"), Needs: []throttle.Need{one("l")}}}
		for _, answer := range s.lanes.AcquireAll(t.Context(), asks...) {
			must(t, answer.Err)
			if answer.OK() {
				admitted++
			}
		}
		if ask(t, s, "l", 1).OK() {
			admitted++
		}
		expect(t, "admitted", admitted, 2)
	})
}

// TestLostReply_TakenAt: a call that is repeated seconds later, because its
// answer got lost, finds permits that are as old as that: by Redis's clock, and by this
// process's.
func TestLostReply_TakenAt(t *testing.T) {
	for _, limit := range limittest.Threes {
		for _, waiting := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, others wait %v", limit.Kind, waiting), func(t *testing.T) {
				onRedis(t, func(t *testing.T, s *fixture) {
					define(t, s, limit, perMinute("other", 1))
					need := throttle.Need{Limit: limit.Name, Key: "k"}
					s.acquire(t, "warm", need)
					if waiting {
						s.acquire(t, "first", one("other"))
						expect(t, "another waits", s.acquire(t, "second", one("other")).Outcome, denied)
						s.acquire(t, "to learn that", need)
					}
					taken := s.now
					lost := &redistest.LostReplies{Next: true, Later: func() { s.wait(3 * time.Second) }}
					s.rdb.AddHook(redistest.Hook(lost.Around))
					d := s.acquire(t, "job", need)
					expect(t, "outcome", d.Outcome, allowed)
					expect(t, "taken", d.At.UTC(), taken)
					if age := script.Elapsed(d.TakenAt, time.Now()); age < 3*time.Second || age > time.Minute {
						t.Errorf("its permits are %s old, want 3s", age)
					}
				})
			})
		}
	}
}

// TestLateReply_TakenAt: an answer that arrives seconds late, or that is read late because
// the process was stopped, brings permits that are as old as that.
func TestLateReply_TakenAt(t *testing.T) {
	for _, waiting := range []bool{false, true} {
		t.Run(fmt.Sprintf("others wait %v", waiting), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, rdb := redistest.Mini(t)
				limiter := waitdb.New(throttle.New(rdb, throttle.Options{}))
				must(t, limiter.Define(t.Context(), perMinute("api", 60), perMinute("other", 1)))
				acquire := func(id string, need throttle.Need) waitdb.Decision {
					d, err := limiter.Acquire(t.Context(), waitdb.Job{JobID: throttle.JobID{Queue: "default", ID: id}}, need)
					must(t, err)
					return d
				}
				acquire("warm", one("api"))
				if waiting {
					acquire("first", one("other"))
					expect(t, "another waits", acquire("second", one("other")).Outcome, denied)
					acquire("to learn that", one("api"))
				}
				time.Sleep(5 * time.Second)
				late := 3 * time.Second
				rdb.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
					err := next(ctx, cmd)
					time.Sleep(late)
					late = 0
					return err
				}))
				d := acquire("job", one("api"))
				expect(t, "outcome", d.Outcome, allowed)
				expect(t, "age", script.Elapsed(d.TakenAt, time.Now()), 3*time.Second)
			})
		})
	}
}

// TestLostReply_Delete: the repeat does not report that there was no limit.
func TestLostReply_Delete(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		define(t, s, perMinute("l", 1))
		lost := &redistest.LostReplies{Next: true}
		s.rdb.AddHook(redistest.Hook(lost.Around))
		must(t, s.lanes.Delete(background, "l"))
		if err := s.lanes.Delete(background, "l"); !errors.Is(err, throttle.ErrNoLimit) {
			t.Errorf("deleted twice: %v, want that there is none", err)
		}
	})
}

// TestLostReply_Settle: a call that was repeated, because its answer got lost, does
// not know where its permits were counted, and so gives back none: they could be others'.
// Nor does one give back twice whose Settle failed.
func TestLostReply_Settle(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		lost := &redistest.LostReplies{}
		s.rdb.AddHook(redistest.Hook(lost.Around))
		for _, limit := range limittest.Threes[:5] {
			define(t, s, limit)
			need := throttle.Need{Limit: limit.Name, Key: "k"}
			ask(t, s, limit.Name, 1)
			lost.Next = true
			d := s.acquire(t, "job", need)
			must(t, s.Settle(t.Context(), d.Decision, limit.Name, "k", 0))
			expect(t, limit.Name+": left", ask(t, s, limit.Name, 0).Remaining, 1)
		}
	})
}

// TestRedisGone: every method reports that Redis is unavailable.
func TestRedisGone(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	server := redistest.Run(t)
	rdb := server.Client()
	defer rdb.Close()
	l := waitdb.New(throttle.New(rdb, throttle.Options{}))
	define(t, l, perMinute("l", 3))
	must(t, server.Stop())
	who := job("j")
	for verb, call := range map[string]func(context.Context) error{
		"Acquire":  func(ctx context.Context) error { return second(l.Acquire(ctx, who, one("l"))) },
		"Refused":  func(ctx context.Context) error { return second(l.RateLimited(ctx, who, waitdb.RateLimit{}, one("l"))) },
		"Forget":   func(ctx context.Context) error { return second(l.Forget(ctx, who.JobID)) },
		"Waiting":  func(ctx context.Context) error { _, _, err := l.Position(ctx, who.JobID); return err },
		"Places":   func(ctx context.Context) error { return second(l.Positions(ctx, who.JobID)) },
		"Waiters":  func(ctx context.Context) error { return second(l.CountWaiting(ctx, "l", 0)) },
		"Wants":    func(ctx context.Context) error { return second(l.Demands(ctx)) },
		"Forecast": func(ctx context.Context) error { return second(forecast.Make(ctx, l, forecast.Options{})) },
	} {
		if err := call(t.Context()); !errors.Is(err, throttle.ErrUnavailable) || errors.Is(err, throttle.ErrNoLimit) {
			t.Errorf("%s without Redis: %v, want ErrUnavailable", verb, err)
		}
	}
}

// TestLostReply_LeaseChanges: the lease of the limit becomes longer between a call and its repeat. The
// repeat tells what is left of the lease that the call took.
func TestLostReply_LeaseChanges(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		slots := throttle.Limit{Name: "slots", Kind: throttle.Concurrency, Capacity: 1, Lease: 5 * time.Second}
		define(t, s, slots)
		s.acquire(t, "warm", one("slots"))
		s.wait(time.Minute)
		lost := &redistest.LostReplies{Next: true, Later: func() {
			slots.Lease = time.Hour
			must(t, s.Set(t.Context(), slots))
			s.wait(2 * time.Second)
		}}
		s.rdb.AddHook(redistest.Hook(lost.Around))
		d := s.acquire(t, "job", one("slots"))
		expect(t, "outcome", d.Outcome, allowed)
		expect(t, "lease", d.Lease, 3*time.Second)
	})
}
