package scheduler

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/proctest"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
	"github.com/headgate/headgate/throttle/throttletest"
)

var failovers = flag.Int("failovers", 1, "how often TestCluster and TestSentinel kill a master")

// shardSlots is how many jobs of a shard run at once.
const shardSlots = 2

// shardLimit is the limit of each shard.
var shardLimit = funnel("api", 10, 2)

// shards are queues with a scope and a server each. All keys of a shard are in one slot.
type shards struct {
	t     *testing.T
	all   []*stack
	log   journal
	kills []interval // of masters
}

// interval is some time by the clock of this machine, which all Redis servers have.
type interval struct{ from, to time.Time }

// runShards starts the servers, and enqueues the first jobs.
func runShards(t *testing.T, rdb redis.UniversalClient, n int) *shards {
	t.Helper()
	s := &shards{t: t}
	for i := range n {
		limiter := newSpy(rdb, throttle.Options{Scope: fmt.Sprintf("crawl.%d", i)})
		st := start(t, rdb, settings{
			config: asynq.Config{Concurrency: shardSlots, Queues: map[string]int{s.name(i): 1}},
			limits: []throttle.Limit{shardLimit}, log: s.log.logger(), options: []Option{withSpy(limiter)},
		})
		st.limiter = limiter
		s.all = append(s.all, st)
	}
	s.enqueue(30)
	return s
}

func (s *shards) name(i int) string { return fmt.Sprintf("crawl.%d", i) }

// enqueue gives each shard more jobs. It returns when Redis has confirmed them.
func (s *shards) enqueue(more int) {
	s.t.Helper()
	for i, st := range s.all {
		st.enqueueN(more, "", asynq.Queue(s.name(i)))
	}
}

// until waits until a condition holds.
func (s *shards) until(condition func() bool) {
	s.t.Helper()
	proctest.Until(s.t, "progress", func() (bool, any) { return condition(), fmt.Sprintf("%d jobs ran; logged\n%s", s.total(), &s.log) })
}

func (s *shards) total() (runs int) {
	for _, st := range s.all {
		runs += len(st.ran())
	}
	return runs
}

// wait waits until more jobs of all shards have run.
func (s *shards) wait(more int) {
	s.t.Helper()
	until := s.total() + more
	s.until(func() bool { return s.total() >= until })
}

// runsAgain waits until a job of each of some shards starts, or only such are left as a failover can
// have delayed.
func (s *shards) runsAgain(some ...*stack) {
	s.t.Helper()
	began := time.Now()
	for _, st := range some {
		s.until(func() bool {
			runs := st.ran()
			return len(runs) >= st.enqueued-shardSlots || len(runs) > 0 && !runs[len(runs)-1].at.Before(began)
		})
	}
}

// kill kills a master, and returns when its replica has taken over.
func (s *shards) kill(kill func()) {
	from := time.Now()
	kill()
	s.kills = append(s.kills, interval{from, time.Now()})
}

// judge waits until all jobs have run, and fails if any window holds more permits than the limit. It
// leaves out permits granted during a kill: the master may not have sent them to its replica. A job whose last write was lost comes
// back when its lease has ended, within 40 s. After a single failover judge does not wait for such
// jobs, and fails if asynq does not have them.
func (s *shards) judge() {
	s.t.Helper()
	late, repeated, lost := 0, 0, 0
	if *failovers == 1 {
		late = shardSlots
	}
	for i, st := range s.all {
		times := map[string]int{}
		s.until(func() bool {
			clear(times)
			for _, id := range st.order() {
				times[id]++
			}
			return len(times) >= st.enqueued-late
		})
		for n := range st.enqueued {
			id := fmt.Sprintf("job-%04d", n)
			repeated += max(0, times[id]-1)
			if info, err := st.tasks.GetTaskInfo(s.name(i), id); times[id] == 0 && !slices.Contains(st.order(), id) && (err != nil || info.State == asynq.TaskStateArchived) {
				s.t.Errorf("job %s of %s has not run, and is %v, %v", id, s.name(i), info, err)
			}
		}
		var permits []throttletest.Admission
		for _, r := range st.ran() {
			granted := r.decision.At
			if slices.ContainsFunc(s.kills, func(kill interval) bool { return !granted.Before(kill.from) && !granted.After(kill.to) }) {
				lost++
				continue
			}
			permits = append(permits, throttletest.Admission{At: granted.Add(r.decision.BeginIn).UnixMicro(), Cost: len(r.decision.Taken)})
		}
		if err := throttletest.Check(shardLimit, permits); err != nil {
			s.t.Errorf("%s: %v", s.name(i), err)
		}
	}
	s.t.Logf("%d jobs ran, %d of them more than once; %d permits were taken while a master was killed", s.total(), repeated, lost)
}

// TestCluster moves a slot and kills masters while jobs run in 8 shards.
func TestCluster(t *testing.T) {
	slow(t)
	cluster := redistest.RunReplicatedCluster(t)
	rdb := cluster.Client()
	t.Cleanup(func() { _ = rdb.Close() })
	testWholeSlot(t, cluster, rdb)
	s := runShards(t, rdb, 8)
	s.wait(2 * 8)
	cluster.MoveSlot("{crawl.3}", 20, func(int) { s.wait(4) })
	s.runsAgain(s.all[3])
	for range *failovers {
		s.enqueue(20)
		dead := cluster.Master("{crawl.0}")
		var successor *redistest.Server
		s.kill(func() { successor = cluster.Kill(dead) })
		s.runsAgain(s.all...)
		if *failovers > 1 {
			cluster.Revive(dead, successor)
		}
	}
	s.judge()
}

// testWholeSlot tests that a limiter whose slot moves denies or fails, and does not count again on the
// node that has a part of the slot's keys.
func testWholeSlot(t *testing.T, cluster *redistest.Cluster, rdb redis.UniversalClient) {
	limiter := throttle.New(rdb, throttle.Options{Scope: "moves"})
	limit := throttle.Limit{Name: "day", Kind: throttle.SlidingLog, Rate: throttle.PerDay(1)}
	if err := limiter.Define(t.Context(), limit); err != nil {
		t.Fatal(err)
	}
	if d, err := limiter.Allow(t.Context(), limit.Name, ""); !d.OK() {
		t.Fatal(d, err)
	}
	allow := func(int) {
		if d, err := limiter.Allow(t.Context(), limit.Name, ""); d.OK() || err != nil && !errors.Is(err, throttle.ErrUnavailable) {
			t.Errorf("a second permit of %s: %v, %v", limit, d, err)
		}
	}
	cluster.MoveSlot("{moves}", 1, allow)
	allow(0)
}

// TestSentinel kills the primary while jobs run.
func TestSentinel(t *testing.T) {
	slow(t)
	sentinel := redistest.RunSentinel(t)
	rdb := sentinel.Client()
	t.Cleanup(func() { _ = rdb.Close() })
	s := runShards(t, rdb, 4)
	s.wait(2 * 4)
	s.kill(func() {
		if err := sentinel.KillPrimary(); err != nil {
			t.Fatal(err)
		}
	})
	s.runsAgain(s.all...)
	s.judge()
}
