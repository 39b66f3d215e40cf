package waitdb_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// TestPriority: a head start is counted in the lane's own jobs, so who has it is
// first of few, and goes not before those that arrived a thousand jobs earlier.
func TestPriority(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		define(t, s, perMinute("l", 1))
		need := one("l")
		arrive := func(id string, p waitdb.Priority) {
			t.Helper()
			d := s.acquireJob(t, waitdb.Job{JobID: job(id).JobID, Priority: p}, need)
			expect(t, id, d.Outcome, denied)
		}
		s.acquire(t, "first", need)
		arrive("low", waitdb.Low)
		arrive("normal", waitdb.Normal)
		arrive("high", waitdb.High)
		arrive("normal 2", waitdb.Normal)
		// As if as many others had arrived meanwhile.
		must(t, s.rdb.HIncrBy(background, hg("tickets"), "default\nl|k", 2*waitdb.HeadStart*65536).Err())
		arrive("high, late", waitdb.High)
		for _, want := range []string{"high", "normal", "normal 2", "low", "high, late"} {
			s.wait(time.Minute)
			expect(t, "granted", s.pumped(t), []string{want})
			s.wantTaken(t, []string{want}, need)
		}
	})
}

// TestForget_Head: what the head of a lane waited for is not what the next
// one needs.
func TestForget_Head(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		define(t, s, perMinute("l", 3))
		s.acquire(t, "a", throttle.Need{Limit: "l", Key: "k", Cost: 2})
		s.acquire(t, "big", throttle.Need{Limit: "l", Key: "k", Cost: 3})
		s.acquire(t, "small", one("l"))
		expect(t, "granted behind the big one", s.pumped(t), nil)
		s.forget(t, "big")
		s.wait(time.Second)
		expect(t, "granted", s.pumped(t), []string{"small"})
	})
}

// A record that no script has written is deleted as a whole.
func TestForget_MalformedRecord(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		define(t, s, perMinute("l", 1))
		s.acquire(t, "a", one("l"))
		s.acquire(t, "it", one("l"))
		records := "hg:{default}:jobs"
		must(t, s.rdb.HSet(background, records, "default\nit", "not a record").Err())
		known, err := s.lanes.Forget(background, throttle.JobID{Queue: "default", ID: "it"})
		must(t, err)
		expect(t, "known", known, 0)
		expect(t, "is stored", s.rdb.HExists(background, records, "default\nit").Val(), false)
	})
}

// TestAcquire_BehindExpensiveHead: there is enough for the newcomer, but not for the one
// before it, so it is not asked to run at once.
func TestAcquire_BehindExpensiveHead(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		define(t, s, throttle.Limit{Name: "l", Kind: throttle.Funnel, Rate: throttle.PerSecond(1), Capacity: 5})
		all := throttle.Need{Limit: "l", Key: "k", Cost: 5}
		s.acquire(t, "a", all)
		s.acquire(t, "b", all)
		s.wait(3 * time.Second)
		d := s.acquire(t, "c", one("l"))
		expect(t, "c", [2]any{d.Outcome, d.RetryAfter}, [2]any{denied, 3 * time.Second})
	})
}

// twice returns all that is on it twice.
func twice(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	err := next(ctx, cmd)
	if scan, ok := cmd.(*redis.ScanCmd); ok {
		page, cursor := scan.Val()
		scan.SetVal(slices.Concat(page, page), cursor)
	}
	return err
}

// TestScan_Duplicates: what a scan of Redis returns twice, as it may, counts once.
func TestScan_Duplicates(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		define(t, s, perMinute("l", 1))
		for i := range 3 {
			s.acquire(t, fmt.Sprint(i), one("l"))
		}
		s.rdb.AddHook(redistest.Hook(twice))
		n, err := s.lanes.CountWaiting(background, "l", 0)
		must(t, err)
		expect(t, "who wait", n, 2)
	})
}

func TestCountWaiting(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := t.Context()
		limiter := waitdb.New(throttle.New(rdb, throttle.Options{}))
		must(t, limiter.Define(ctx, throttle.Limit{Name: "log", Kind: throttle.SlidingLog, Rate: throttle.PerHour(1)}, throttle.Limit{Name: "slog", Kind: throttle.Funnel, Rate: throttle.PerHour(1), Capacity: 5}))
		for i := range 7 { // one runs; of the others some need both
			needs := []throttle.Need{{Limit: "log", Key: "k"}}
			if i%2 == 1 {
				needs = append(needs, throttle.Need{Limit: "slog", Key: "a", Cost: i}, throttle.Need{Limit: "slog", Key: "b"})
			}
			_, err := limiter.Acquire(ctx, waitdb.Job{JobID: throttle.JobID{Queue: "slog|q", ID: fmt.Sprint(i)}}, needs...)
			must(t, err)
		}
		for limit, want := range map[string][]int{"log": {6, 6, 0}, "slog": {3, 3, 2, 2, 1, 1, 0}, "q": {0}, "lo": {0}} {
			for least, want := range want {
				n, err := limiter.CountWaiting(ctx, limit, least)
				must(t, err)
				expect(t, fmt.Sprintf("jobs that wait for %d of %s", least, limit), n, want)
			}
		}
		for least, want := range []int{3, 3, 0} {
			n, err := limiter.CountWaiting(ctx, "slog", least, "b")
			must(t, err)
			expect(t, fmt.Sprintf("jobs that wait for %d of slog of b", least), n, want)
		}
	})
}

// TestLeader_OneProcess: others know when to ask again, and take over
// when it resigns or its lease ends.
func TestLeader_OneProcess(t *testing.T) {
	s := miniFixture(t)
	define(t, s, perMinute("l", 1))
	s.acquire(t, "a", one("l"))
	s.acquire(t, "b", one("l"))
	dispatchers := map[string]*dispatcher{}
	for _, process := range []string{"one", "two", "three"} {
		dispatchers[process] = newDispatcher(s, process)
	}
	pump := func(process string) (bool, time.Duration) {
		t.Helper()
		_, next, held, err := dispatchers[process].pump()
		must(t, err)
		return held, next
	}
	for _, tt := range []struct {
		process string
		held    bool
		next    time.Duration
	}{{"one", true, time.Second}, {"two", false, leaseTime}, {"one", true, time.Second}} {
		held, next := pump(tt.process)
		expect(t, tt.process, [2]any{held, next}, [2]any{tt.held, tt.next})
	}
	stepDown := func(process string) { must(t, s.lanes.StepDown(background, process, "")) }
	stepDown("two")
	held, _ := pump("two")
	expect(t, "after another process has stepped down", held, false)
	stepDown("one")
	held, _ = pump("two")
	expect(t, "after one has resigned", held, true)
	s.wait(leaseTime - time.Millisecond)
	held, _ = pump("three")
	expect(t, "before the end of two's lease", held, false)
	s.wait(time.Millisecond)
	held, _ = pump("three")
	expect(t, "after two's lease", held, true)
	stepDown("three")
	stepDown("three")
}

// TestLeader_LeaseLost: one whose lease has ended gives no turns any more, whatever
// it still thinks.
func TestLeader_LeaseLost(t *testing.T) {
	s := miniFixture(t)
	define(t, s, perMinute("l", 1))
	s.acquire(t, "a", one("l"))
	s.acquire(t, "b", one("l"))
	one, two := newDispatcher(s, "one"), newDispatcher(s, "two")
	_, _, _, err := one.pump()
	must(t, err)
	s.wait(time.Minute)
	_, _, held, err := two.pump()
	must(t, err)
	expect(t, "two takes over", held, true)
	_, _, held, err = s.lanes.Grant(background, "one", []fairqueue.Turn{{Lane: "default\nl|k", Held: []int64{0}}})
	must(t, err)
	expect(t, "one may give turns", held, false)
	_, err = s.lanes.PublishShares(background, "one", 10, map[string]int{"l|k": 0, "m|k": 7})
	must(t, err)
	expect(t, "one may settle", s.rdb.HExists(background, hg("meters"), "m|k\n").Val(), false)
}

// TestLeader_WithoutEnd: a lease or a binding that never ends was not written by a process, so it
// keeps no process out.
func TestLeader_WithoutEnd(t *testing.T) {
	s := miniFixture(t)
	for _, key := range []string{"leader", "asynq", "epoch"} {
		must(t, s.rdb.Set(background, hg(key), "junk", 0).Err())
	}
	other, version, err := s.lanes.Claim(background, "data", "", time.Minute)
	must(t, err)
	expect(t, "the binding", [2]any{other, version}, [2]any{"", int64(0)})
	_, _, held, err := newDispatcher(s, "one").pump()
	must(t, err)
	expect(t, "one leads", held, true)
}

// TestLeader_TakesOverManyLanes: they are read a page at a time.
func TestLeader_TakesOverManyLanes(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	s := miniFixture(t)
	define(t, s, throttle.Limit{Name: "l", Kind: throttle.Funnel, Rate: throttle.PerMinute(1)})
	const lanes = 2*waitdb.LanesPage + 1
	for i := range lanes {
		for range 2 {
			s.acquire(t, fmt.Sprint(i), throttle.Need{Limit: "l", Key: fmt.Sprint(i)})
		}
		s.acquire(t, fmt.Sprint("w", i), throttle.Need{Limit: "l", Key: fmt.Sprint(i)})
	}
	s.wait(time.Minute)
	expect(t, "granted", len(s.pumped(t)), lanes)
}

// TestRepairDemand: the demand is counted from the waiting jobs, and corrected. Scheduler's
// TestLostKeys lets the dispatcher do so, but on miniredis alone.
func TestRepairDemand(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		define(t, s, perMinute("other", 1))
		db := s.lanes
		for i := range 4 {
			s.acquire(t, fmt.Sprint(i), one("other"))
		}
		must(t, s.rdb.HSet(t.Context(), hg("demand"), "other|k", 1, "gone|k", 5).Err())
		wanted := map[string]int64{}
		_, _, repaired, err := db.RepairRecords(t.Context(), 0, 100, wanted)
		must(t, err)
		expect(t, "repaired", repaired, 0)
		expect(t, "wanted", wanted, map[string]int64{"other|k": 3})
		must(t, db.SetDemand(t.Context(), map[string]int64{"other|k": 3, "gone|k": 0}))
		demand, err := db.DemandByMeter(t.Context())
		must(t, err)
		expect(t, "demand", demand, map[string]int64{"other|k": 3})
	})
}

// TestRepairDeadlines_AsksBefore: Redis lost the wait deadline of a job with an earlier attempt, and the
// job asks right after the repair has found that. It then has a deadline again, and not none.
func TestRepairDeadlines_AsksBefore(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		define(t, s, perMinute("l", 1))
		s.acquire(t, "first", one("l"))
		retried := job("it")
		retried.QueuedAt, retried.MaxWait = s.now.Add(-time.Hour), 10*time.Minute
		expect(t, "at first", s.acquireJob(t, retried, one("l")).Outcome, denied)
		must(t, s.rdb.Del(t.Context(), hg("deadlines")).Err())
		_, _, repaired, err := s.lanes.RepairRecords(t.Context(), 0, 100, map[string]int64{})
		must(t, err)
		expect(t, "repaired", repaired, 1)
		expect(t, "then", s.acquireJob(t, retried, one("l")).Outcome, denied)
		expect(t, "its deadline", s.rdb.ZScore(t.Context(), hg("deadlines"), "default\nit").Val(), float64(s.now.Add(10*time.Minute).UnixMicro()))
	})
}
