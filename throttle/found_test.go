package throttle_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/script"
	"github.com/headgate/headgate/throttle"
)

// TestWindows_ChangedPeriod checks that permits count in a longer window to its end.
func TestWindows_ChangedPeriod(t *testing.T) {
	onEvery(t, func(t *testing.T, s *stage) {
		for _, kind := range []throttle.Kind{throttle.SlidingLog, throttle.SlidingWindow, throttle.FixedWindow} {
			for i, zone := range []string{"", "America/New_York"} {
				s.wait(noon.Sub(s.now))
				l := throttle.Limit{Name: fmt.Sprint(kind, i), Kind: kind, Rate: throttle.PerMinute(3)}
				define(t, s, l)
				ask(t, s, l.Name, 2)
				s.wait(time.Second)
				l.Rate = throttle.PerDay(3)
				if kind == throttle.FixedWindow {
					l.Zone = zone
				}
				must(t, s.Set(t.Context(), l))
				s.wait(3 * time.Hour)
				expect(t, l.Name, ask(t, s, l.Name, 0).Remaining, 1)
			}
		}
	})
}

// TestClock_StepsBack checks that permits and blocks still count after the clock has stepped back
// by less than a minute, even if they had ended.
func TestClock_StepsBack(t *testing.T) {
	onEvery(t, func(t *testing.T, s *stage) {
		define(t, s, threes...)
		for _, limit := range threes {
			s.wait(noon.Sub(s.now))
			ask(t, s, limit.Name, 3)
			reset := ask(t, s, limit.Name, 0).ResetAfter
			s.wait(reset + 59*time.Second)
			for range 200 { // the in-process limiter sweeps now and then
				expect(t, limit.Name+" afterwards", ask(t, s, limit.Name, 0).Remaining, 3)
			}
			s.wait(-59*time.Second - time.Microsecond)
			d := ask(t, s, limit.Name, 3)
			expect(t, limit.Name+" after a step back", [2]any{d.Outcome, d.RetryAfter}, [2]any{denied, time.Microsecond})

			must(t, s.Block(t.Context(), limit.Name, "other", s.now.Add(time.Second)))
			s.wait(30 * time.Second)
			other, err := s.Allow(t.Context(), limit.Name, "other")
			must(t, err)
			s.wait(-30 * time.Second)
			again, err := s.Allow(t.Context(), limit.Name, "other")
			must(t, err)
			expect(t, limit.Name+" blocked", [2]throttle.Outcome{other.Outcome, again.Outcome}, [2]throttle.Outcome{allowed, denied})
		}
		cell := func() throttle.Decision {
			t.Helper()
			c, err := s.Throttle(t.Context(), "k", 0, 1, time.Second, 1)
			must(t, err)
			return c
		}
		cell()
		s.wait(60 * time.Second)
		s.wait(-59*time.Second - time.Microsecond)
		expect(t, "a cell", cell().RetryAfter, time.Microsecond)
	})
}

// TestDecision_FarTimes: no time wraps around.
func TestDecision_FarTimes(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	const year, most = 365 * throttle.Day, 230 * 365 * throttle.Day
	onEvery(t, func(t *testing.T, s *stage) {
		define(t, s, threes...)
		must(t, s.Block(t.Context(), "log", "k", time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)))
		if d := ask(t, s, "log", 1); d.Outcome != denied || d.RetryAfter < 220*year || d.RetryAfter > most {
			t.Errorf("blocked for ever: %s", d)
		}
		// What is owed at one a century.
		l := throttle.Limit{Name: "f", Kind: throttle.Funnel, Rate: throttle.PerSecond(100), Capacity: 100}
		define(t, s, l)
		ask(t, s, "f", 100)
		l.Rate, l.Capacity = throttle.Every(100*year), 1
		must(t, s.Set(t.Context(), l))
		if d := ask(t, s, "f", 1); d.Outcome != denied || d.RetryAfter < 100*year || d.RetryAfter > most || d.ResetAfter > most {
			t.Errorf("a hundred centuries: %s, reset after %s", d, d.ResetAfter)
		}
	})
}

// callerError fails unless the error is one about what the caller gave.
func callerError(t *testing.T, what string, err error) {
	t.Helper()
	if _, ok := errors.AsType[*throttle.FieldError](err); !ok || errors.Is(err, throttle.ErrUnavailable) {
		t.Errorf("%s: %v, want an error about what was given", what, err)
	}
}

func TestThrottle_Invalid(t *testing.T) {
	onEvery(t, func(t *testing.T, s *stage) {
		for _, tt := range []struct {
			what                   string
			key                    string
			burst, count, quantity int
			period                 time.Duration
		}{
			{"it fills in more than a century", "k", 9_999_999, 1, 1, throttle.Day},
			{"a period of nanoseconds", "k", 1, 1, 1, 1500},
			{"a line break", "k\n", 1, 1, 1, time.Second},
			{"a long key", strings.Repeat("k", 201), 1, 1, 1, time.Second},
		} {
			_, err := s.Throttle(t.Context(), tt.key, tt.burst, tt.count, tt.period, tt.quantity)
			callerError(t, tt.what, err)
		}
		c, err := s.Throttle(t.Context(), "k", 1, 1, time.Second, math.MaxInt32)
		must(t, err)
		expect(t, "a large quantity", c, throttle.Decision{Outcome: impossible, Key: "k", Cost: math.MaxInt32, Capacity: 2, Remaining: 2, At: s.now})
	})
}

// TestBlock_Ends checks that a block is kept for a minute after its end, and is deleted with its
// limit.
func TestBlock_Ends(t *testing.T) {
	s := miniStage(t)
	blocks := func() []string { return s.rdb.Keys(background, "hg:*:blocked*").Val() }
	define(t, s, threes...)
	for i := range 300 {
		must(t, s.Block(background, "log", fmt.Sprint(i), s.now.Add(time.Second)))
	}
	must(t, s.Block(background, "log", "long", s.now.Add(5*time.Minute)))
	s.wait(2 * time.Minute)
	for range 3 {
		must(t, s.Block(background, "log", "long", s.now.Add(5*time.Minute)))
	}
	expect(t, "left of those that ended", s.rdb.ZCard(background, blocks()[0]).Val(), 1)
	s.wait(6*time.Minute + time.Second)
	expect(t, "keys after the last", blocks(), nil)

	must(t, s.Block(background, "log", "k", s.now.Add(time.Hour)))
	must(t, s.Delete(background, "log"))
	expect(t, "keys without their limit", blocks(), nil)
	define(t, s, threes...)
	expect(t, "the limit made again", ask(t, s, "log", 1).Outcome, allowed)
}

// TestConcurrency_LargeCosts: a million permits are a few commands.
func TestConcurrency_LargeCosts(t *testing.T) {
	s := realStage(t)
	define(t, s, throttle.Limit{Name: "c", Kind: throttle.Concurrency, Capacity: 10_000_000, Lease: time.Minute})
	ask(t, s, "c", 1)
	before := commands(t, s)
	d := ask(t, s, "c", 9_999_998)
	if n := commands(t, s) - before; d.Remaining != 1 || n > 250 {
		t.Errorf("%d commands for one call, which leaves %d; want at most 250, and 1", n, d.Remaining)
	}
}

// commands is how many commands the server has run, in scripts and outside.
func commands(t *testing.T, s *stage) (sum int) {
	t.Helper()
	info, err := s.rdb.Info(background, "commandstats").Result()
	must(t, err)
	for _, match := range regexp.MustCompile(`calls=(\d+)`).FindAllStringSubmatch(info, -1) {
		n, _ := strconv.Atoi(match[1])
		sum += n
	}
	return sum
}

// TestConcurrency_EndedLeases: none of them counts meanwhile.
func TestConcurrency_EndedLeases(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		define(t, s, throttle.Limit{Name: "c", Kind: throttle.Concurrency, Capacity: 250, Lease: time.Second})
		count := func() int64 { return s.rdb.ZCard(background, "hg:{default}:m:concurrency:c|k").Val() }
		for range 250 {
			ask(t, s, "c", 1)
		}
		must(t, s.rdb.Persist(background, "hg:{default}:m:concurrency:c|k").Err())
		s.wait(time.Second)
		expect(t, "left when all have ended", ask(t, s, "c", 1).Remaining, 249)
		expect(t, "kept for a clock that steps back", count(), 251)
		s.wait(time.Minute)
		expect(t, "left a minute later", ask(t, s, "c", 1).Remaining, 249)
		expect(t, "kept", count(), 152)
		ask(t, s, "c", 1)
		ask(t, s, "c", 1)
		expect(t, "kept after two more", count(), 4)
	})
}

// TestConcurrency_HolderAgain checks that a holder's own permits do not count against it, and that
// its last cost counts.
func TestConcurrency_HolderAgain(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		define(t, s, throttle.Limit{Name: "c", Kind: throttle.Concurrency, Capacity: 9})
		for _, cost := range []int{7, 2, 9, 4} {
			reply, err := script.New("limits/allow").Run(background, s.rdb, []string{hg("")}, "", "holder", 1, "c", "k", cost).Slice()
			must(t, err)
			expect(t, fmt.Sprint("left after ", cost), reply[0].([]any)[4], any(int64(9-cost)))
			expect(t, fmt.Sprint("left for others after ", cost), ask(t, s, "c", 0).Remaining, 9-cost)
		}
		must(t, s.Free(background, "holder", throttle.Need{Limit: "c", Key: "k", Cost: 4}))
		expect(t, "left in the end", ask(t, s, "c", 0).Remaining, 9)
	})
}

// TestDefine_AfterLoss checks that a Redis which has lost its data gets the config's limits again,
// with their overrides and one log line, and that limits which were deleted on purpose stay deleted.
func TestDefine_AfterLoss(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		var log bytes.Buffer
		l := throttle.New(s.rdb, throttle.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		funnel := threes[0]
		funnel.Overrides = map[string]throttle.Override{"k": {Capacity: 1}}
		define(t, l, append([]throttle.Limit{funnel}, threes[1:]...)...)
		must(t, l.Set(background, throttle.Limit{Name: "own", Kind: throttle.Funnel, Rate: throttle.PerSecond(1)}))
		s.restart(t)
		for _, limit := range threes {
			expect(t, limit.Name, ask(t, l, limit.Name, 1).Outcome, allowed)
		}
		expect(t, "the capacity of a key", ask(t, l, funnel.Name, 0).Capacity, 1)
		expect(t, "one that only Set made", ask(t, l, "own", 1).Outcome, noLimit)
		expect(t, "one that was never defined", ask(t, l, "nothing", 1).Outcome, noLimit)
		if lines := strings.Count(log.String(), "\n"); lines != 1 || !strings.Contains(log.String(), "defined=6") {
			t.Errorf("the log has %d lines, want one:\n%s", lines, &log)
		}

		must(t, s.Delete(background, "log")) // by another process
		expect(t, "one that was deleted", ask(t, l, "log", 1).Outcome, noLimit)
		must(t, s.rdb.Del(background, "hg:{default}:limit:"+threes[0].Name).Err())
		expect(t, "one that was lost later", ask(t, l, threes[0].Name, 0).Outcome, allowed)
		expect(t, "the deleted one then", ask(t, l, "log", 1).Outcome, noLimit)
		define(t, s, threes...)
		expect(t, "made again", ask(t, l, "log", 0).Outcome, allowed)
		expect(t, "names of deleted limits", s.rdb.HKeys(background, "hg:{default}:deleted").Val(), nil)
	})
}

// TestSet_AfterLoss checks that neither the repeated definitions nor an unchanged config undo a Set
// after the loss.
func TestSet_AfterLoss(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		l := throttle.New(s.rdb, throttle.Options{Logger: slog.New(slog.DiscardHandler)})
		define(t, l, perMinute("a", 3), perMinute("b", 3))
		s.restart(t)
		must(t, l.Set(background, perMinute("a", 7)))
		expect(t, "what was lost", ask(t, l, "b", 1).Outcome, allowed)
		expect(t, "what was set", ask(t, l, "a", 0).Capacity, 7)
		define(t, s, perMinute("a", 3), perMinute("b", 3))
		expect(t, "after a restart", ask(t, l, "a", 0).Capacity, 7)
		define(t, s, perMinute("a", 4))
		expect(t, "after new words in the config", ask(t, l, "a", 0).Capacity, 4)
	})
}

// TestFree_Notifies checks that Free notifies the dispatcher only if a lane waits.
func TestFree_Notifies(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		define(t, s, throttle.Limit{Name: "c", Kind: throttle.Concurrency, Capacity: 2})
		changes := func() string { return s.rdb.Get(background, "hg:{default}:changes").Val() }
		need := throttle.Need{Limit: "c", Key: "k", Cost: 1}
		first, second := ask(t, s, "c", 1), ask(t, s, "c", 1)
		before := changes()
		must(t, s.Free(background, first.Holder, need))
		expect(t, "changes if no lane waits", changes(), before)
		must(t, s.rdb.HSet(background, "hg:{default}:contended", "c|k", 1).Err())
		must(t, s.Free(background, first.Holder, need))
		expect(t, "changes by a repeated Free", changes(), before)
		must(t, s.Free(background, second.Holder, need))
		expect(t, "changes if a lane waits", changes(), "2")
	})
}
