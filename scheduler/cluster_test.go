package scheduler

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
	"github.com/headgate/headgate/throttle/throttletest"
)

var failovers = flag.Int("failovers", 1, "how often TestCluster and TestSentinel kill a master")

// shardSlots is how many jobs of a shard run at once.
const shardSlots = 2

// shardLimit is the limit of each shard.
var shardLimit = funnel("api", 10, 2)

// shards are queues with a scope each, in the same slot. All their jobs run in one process.
type shards struct {
	t      *testing.T
	client *asynq.Client
	tasks  *asynq.Inspector
	names  []string
	log    journal

	mu              sync.Mutex
	changed         *sync.Cond // a job has run
	permits, starts map[string][]throttletest.Admission
	enqueued        map[string]int            // IDs of a shard's jobs are 0, 1, …
	ran             map[string]map[string]int // queue → job → how often
	total           int
	killed          []int64 // when masters were, in microseconds
}

// runShards starts a server for each shard, and enqueues the first jobs.
func runShards(t *testing.T, rdb redis.UniversalClient, n int) *shards {
	t.Helper()
	s := &shards{
		t: t, client: asynq.NewClientFromRedisClient(rdb), tasks: asynq.NewInspectorFromRedisClient(rdb), permits: map[string][]throttletest.Admission{},
		starts: map[string][]throttletest.Admission{}, enqueued: map[string]int{}, ran: map[string]map[string]int{},
	}
	s.changed = sync.NewCond(&s.mu)
	rules := Rules{Limits: []throttle.Limit{shardLimit}, RuleFor: func(context.Context, *asynq.Task) (Rule, error) {
		return Rule{Needs: []throttle.Need{{Limit: shardLimit.Name}}}, nil
	}}
	for i := range n {
		name := fmt.Sprintf("crawl.%d", i)
		s.names = append(s.names, name)
		s.ran[name] = map[string]int{}
		server, err := NewServer(rdb, rules, asynq.Config{Concurrency: shardSlots, Queues: map[string]int{name: 1}, Logger: silent{}},
			WithLogger(slog.New(slog.NewTextHandler(&s.log, nil))), WithLimiter(throttle.New(rdb, throttle.Options{Scope: name})))
		if err != nil {
			t.Fatal(err)
		}
		if err := server.Start(asynq.HandlerFunc(s.run)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(server.Shutdown)
	}
	s.enqueue(30)
	return s
}

// enqueue gives each shard more jobs. It returns when Redis has confirmed them.
func (s *shards) enqueue(more int) {
	s.t.Helper()
	for _, name := range s.names {
		for range more {
			if _, err := s.client.Enqueue(asynq.NewTask("job", nil), asynq.Queue(name), asynq.TaskID(fmt.Sprint(s.enqueued[name]))); err != nil {
				s.t.Fatal(err)
			}
			s.mu.Lock()
			s.enqueued[name]++
			s.mu.Unlock()
		}
	}
}

func (s *shards) run(ctx context.Context, _ *asynq.Task) error {
	now := time.Now()
	queue, _ := asynq.GetQueueName(ctx)
	id, _ := asynq.GetTaskID(ctx)
	d, ok := GetDecision(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !ok {
		s.t.Errorf("job %s of %s runs without permits", id, queue)
	}
	s.permits[queue] = append(s.permits[queue], throttletest.Admission{At: d.At.Add(d.BeginIn).UnixMicro(), Cost: 1})
	s.starts[queue] = append(s.starts[queue], throttletest.Admission{At: now.UnixMicro(), Cost: 1})
	s.ran[queue][id]++
	s.total++
	s.changed.Broadcast()
	return nil
}

// until waits until a condition holds, which is called with the lock held after each job.
func (s *shards) until(condition func() bool) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	const stuck = time.Minute
	began := time.Now()
	defer time.AfterFunc(stuck, s.changed.Broadcast).Stop()
	for !condition() {
		if time.Since(began) > stuck {
			s.t.Fatalf("stuck: %d jobs ran, %v were enqueued; logged\n%s", s.total, s.enqueued, s.log.String())
		}
		s.changed.Wait()
	}
}

// wait waits until more jobs of all shards have run.
func (s *shards) wait(more int) {
	s.t.Helper()
	until := 0
	s.until(func() bool {
		until = cmp.Or(until, s.total+more)
		return s.total >= until
	})
}

// waitFor waits until a job of a shard begins, or only such are left as a failover can have delayed.
func (s *shards) waitFor(queue string) {
	s.t.Helper()
	now := time.Now().UnixMicro()
	s.until(func() bool {
		starts := s.starts[queue]
		return len(s.ran[queue]) >= s.enqueued[queue]-shardSlots || len(starts) > 0 && starts[len(starts)-1].At >= now
	})
}

// drain waits until all jobs have run, and returns how many ran more than once. A job whose last
// write was lost comes back when its lease has ended, within 40 s. After a single failover drain does
// not wait for such jobs, and fails if asynq does not have them.
func (s *shards) drain() (repeated int) {
	s.t.Helper()
	late := 0
	if *failovers == 1 {
		late = shardSlots
	}
	for _, name := range s.names {
		s.until(func() bool { return len(s.ran[name]) >= s.enqueued[name]-late })
		for i := range s.enqueued[name] {
			id := fmt.Sprint(i)
			s.mu.Lock()
			n := s.ran[name][id]
			s.mu.Unlock()
			if n > 1 {
				repeated++
			}
			if n > 0 {
				continue
			}
			info, err := s.tasks.GetTaskInfo(name, id)
			s.mu.Lock()
			if s.ran[name][id] > 0 { // meanwhile
				err = nil
			}
			s.mu.Unlock()
			if err != nil || info != nil && info.State == asynq.TaskStateArchived {
				s.t.Errorf("job %s of %s has not run, and is %v, %v", id, name, info, err)
			}
		}
	}
	return repeated
}

// idleAtMost is how long after a failover permits may be idle.
const idleAtMost = 5 * time.Second

// maxLag is how long before its end a master may not have sent its last writes to its replica.
const maxLag = 100 * time.Millisecond

// TestCluster moves a slot and kills masters while jobs run in 16 shards.
func TestCluster(t *testing.T) {
	slow(t)
	cluster := redistest.RunReplicatedCluster(t)
	rdb := cluster.Client()
	t.Cleanup(func() { _ = rdb.Close() })
	testWholeSlot(t, cluster, rdb)
	s := runShards(t, rdb, 16)
	s.wait(2 * 16)
	cluster.MoveSlot("{crawl.3}", 20, func(int) { s.wait(8) })
	s.wantSoon("crawl.3")
	for range *failovers {
		s.enqueue(20)
		dead := cluster.Master("{crawl.0}")
		var successor *redistest.Server
		s.kill(func() { successor = cluster.Kill(dead) })
		s.wantSoon(s.names...)
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
	allow := func(int) {
		if d, err := limiter.Allow(t.Context(), limit.Name, ""); d.OK() || err != nil && !errors.Is(err, throttle.ErrUnavailable) {
			t.Errorf("a second permit of %s: %v, %v", limit, d, err)
		}
	}
	if d, err := limiter.Allow(t.Context(), limit.Name, ""); !d.OK() {
		t.Fatal(d, err)
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
	s.wantSoon(s.names...)
	s.judge()
}

// kill kills a master, and returns when its replica has taken over.
func (s *shards) kill(kill func()) {
	s.killed = append(s.killed, time.Now().UnixMicro())
	kill()
}

// wantSoon fails unless a job of each queue starts in time.
func (s *shards) wantSoon(queues ...string) {
	s.t.Helper()
	began := time.Now()
	for _, queue := range queues {
		s.waitFor(queue)
	}
	idle := time.Since(began)
	s.t.Logf("jobs start again within %s", idle)
	if idle > idleAtMost {
		s.t.Errorf("permits were idle for %s, want at most %s", idle, idleAtMost)
	}
}

// judge waits until all jobs have run, and fails if any window holds more permits than the limit and
// those that a dead master may not have sent to its replica.
func (s *shards) judge() {
	s.t.Helper()
	repeated, over, lost := s.drain(), 0, 0
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range s.names {
		over += throttletest.Over(shardLimit, s.permits[name])
		isLost := func(a throttletest.Admission) bool {
			return slices.ContainsFunc(s.killed, func(at int64) bool { return at-maxLag.Microseconds() <= a.At && a.At <= at })
		}
		permits := slices.DeleteFunc(slices.Clone(s.permits[name]), isLost)
		lost += len(s.permits[name]) - len(permits)
		if err := throttletest.Check(shardLimit, permits); err != nil {
			s.t.Errorf("%s: %v", name, err)
		}
		if err := throttletest.CheckStarts(shardLimit, slices.DeleteFunc(slices.Clone(s.starts[name]), isLost), maxPermitAge); err != nil {
			s.t.Errorf("%s: %v", name, err)
		}
	}
	s.t.Logf("%d jobs ran, %d of them more than once; %d permits over, %d were taken within %s before a master was killed",
		s.total, repeated, over, lost, maxLag)
}
