package throttle_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/throttle"
)

// grant is for how long the tests' pump keeps a called job's permits.
const grant = 250 * time.Millisecond

var background = context.Background()

func one(limit string) throttle.Need { return throttle.Need{Limit: limit, Key: "k", Cost: 1} }

func perMinute(name string, n int) throttle.Limit {
	return throttle.Limit{Name: name, Kind: throttle.SlidingLog, Rate: throttle.PerMinute(n)}
}

// acquire asks for a job of that id.
func (s *stage) acquire(t redistest.TB, id string, needs ...throttle.Need) throttle.Decision {
	t.Helper()
	return s.acquireJob(t, throttle.Job{ID: id, Queue: "default"}, needs...)
}

func (s *stage) acquireJob(t redistest.TB, job throttle.Job, needs ...throttle.Need) throttle.Decision {
	t.Helper()
	d, err := s.jobs.Acquire(background, job, needs...)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return d
}

// pump calls back all that can be called now, and says when it is due again.
func (s *stage) pump(t redistest.TB) (called []string, next time.Duration) {
	t.Helper()
	jobs, next := s.pumpAhead(t, 0)
	for _, job := range jobs {
		called = append(called, job.ID)
		if job.In > 0 {
			t.Fatalf("%s was called %s ahead", job.ID, job.In)
		}
	}
	return called, next
}

func (s *stage) pumpAhead(t redistest.TB, ahead time.Duration) (called []throttle.Called, next time.Duration) {
	t.Helper()
	for range 1000 {
		jobs, next, active, err := s.jobs.Pump(background, "pump", grant, ahead)
		if err != nil || !active {
			t.Fatalf("pump: active %t, %v", active, err)
		}
		called = append(called, jobs...)
		if next != 0 {
			return called, next
		}
	}
	t.Fatalf("the pump is due again and again")
	return nil, 0
}

func (s *stage) pumped(t redistest.TB) []string {
	t.Helper()
	called, _ := s.pump(t)
	return called
}

// wantTaken has called jobs ask again, each of which must be allowed.
func (s *stage) wantTaken(t *testing.T, jobs []string, needs ...throttle.Need) {
	t.Helper()
	for _, job := range jobs {
		if d := s.acquire(t, job, needs...); !d.OK() {
			t.Errorf("called job %s: %s", job, d)
		}
	}
}

// traces is all keys that only waiting jobs have. When none waits there must be
// none.
func (s *stage) traces(t redistest.TB) (keys []string) {
	t.Helper()
	all, err := s.rdb.Keys(background, "hg:*").Result()
	if err != nil {
		t.Fatalf("%v", err)
	}
	for _, key := range all {
		name := strings.TrimPrefix(key, "hg:{default}:")
		kind, _, _ := strings.Cut(name, ":")
		switch kind {
		case "limits", "limit", "m", "admitted", "seq", "pump", "changes", "deleted":
		default:
			keys = append(keys, name)
		}
	}
	slices.Sort(keys)
	return keys
}

func TestJobsWaitInLine(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		define(t, s, perMinute("l", 2))
		need := one("l")
		for i, want := range []struct {
			outcome throttle.Outcome
			retry   time.Duration
		}{{allowed, 0}, {allowed, 0}, {denied, time.Minute}, {denied, time.Minute}, {denied, 2 * time.Minute}} {
			d := s.acquire(t, fmt.Sprint(i), need)
			expect(t, "at first", [2]any{d.Outcome, d.RetryAfter}, [2]any{want.outcome, want.retry})
		}
		called, next := s.pump(t)
		expect(t, "called with no permit", called, nil)
		expect(t, "the pump is due", next, time.Minute)

		s.wait(time.Minute - time.Microsecond)
		expect(t, "called a microsecond early", s.pumped(t), nil)
		s.wait(time.Microsecond)
		expect(t, "a newcomer", s.acquire(t, "new", need).Outcome, denied)
		d := s.acquire(t, "4", need)
		expect(t, "one whose turn it is not", [2]any{d.Outcome, d.RetryAfter}, [2]any{denied, time.Minute})
		called, next = s.pump(t)
		expect(t, "called", called, []string{"2", "3"})
		expect(t, "kept for them", ask(t, s, "l", 1).Outcome, denied)
		expect(t, "left for others", ask(t, s, "l", 0).Remaining, 0)
		if next > grant {
			t.Errorf("the pump is due in %s, after a grant has ended", next)
		}
		s.wantTaken(t, []string{"3", "2"}, need)
		expect(t, "called of those without a permit", s.pumped(t), nil)

		s.wait(time.Minute)
		called = s.pumped(t)
		expect(t, "called then", called, []string{"4", "new"})
		s.wantTaken(t, called, need)
		s.pump(t)
		expect(t, "traces", s.traces(t), nil)
	})
}

// TestHeadOfTheLaneComesByItself: a job that asynq brings back when its permit
// exists need not be called.
func TestHeadOfTheLaneComesByItself(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		define(t, s, perMinute("l", 1))
		for _, job := range []string{"a", "b", "c"} {
			s.acquire(t, job, one("l"))
		}
		s.wait(time.Minute)
		expect(t, "the second in line", s.acquire(t, "c", one("l")).Outcome, denied)
		expect(t, "the head of the line", s.acquire(t, "b", one("l")).Outcome, allowed)
		expect(t, "called", s.pumped(t), nil)
		s.wait(time.Minute)
		s.wantTaken(t, s.pumped(t), one("l"))
		s.pump(t)
		expect(t, "traces", s.traces(t), nil)
	})
}

// TestRepeatedCall: a call that the client repeats takes once.
func TestRepeatedCall(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		define(t, s, perMinute("l", 3), throttle.Limit{Name: "c", Kind: throttle.Concurrency, Capacity: 3})
		run := func(job, attempt string) []any {
			t.Helper()
			reply, err := lua.Acquire.Run(background, s.rdb, []string{"hg:{default}:"},
				job, "default", "", "caller", attempt, 0, -1, "c", "k", 1, "l", "k", 2).Slice()
			must(t, err)
			return reply
		}
		first := run("a", "1")
		for range 3 {
			again := run("a", "1")
			expect(t, "outcome and lease of the same call again", []any{again[0], again[7]}, []any{first[0], first[7]})
		}
		expect(t, "left", ask(t, s, "l", 0).Remaining, 1)
		expect(t, "not running", ask(t, s, "c", 0).Remaining, 2)
		for range 3 {
			expect(t, "another job waits", run("b", "2")[0], any(int64(denied)))
		}
		backlogs, err := s.jobs.Backlogs(background, "l")
		must(t, err)
		expect(t, "permits wanted", backlogs, []throttle.Backlog{{Key: "k", Permits: 2, LastIn: time.Minute}})
		must(t, s.jobs.Forget(background, "b", "b", "nobody"))
		s.pump(t)
		expect(t, "traces", s.traces(t), nil)
	})
}

// TestCalledJobDoesNotCome: its permits go to the next, it is called once more,
// keeps its place meanwhile, and is forgotten in the end.
func TestCalledJobDoesNotCome(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		define(t, s, perMinute("l", 1))
		for _, job := range []string{"a", "lost", "next"} {
			s.acquire(t, job, one("l"))
		}
		s.wait(time.Minute)
		expect(t, "called", s.pumped(t), []string{"lost"})
		s.wait(grant)
		expect(t, "called when the grant has ended", s.pumped(t), []string{"lost", "next"})
		s.wantTaken(t, []string{"next"}, one("l"))
		s.wait(grant)
		expect(t, "called a third time", s.pumped(t), nil)
		place, waits, err := s.jobs.Waiting(background, "lost")
		must(t, err)
		expect(t, "still known", [2]bool{waits, place.Called}, [2]bool{true, true})
		s.wait(10 * time.Minute)
		s.pump(t)
		expect(t, "traces", s.traces(t), nil)
	})
}

// TestPumpIsDueForLostCalls: who waits behind a called job that does not come
// waits no longer than the grant, and what never comes is forgotten, where the
// pump is only called when it says so.
func TestPumpIsDueForLostCalls(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		define(t, s, throttle.Limit{Name: "c", Kind: throttle.Concurrency, Capacity: 1})
		for _, job := range []string{"a", "lost", "next"} {
			s.acquire(t, job, one("c"))
		}
		must(t, s.jobs.Free(background, "a", one("c")))
		expect(t, "called", s.pumped(t), []string{"lost"})
		_, next := s.pump(t)
		expect(t, "due", next, grant)
		s.wait(next)
		expect(t, "called then", s.pumped(t), []string{"lost", "next"})
		s.wantTaken(t, []string{"next"}, one("c"))
		must(t, s.jobs.Free(background, "next", one("c")))
		for range 10 {
			if _, next = s.pump(t); next < 0 {
				break
			}
			s.wait(next)
		}
		expect(t, "traces when nothing is due", s.traces(t), nil)
	})
}

// TestLateArrival: a called job that comes after its grant has ended goes before
// those behind it.
func TestLateArrival(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		define(t, s, perMinute("l", 1))
		for _, job := range []string{"a", "late", "next"} {
			s.acquire(t, job, one("l"))
		}
		s.wait(time.Minute)
		s.pump(t)
		must(t, s.jobs.Pause(background, "l"))
		s.wait(2 * grant)
		s.pump(t)
		expect(t, "late, but the limit is paused", s.acquire(t, "late", one("l")).Outcome, denied)
		must(t, s.jobs.Resume(background, "l"))
		expect(t, "called", s.pumped(t), []string{"late"})
		s.wantTaken(t, []string{"late"}, one("l"))
	})
}

func TestJobThatCanNeverRun(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		define(t, s, perMinute("l", 3))
		big := throttle.Need{Limit: "l", Key: "k", Cost: 3}
		d := s.acquire(t, "huge", throttle.Need{Limit: "l", Key: "k", Cost: 4})
		expect(t, "cost above the capacity", [3]any{d.Outcome, d.Cost, d.Capacity}, [3]any{never, 4, 3})
		expect(t, "traces", s.traces(t), nil)

		s.acquire(t, "a", big)
		s.acquire(t, "b", big)
		s.acquire(t, "c", one("l"))
		define(t, s, perMinute("l", 2))
		expect(t, "called to learn it", s.pumped(t), []string{"b"})
		expect(t, "asked again", s.acquire(t, "b", big).Outcome, never)
		s.wait(time.Minute)
		s.wantTaken(t, s.pumped(t), one("l"))
		s.pump(t)
		expect(t, "traces", s.traces(t), nil)
	})
}

func TestLimitIsDeletedWhileJobsWait(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		define(t, s, perMinute("l", 1), perMinute("other", 1))
		both := []throttle.Need{one("l"), one("other")}
		for _, job := range []string{"a", "b", "c"} {
			s.acquire(t, job, both...)
		}
		must(t, s.jobs.Delete(background, "l"))
		called := s.pumped(t)
		expect(t, "called", called, []string{"b", "c"})
		for _, job := range called {
			d := s.acquire(t, job, both...)
			expect(t, job, [2]any{d.Outcome, d.Limit}, [2]any{noLimit, "l"})
		}
		s.pump(t)
		expect(t, "traces", s.traces(t), nil)
	})
}

// TestChangesWake: whatever makes permits, the pump hears of it at once, also
// where it sleeps till later.
func TestChangesWake(t *testing.T) {
	funnel := throttle.Limit{Name: "l", Kind: throttle.Funnel, Rate: throttle.PerSecond(1), Capacity: 2}
	onRedis(t, func(t *testing.T, s *stage) {
		limit, meter := [2]string{"limit", "l"}, [2]string{"meter", "l|k"}
		for name, tt := range map[string]struct {
			before, change func() error
			word           [2]string
		}{
			"raise":        {nil, func() error { return s.Set(background, perMinute("l", 2)) }, limit},
			"another kind": {nil, func() error { return s.Set(background, funnel) }, limit},
			"reset":        {nil, func() error { return s.Reset(background, "l", "k") }, meter},
			"resume": {
				func() error { s.wait(time.Hour); return s.Pause(background, "l") },
				func() error { return s.Resume(background, "l") }, limit,
			},
			"unblock": {
				func() error { s.wait(time.Minute); return s.Block(background, "l", "k", s.now.Add(time.Hour)) },
				func() error { return s.Block(background, "l", "k", s.now) }, meter,
			},
		} {
			t.Run(name, func(t *testing.T) {
				s.restart(t)
				define(t, s, perMinute("l", 1))
				s.acquire(t, "a", one("l"))
				s.acquire(t, "b", one("l"))
				if tt.before != nil {
					must(t, tt.before())
				}
				called, next := s.pump(t)
				expect(t, "called before the change", called, nil)
				if next <= 0 {
					t.Errorf("the pump is due in %s", next)
				}
				wakes := s.jobs.Wakes(background)
				defer wakes.Close()
				_, err := wakes.Receive(background)
				must(t, err)
				must(t, tt.change())
				message, err := wakes.ReceiveMessage(background)
				must(t, err)
				kind, rest, _ := strings.Cut(message.Payload, " ")
				number, changed, _ := strings.Cut(rest, " ")
				expect(t, "word", [2]string{kind, changed}, tt.word)
				expect(t, "number", number, s.rdb.Get(background, "hg:{default}:changes").Val())
				expect(t, "called after it", s.pumped(t), []string{"b"})
				s.wantTaken(t, []string{"b"}, one("l"))
			})
		}
	})
}

// TestLoweredBelowTheGrant: a called job that finds its permit gone keeps its
// place at the head.
func TestLoweredBelowTheGrant(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		define(t, s, perMinute("l", 2))
		for _, job := range []string{"a", "b", "c", "d"} {
			s.acquire(t, job, one("l"))
			s.wait(20 * time.Second)
		}
		expect(t, "called", s.pumped(t), []string{"c", "d"}) // 80 s after a, 60 s after b
		s.wantTaken(t, []string{"c"}, one("l"))
		define(t, s, perMinute("l", 1))
		expect(t, "d", s.acquire(t, "d", one("l")).RetryAfter, time.Minute)
		s.acquire(t, "e", one("l"))
		s.wait(time.Minute)
		expect(t, "called", s.pumped(t), []string{"d"})
		s.wantTaken(t, []string{"d"}, one("l"))
	})
}

// TestLanesTakeTurns: two hosts share a limit; who came with many jobs does not
// keep the other waiting.
func TestLanesTakeTurns(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		define(t, s, perMinute("all", 2), perMinute("host", 100))
		needs := func(host string) []throttle.Need {
			return []throttle.Need{one("all"), {Limit: "host", Key: host, Cost: 1}}
		}
		for i := range 8 {
			s.acquire(t, fmt.Sprint("a", i), needs("a")...)
		}
		for i := range 3 {
			s.acquire(t, fmt.Sprint("b", i), needs("b")...)
		}
		for _, want := range [][]string{{"a2", "b0"}, {"a3", "b1"}, {"a4", "b2"}, {"a5", "a6"}, {"a7"}} {
			s.wait(time.Minute)
			called := s.pumped(t)
			expect(t, "called", called, want)
			for _, job := range called {
				s.wantTaken(t, []string{job}, needs(job[:1])...)
			}
		}
		s.pump(t)
		expect(t, "traces", s.traces(t), nil)
	})
}

// TestHotHostHoldsNothing: jobs that wait for their host hold no permit of the
// limit they share with others.
func TestHotHostHoldsNothing(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		define(t, s, perMinute("all", 10), perMinute("host", 1))
		needs := func(host string) []throttle.Need {
			return []throttle.Need{one("all"), {Limit: "host", Key: host, Cost: 1}}
		}
		for i := range 20 {
			s.acquire(t, fmt.Sprint("hot", i), needs("hot")...)
		}
		for i := range 9 {
			host := fmt.Sprint("cold", i)
			if d := s.acquire(t, host, needs(host)...); !d.OK() {
				t.Errorf("%s: %s", host, d)
			}
		}
		d := s.acquire(t, "cold9", needs("cold9")...)
		expect(t, "the shared limit is used up", [2]any{d.Outcome, d.Limit}, [2]any{denied, "all"})
		s.wait(time.Minute)
		called := s.pumped(t)
		slices.Sort(called)
		expect(t, "called", called, []string{"cold9", "hot1"})
	})
}

func TestPriority(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		define(t, s, perMinute("l", 1))
		need := one("l")
		come := func(id string, p throttle.Priority) {
			t.Helper()
			d := s.acquireJob(t, throttle.Job{ID: id, Queue: "default", Priority: p}, need)
			expect(t, id, d.Outcome, denied)
		}
		s.acquire(t, "first", need)
		come("low", throttle.Low)
		come("normal", throttle.Normal)
		come("high", throttle.High)
		come("normal 2", throttle.Normal)
		// As if as many others had come meanwhile.
		must(t, s.rdb.IncrBy(background, "hg:{default}:seq", 2*throttle.HeadStart).Err())
		come("high, late", throttle.High)
		for _, want := range []string{"high", "normal", "normal 2", "low", "high, late"} {
			s.wait(time.Minute)
			expect(t, "called", s.pumped(t), []string{want})
			s.wantTaken(t, []string{want}, need)
		}
	})
}

// TestNewHeadWithSmallerCost: a job that goes before all others of its lane, and
// for which there is a permit, does not wait for those that they need.
func TestNewHeadWithSmallerCost(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		define(t, s, perMinute("l", 3))
		s.acquire(t, "a", throttle.Need{Limit: "l", Key: "k", Cost: 2})
		s.acquire(t, "big", throttle.Need{Limit: "l", Key: "k", Cost: 3})
		s.pump(t)
		s.acquireJob(t, throttle.Job{ID: "small", Queue: "default", Priority: throttle.High}, one("l"))
		expect(t, "called", s.pumped(t), []string{"small"})
	})
}

// TestHeadIsForgotten: what the head of a lane waited for is not what the next
// one needs.
func TestHeadIsForgotten(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		define(t, s, perMinute("l", 3))
		s.acquire(t, "a", throttle.Need{Limit: "l", Key: "k", Cost: 2})
		s.acquire(t, "big", throttle.Need{Limit: "l", Key: "k", Cost: 3})
		s.acquire(t, "small", one("l"))
		expect(t, "called behind the big one", s.pumped(t), nil)
		must(t, s.jobs.Forget(background, "big"))
		expect(t, "called", s.pumped(t), []string{"small"})
	})
}

// TestCalledJobIsDenied: what was kept for it goes to others at once.
func TestCalledJobIsDenied(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		define(t, s, perMinute("l", 9), perMinute("m", 1))
		both := []throttle.Need{one("l"), one("m")}
		s.acquire(t, "a", both...)
		s.acquire(t, "b", both...)
		s.acquire(t, "c", one("m"))
		s.wait(time.Minute)
		expect(t, "called", s.pumped(t), []string{"b"})
		must(t, s.jobs.Block(background, "l", "k", s.now.Add(time.Hour)))
		d := s.acquire(t, "b", both...)
		expect(t, "b", [3]any{d.Outcome, d.Limit, d.RetryAfter}, [3]any{denied, "l", time.Hour})
		expect(t, "called in its place", s.pumped(t), []string{"c"})
	})
}

func TestMaxWait(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		define(t, s, perMinute("l", 1))
		s.acquire(t, "a", one("l"))
		before := waitingSnapshot(t, s)
		job := throttle.Job{ID: "b", Queue: "default", MaxWait: time.Minute - time.Microsecond}
		d := s.acquireJob(t, job, one("l"))
		expect(t, "longer than it may wait", [2]any{d.Outcome, d.RetryAfter}, [2]any{throttle.TooLate, time.Minute})
		expect(t, "what it leaves", waitingSnapshot(t, s), before)

		job.MaxWait = time.Minute
		expect(t, "as long as it may wait", s.acquireJob(t, job, one("l")).Outcome, denied)
		job.ID = "c"
		expect(t, "behind it", s.acquireJob(t, job, one("l")).Outcome, throttle.TooLate)
		must(t, s.Block(background, "l", "k", s.now.Add(time.Hour)))
		job.ID = "b"
		expect(t, "it asks again when the wait has become longer", s.acquireJob(t, job, one("l")).Outcome, throttle.TooLate)
		s.pump(t)
		expect(t, "traces", s.traces(t), []string{"blocked:l"})
	})
}

// waitingSnapshot is all keys but the ticket counter.
func waitingSnapshot(t *testing.T, s *stage) map[string]any {
	t.Helper()
	all := snapshot(t, s)
	delete(all, "hg:{default}:seq")
	return all
}

func TestConcurrencyIsPassedOn(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		define(t, s, throttle.Limit{Name: "c", Kind: throttle.Concurrency, Capacity: 2, Lease: 10 * time.Second})
		need := one("c")
		d := s.acquire(t, "a", need)
		expect(t, "holder and lease", [2]any{d.Holder, d.Lease}, [2]any{"a", 10 * time.Second})
		s.acquire(t, "b", need)
		expect(t, "c", s.acquire(t, "c", need).RetryAfter, 10*time.Second)
		s.acquire(t, "d", need)
		s.acquire(t, "e", need)
		expect(t, "called while both run", s.pumped(t), nil)

		must(t, s.jobs.Free(background, "a", need))
		expect(t, "called when one is done", s.pumped(t), []string{"c"})
		s.wantTaken(t, []string{"c"}, need)
		s.wait(9 * time.Second)
		held, err := s.jobs.Extend(background, "b", need)
		must(t, err)
		expect(t, "extended", held, true)
		s.wait(time.Second)
		expect(t, "called when a worker has died", s.pumped(t), []string{"d"})
		s.wantTaken(t, []string{"d"}, need)
		held, err = s.jobs.Extend(background, "c", need)
		must(t, err)
		expect(t, "the dead one's lease", held, false)
		s.wait(9*time.Second - time.Microsecond)
		expect(t, "called before the extended lease ends", s.pumped(t), nil)
		s.wait(time.Microsecond)
		expect(t, "called at its end", s.pumped(t), []string{"e"})
	})
}

// TestNextDay: who waits for a calendar's next day, when the day has 25 hours.
func TestNextDay(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		s.wait(instant(t, "2026-11-01T00:30:00-04:00").Sub(s.now))
		define(t, s, throttle.Limit{Name: "l", Kind: throttle.FixedWindow, Rate: throttle.PerDay(1), Zone: "America/New_York"})
		need := one("l")
		s.acquire(t, "a", need)
		const day = 24*time.Hour + 30*time.Minute
		expect(t, "b", s.acquire(t, "b", need).RetryAfter, day)
		expect(t, "c", s.acquire(t, "c", need).RetryAfter, day+24*time.Hour)
		called, next := s.pump(t)
		expect(t, "called at once", called, nil)
		expect(t, "the pump is due", next, day)
		s.wait(day - time.Microsecond)
		expect(t, "called before midnight", s.pumped(t), nil)
		s.wait(time.Microsecond)
		expect(t, "called at midnight", s.pumped(t), []string{"b"})
		s.wantTaken(t, []string{"b"}, need)
		s.wait(200 * 24 * time.Hour) // beyond the calendar that Redis was told
		expect(t, "called long after", s.pumped(t), []string{"c"})
		s.wantTaken(t, []string{"c"}, need)
	})
}

func TestRuleOfAWaitingJobChanges(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		define(t, s, perMinute("l", 1), perMinute("m", 1))
		for _, job := range []string{"a", "b", "c"} {
			s.acquire(t, job, one("l"))
		}
		s.acquire(t, "x", one("m"))
		s.acquire(t, "y", one("m"))
		expect(t, "b moves to another lane", s.acquire(t, "b", one("m")).Outcome, denied)
		s.wait(time.Minute)
		called := s.pumped(t)
		slices.Sort(called)
		expect(t, "called: b's ticket is older than y's", called, []string{"b", "c"})
		s.wantTaken(t, []string{"b"}, one("m"))
		s.wantTaken(t, []string{"c"}, one("l"))
		s.wait(time.Minute)
		s.wantTaken(t, s.pumped(t), one("m"))
		s.pump(t)
		expect(t, "traces", s.traces(t), nil)
	})
}

// TestJobsAreCalledAhead: the pump tells of the permits of the next moments, each
// with its time, and newcomers do not get them.
func TestJobsAreCalledAhead(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		define(t, s, throttle.Limit{Name: "l", Kind: throttle.Funnel, Rate: throttle.PerSecond(10), Capacity: 4})
		for i := range 8 {
			s.acquire(t, fmt.Sprint(i), one("l"))
		}
		s.wait(100 * time.Millisecond)
		called, next := s.pumpAhead(t, 250*time.Millisecond)
		expect(t, "called", called, []throttle.Called{
			{Queue: "default", ID: "4"}, {Queue: "default", ID: "5", In: 100 * time.Millisecond}, {Queue: "default", ID: "6", In: 200 * time.Millisecond},
		})
		expect(t, "the pump is due when a grant ends", next, grant)
		for _, job := range called {
			expect(t, "a newcomer", s.acquire(t, "new", one("l")).Outcome, denied)
			s.wantTaken(t, []string{job.ID}, one("l"))
			s.wait(100 * time.Millisecond)
		}
		called, _ = s.pumpAhead(t, 250*time.Millisecond)
		expect(t, "called", called, []throttle.Called{
			{Queue: "default", ID: "7"}, {Queue: "default", ID: "new", In: 100 * time.Millisecond},
		})
		expect(t, "one that comes before its time", s.acquire(t, "new", one("l")).Outcome, allowed) // it takes 7's permit
		expect(t, "the one whose permit it took", s.acquire(t, "7", one("l")).RetryAfter, 100*time.Millisecond)
	})
}

// TestJobsAreNotCalledAhead where that would keep a permit back or could cost a
// second denial.
func TestJobsAreNotCalledAhead(t *testing.T) {
	for _, tt := range []struct {
		name   string
		first  time.Duration
		limits []throttle.Limit
	}{
		{"several limits", 100 * time.Millisecond, []throttle.Limit{
			{Name: "l", Kind: throttle.Funnel, Rate: throttle.PerSecond(10), Capacity: 4},
			{Name: "m", Kind: throttle.Funnel, Rate: throttle.PerSecond(100), Capacity: 100},
		}},
		{"spaced permits", 100 * time.Millisecond, []throttle.Limit{{Name: "l", Kind: throttle.Funnel, Rate: throttle.PerSecond(10), Capacity: 1}}},
		{"nobody knows", time.Second, []throttle.Limit{{Name: "l", Kind: throttle.Concurrency, Capacity: 1, Lease: time.Second}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			onRedis(t, func(t *testing.T, s *stage) {
				define(t, s, tt.limits...)
				var needs []throttle.Need
				for _, l := range tt.limits {
					needs = append(needs, one(l.Name))
				}
				for i := range 8 {
					s.acquire(t, fmt.Sprint(i), needs...)
				}
				s.wait(tt.first)
				called, _ := s.pumpAhead(t, 2*time.Second)
				expect(t, "called", called, []throttle.Called{{Queue: "default", ID: fmt.Sprint(tt.limits[0].Capacity)}})
			})
		})
	}
}

// TestOneProcessPumps: others are told when to ask again, and take over when it
// stops or its lease ends.
func TestOneProcessPumps(t *testing.T) {
	s := miniStage(t)
	define(t, s, perMinute("l", 1))
	s.acquire(t, "a", one("l"))
	s.acquire(t, "b", one("l"))
	pump := func(process string) (bool, time.Duration) {
		t.Helper()
		_, next, active, err := s.jobs.Pump(background, process, grant, 0)
		must(t, err)
		return active, next
	}
	for _, tt := range []struct {
		process string
		active  bool
		next    time.Duration
	}{{"one", true, time.Minute}, {"two", false, time.Minute}, {"one", true, time.Minute}} {
		active, next := pump(tt.process)
		expect(t, tt.process, [2]any{active, next}, [2]any{tt.active, tt.next})
	}
	must(t, s.jobs.StopPump(background, "two"))
	active, _ := pump("two")
	expect(t, "after somebody else's stop", active, false)
	must(t, s.jobs.StopPump(background, "one"))
	active, _ = pump("two")
	expect(t, "after one has stopped", active, true)
	s.wait(throttle.PumpLease)
	active, _ = pump("three")
	expect(t, "after two's lease", active, true)
	must(t, s.jobs.StopPump(background, "three"))
	must(t, s.jobs.StopPump(background, "three"))
}

func TestAcquireRefuses(t *testing.T) {
	s := miniStage(t)
	define(t, s, perMinute("l", 1))
	for name, err := range map[string]error{
		"no needs":         second(s.jobs.Acquire(background, throttle.Job{ID: "a"})),
		"a line break":     second(s.jobs.Acquire(background, throttle.Job{ID: "a\nb"}, one("l"))),
		"a line of queues": second(s.jobs.Acquire(background, throttle.Job{ID: "a", Queue: "a\nb"}, one("l"))),
		"a bad key":        second(s.jobs.Acquire(background, throttle.Job{ID: "a"}, throttle.Need{Limit: "l", Key: "a\nb"})),
		"a negative cost":  second(s.jobs.Acquire(background, throttle.Job{ID: "a"}, throttle.Need{Limit: "l", Cost: -1})),
	} {
		if err == nil {
			t.Errorf("%s: want an error", name)
		}
	}
	expect(t, "left", ask(t, s, "l", 0).Remaining, 1)
}

func second(_ throttle.Decision, err error) error { return err }
