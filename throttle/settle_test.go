package throttle_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// TestSettle: what a call has truly cost, for every kind.
func TestSettle(t *testing.T) {
	onEvery(t, func(t *testing.T, s *stage) {
		define(t, s, threes...)
		for _, limit := range threes {
			left := func() int { return ask(t, s, limit.Name, 0).Remaining }
			d := ask(t, s, limit.Name, 3)
			must(t, s.Settle(t.Context(), d, limit.Name, "k", 3))
			expect(t, limit.Name+": as was taken", left(), 0)
			must(t, s.Settle(t.Context(), d, limit.Name, "k", 1))
			expect(t, limit.Name+": two come back", left(), 2)
			expect(t, limit.Name+": and can be taken", ask(t, s, limit.Name, 2).Outcome, allowed)
			if limit.Kind == throttle.Concurrency {
				continue
			}
			s.wait(2 * time.Hour)
			d = ask(t, s, limit.Name, 1)
			must(t, s.Settle(t.Context(), d, limit.Name, "k", 4))
			owed := ask(t, s, limit.Name, 1)
			expect(t, limit.Name+": a debt", [2]any{owed.Outcome, owed.Remaining}, [2]any{denied, 0})
			s.wait(owed.RetryAfter)
			expect(t, limit.Name+": paid", ask(t, s, limit.Name, 1).Outcome, allowed)
			s.wait(time.Hour)
			must(t, s.Settle(t.Context(), d, limit.Name, "k", 0))
			expect(t, limit.Name+": nothing comes back after an hour", left(), 3)
		}
	})
}

// TestSettle_LostReply: a call that the client repeats, since its answer got lost,
// charges or gives back once.
func TestSettle_LostReply(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		define(t, s, threes...)
		lost := &redistest.LostReplies{}
		s.rdb.AddHook(redistest.Hook(lost.Around))
		for _, limit := range threes {
			others, d := ask(t, s, limit.Name, 1), ask(t, s, limit.Name, 1)
			lost.Next = true
			must(t, s.Settle(t.Context(), others, limit.Name, "k", 2))
			expect(t, limit.Name+": charged once", ask(t, s, limit.Name, 0).Remaining, 0)
			if limit.Kind == throttle.Concurrency {
				continue
			}
			lost.Next = true
			must(t, s.Settle(t.Context(), d, limit.Name, "k", 0))
			expect(t, limit.Name+": what others took stays taken", ask(t, s, limit.Name, 0).Remaining, 1)
		}
	})
}

// TestSettle_ForgottenMeter: calls took all permits of a meter, which was then reset or lost. They
// give nothing back, because the meter has handed all permits out again. Calls from after the loss do.
func TestSettle_ForgottenMeter(t *testing.T) {
	onEvery(t, func(t *testing.T, s *stage) {
		for name, forget := range map[string]func(l throttle.Limit){
			"reset at once": func(l throttle.Limit) { must(t, s.Reset(t.Context(), l.Name, "k")) },
			"reset": func(l throttle.Limit) {
				s.wait(time.Second)
				must(t, s.Reset(t.Context(), l.Name, "k"))
			},
			"lost": func(l throttle.Limit) {
				if s.rdb == nil {
					must(t, s.Reset(t.Context(), l.Name, "k"))
					return
				}
				must(t, s.rdb.Del(t.Context(), hg("m:"+string(l.Kind)+":"+l.Name+"|k")).Err())
			},
			"deleted and defined again": func(l throttle.Limit) {
				s.wait(time.Second)
				must(t, s.Delete(t.Context(), l.Name))
				define(t, s, l)
				must(t, s.Reset(t.Context(), l.Name, "k"))
			},
		} {
			for _, limit := range threes {
				if limit.Kind == throttle.Concurrency || limit.Kind == throttle.SlidingLog && name == "reset at once" {
					continue // of a log, two calls of one microsecond are the same
				}
				s.wait(3 * time.Hour)
				if limit.Rate.N = 10; limit.Capacity > 0 {
					limit.Rate, limit.Capacity = throttle.PerHour(10), 10
				}
				define(t, s, limit)
				var before []throttle.Decision
				for range 10 {
					before = append(before, ask(t, s, limit.Name, 1))
				}
				forget(limit)
				if name != "reset at once" {
					s.wait(time.Microsecond)
				}
				var after []throttle.Decision
				for range 10 {
					after = append(after, ask(t, s, limit.Name, 1))
				}
				what := limit.Name + ", " + name
				expect(t, what+": handed out again", after[9].Outcome, allowed)
				for _, d := range before {
					must(t, s.Settle(t.Context(), d, limit.Name, "k", 0))
				}
				expect(t, what+": what came back", ask(t, s, limit.Name, 0).Remaining, 0)
				if name == "reset at once" {
					continue
				}
				for _, d := range after[:3] {
					must(t, s.Settle(t.Context(), d, limit.Name, "k", 0))
				}
				expect(t, what+": what later calls gave back", ask(t, s, limit.Name, 0).Remaining, 3)
			}
		}
	})
}

// TestSettle_LateSending: the first sending of a Settle arrives after its repeat, and after the
// caller's next call. It charges and gives back nothing.
func TestSettle_LateSending(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		define(t, s, threes...)
		late := &redistest.LateSending{}
		s.rdb.AddHook(redistest.Hook(late.Around))
		for _, limit := range threes {
			for _, cost := range []int{0, 2} {
				for _, next := range []bool{false, true} {
					must(t, s.Reset(t.Context(), limit.Name, "k"))
					s.wait(time.Hour)
					others, d := ask(t, s, limit.Name, 1), ask(t, s, limit.Name, 1)
					late.Next = func(redis.Cmder) bool { return true }
					must(t, s.Settle(t.Context(), d, limit.Name, "k", cost))
					if cost == 0 && limit.Kind != throttle.Concurrency {
						expect(t, limit.Name+": another takes what came back", ask(t, s, limit.Name, 1).Outcome, allowed)
					}
					if next {
						must(t, s.Settle(t.Context(), others, limit.Name, "k", 1))
						s.wait(50 * time.Minute)
					}
					before := snapshot(t, s)
					expect(t, limit.Name+": one was late", late.Arrive(t.Context(), s.rdb), true)
					expect(t, limit.Name+": what is kept", snapshot(t, s), before)
				}
			}
		}
	})
}

// TestDelete_LateSending: the first sending of a Delete arrives after the limit was defined again.
func TestDelete_LateSending(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		late := &redistest.LateSending{}
		s.rdb.AddHook(redistest.Hook(late.Around))
		for _, exists := range []bool{false, true} {
			if exists {
				define(t, s, perMinute("l", 1))
			}
			late.Next = func(redis.Cmder) bool { return true }
			expect(t, "no error", s.Delete(t.Context(), "l") == nil, exists)
			define(t, s, perMinute("l", 2))
			expect(t, "the caller's next call finds nothing", s.Delete(t.Context(), "other") == nil, false)
			expect(t, "one was late", late.Arrive(t.Context(), s.rdb), true)
			expect(t, "the limit is there", ask(t, s, "l", 1).Outcome, allowed)
		}
	})
}

// TestSettle_LeakedPermits: what a funnel has got back by itself does not
// come back once more, and what others took since stays owed.
func TestSettle_LeakedPermits(t *testing.T) {
	onEvery(t, func(t *testing.T, s *stage) {
		define(t, s, throttle.Limit{Name: "f", Kind: throttle.Funnel, Rate: throttle.PerSecond(1), Capacity: 10})
		d := ask(t, s, "f", 10)
		s.wait(8 * time.Second)
		ask(t, s, "f", 5)
		must(t, s.Settle(t.Context(), d, "f", "k", 1))
		expect(t, "of seven two were still owed", ask(t, s, "f", 0).Remaining, 5)

		must(t, s.SetKey(t.Context(), "f", "k", throttle.Override{Rate: throttle.Every(time.Minute)}))
		must(t, s.Settle(t.Context(), d, "f", "k", 0))
		must(t, s.UnsetKey(t.Context(), "f", "k"))
		must(t, s.Settle(t.Context(), d, "f", "k", 0))
		expect(t, "after a change nothing", ask(t, s, "f", 0).Remaining, 5)
	})
}

// TestSettle_AnyOrder: calls give all their permits back at about the same time. Then as many permits
// are free as before the calls. The order of the calls does not matter, nor do calls of others.
func TestSettle_AnyOrder(t *testing.T) {
	onEvery(t, func(t *testing.T, s *stage) {
		for _, before := range []int{0, 20} {
			for _, order := range []func(i int) int{
				func(i int) int { return i },
				func(i int) int { return 99 - i },
				func(i int) int { return i/2 + i%2*50 }, // two batches, in turns
				func(i int) int { return 37 * i % 100 },
			} {
				limit := throttle.Limit{Name: "f", Kind: throttle.Funnel, Rate: throttle.PerSecond(10), Capacity: 1000}
				define(t, s, limit)
				if before > 0 {
					ask(t, s, "f", before)
				}
				var calls []throttle.Decision
				for range 100 {
					calls = append(calls, ask(t, s, "f", 3))
					s.wait(100 * time.Microsecond)
				}
				for i := range calls {
					s.wait(200 * time.Microsecond)
					must(t, s.Settle(t.Context(), calls[order(i)], "f", "k", 0))
					if i == 50 {
						ask(t, s, "f", 7)
					}
				}
				if left := ask(t, s, "f", 0).Remaining; left < 1000-before-7 {
					t.Errorf("%d permits are left after %d and 7 were taken", left, before)
				}
				s.wait(time.Hour)
			}
		}
	})
}

func TestSettle_Invalid(t *testing.T) {
	onEvery(t, func(t *testing.T, s *stage) {
		define(t, s, threes...)
		d := ask(t, s, "funnel", 1)
		for want, err := range map[string]error{
			"cost -1: want 0 to 10000000 of limit funnel":           s.Settle(t.Context(), d, "funnel", "k", -1),
			`settle: nothing was taken of limit log for key "k"`:    s.Settle(t.Context(), d, "log", "k", 1),
			`settle: nothing was taken of limit funnel for key "x"`: s.Settle(t.Context(), d, "funnel", "x", 1),
		} {
			if err == nil || err.Error() != want {
				t.Errorf("%v, want %s", err, want)
			}
		}
	})
}

// TestSettle_Again checks that the last cost of a call counts, however often it settles, and that
// an extra charge is given back.
func TestSettle_Again(t *testing.T) {
	onEvery(t, func(t *testing.T, s *stage) {
		for _, limit := range threes {
			if limit.Kind == throttle.Concurrency {
				continue
			}
			limit.Rate.N, limit.Capacity = 50, 50
			if limit.Kind != throttle.Funnel && limit.Kind != throttle.TokenBucket {
				limit.Capacity = 0
			}
			define(t, s, limit)
			must(t, s.Settle(t.Context(), ask(t, s, limit.Name, 20), limit.Name, "k", 10))
			d := ask(t, s, limit.Name, 20)
			for _, cost := range []int{15, 15, 4, 30, 22, 0, 7, 20} {
				must(t, s.Settle(t.Context(), d, limit.Name, "k", cost))
				expect(t, limit.Name+": left", ask(t, s, limit.Name, 0).Remaining, 40-cost)
			}
		}
	})
}
