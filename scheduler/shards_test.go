package scheduler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/shard"
	"github.com/headgate/headgate/internal/stats"
	"github.com/headgate/headgate/internal/testutil/proctest"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// crawl is a queue of four shards with a limit for each host and one for all.
var crawl = Shards{Queue: "crawl", Count: 4, ByKey: []string{"host"}, Divided: []string{"total"}}

func crawlLimits() []throttle.Limit {
	return []throttle.Limit{
		{Name: "host", Kind: throttle.SlidingLog, Rate: throttle.PerSecond(5)},
		{Name: "total", Kind: throttle.SlidingWindow, Rate: throttle.PerSecond(50)},
		{Name: "api", Kind: throttle.Funnel, Rate: throttle.PerSecond(20)},
	}
}

// crawlSettings are a server of the queue crawl, and of a queue without shards whose jobs need the
// limit api. A job's payload is its host.
func crawlSettings(workers int) settings {
	return settings{
		config:  asynq.Config{Concurrency: workers, Queues: map[string]int{"crawl": 4, "default": 1}},
		options: []Option{WithShards(crawl)}, limits: crawlLimits(),
		rule: func(task *asynq.Task) (Rule, error) {
			if len(task.Payload()) == 0 {
				return Rule{Needs: []throttle.Need{{Limit: "api"}}}, nil
			}
			return Rule{Needs: []throttle.Need{{Limit: "host", Key: string(task.Payload())}, {Limit: "total"}}}, nil
		},
	}
}

// enqueueCrawl enqueues n jobs for a number of hosts, and n/10 jobs of the queue without shards.
func enqueueCrawl(t *testing.T, rdb redis.UniversalClient, n, hosts int) {
	t.Helper()
	client := NewClient(rdb, crawl)
	var tasks []*asynq.Task
	for i := range n {
		host := fmt.Sprintf("host-%d.example.com", i%hosts)
		tasks = append(tasks, NewTask("job", []byte(host), asynq.Queue("crawl"), asynq.MaxRetry(0), ShardKey(host)))
		if i%10 == 0 {
			tasks = append(tasks, NewTask("job", nil, asynq.MaxRetry(0)))
		}
	}
	for _, result := range client.EnqueueAll(t.Context(), tasks...) {
		if result.Err != nil {
			t.Fatal(result.Err)
		}
	}
}

// wantNoneOver fails if the runs of all workers together took more permits of a limit than it allows.
func wantNoneOver(t *testing.T, workers ...*stack) {
	t.Helper()
	for _, l := range crawlLimits() {
		wantNotOver(t, l, time.Time{}, workers...)
	}
}

func TestShards_LimitsHoldInSum(t *testing.T) {
	const n = 1000
	synctest.Test(t, func(t *testing.T) {
		m, rdb := redistest.Mini(t)
		a, b := start(t, rdb, crawlSettings(8)), start(t, redistest.MiniClient(t, m), crawlSettings(8))
		enqueueCrawl(t, rdb, n, 40)
		began := time.Now()
		for len(a.ran())+len(b.ran()) < n+n/10 && time.Since(began) < time.Minute {
			time.Sleep(time.Second)
		}
		runs := append(a.ran(), b.ran()...)
		seen := map[string]bool{}
		for _, r := range runs {
			seen[r.id] = true
		}
		if len(runs) != n+n/10 || len(seen) != len(runs) {
			t.Errorf("%d runs of %d jobs, want one of each of %d", len(runs), len(seen), n+n/10)
		}
		wantNoneOver(t, a, b)
		if took := time.Since(began); took > 40*time.Second { // 20 s if all hosts were spread evenly
			t.Errorf("the jobs took %s", took)
		}
	})
}

// TestShards_TakeTurns: long jobs of one shard do not take all slots.
func TestShards_TakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Mini(t)
		client := NewClient(rdb, crawl)
		for i := range 40 * crawl.Count {
			if _, err := client.Enqueue(NewTask("job", []byte("x"), asynq.Queue("crawl"), ShardKey(fmt.Sprint(i)))); err != nil {
				t.Fatal(err)
			}
		}
		var mu sync.Mutex
		running := map[string]int{}
		s := crawlSettings(shardBatch * crawl.Count)
		s.rule = always(Rule{})
		s.handle = func(ctx context.Context, _ *asynq.Task) error {
			queue, _ := asynq.GetQueueName(ctx)
			mu.Lock()
			running[queue]++
			mu.Unlock()
			time.Sleep(11 * time.Second)
			return nil
		}
		start(t, rdb, s)
		time.Sleep(10 * time.Second)
		mu.Lock()
		after := maps.Clone(running)
		mu.Unlock()
		for _, part := range shard.All("crawl", crawl.Count) {
			if n := after[part.Name()]; n == 0 || n > 2*shardBatch {
				t.Errorf("%d jobs of %s run, of all %v", n, part.Name(), after)
			}
		}
		time.Sleep(5 * time.Minute) // the handlers end
	})
}

// TestShards_JobOutside: a job in the queue itself, where an asynq client has put it, is logged once.
func TestShards_JobOutside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Mini(t)
		var log journal
		s := crawlSettings(1)
		s.options = append(s.options, WithLogger(log.logger()))
		start(t, rdb, s)
		_, err := asynq.NewClientFromRedisClient(rdb).Enqueue(asynq.NewTask("job", nil), asynq.Queue("crawl"))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		if n := log.times("a queue with shards has jobs outside of its shards: no server runs them"); n != 1 {
			t.Errorf("logged %d times, want once", n)
		}
	})
}

func TestShards_RealCluster(t *testing.T) {
	slow(t)
	const n = 200
	rdb, s := redistest.RunCluster(t).Client(), crawlSettings(20)
	a, b := start(t, rdb, s), start(t, rdb, s)
	enqueueCrawl(t, rdb, n, 40)
	proctest.Until(t, "end of the jobs", func() (bool, any) { ran := len(a.ran()) + len(b.ran()); return ran >= n+n/10, ran })
	wantNoneOver(t, a, b)
}

func TestShardKey_OneShardForAllProducers(t *testing.T) {
	_, rdb := redistest.Mini(t)
	byHost := crawl
	byHost.KeyOf = func(task *asynq.Task) (string, error) {
		if len(task.Payload()) == 0 {
			return "", errors.New("no host")
		}
		return string(task.Payload()), nil
	}
	want := shard.ForKey("crawl", "example.com", 4).Name()
	plain, keyed, tasks := NewClient(rdb, crawl), NewClient(rdb, byHost), asynq.NewInspectorFromRedisClient(rdb)
	key := ShardKey("example.com")
	for name, row := range map[string]struct {
		client    *Client
		own, opts []asynq.Option // of the task, and of Enqueue
	}{
		"option of Enqueue": {plain, nil, []asynq.Option{key}},
		"option of NewTask": {plain, []asynq.Option{key}, nil},
		"last option":       {plain, []asynq.Option{ShardKey("x")}, []asynq.Option{key}},
		"KeyOf":             {keyed, nil, nil},
		"from a shard":      {keyed, nil, []asynq.Option{asynq.Queue("crawl.3")}},
		"later":             {keyed, nil, []asynq.Option{asynq.ProcessIn(time.Hour)}},
		"in a group":        {keyed, nil, []asynq.Option{asynq.Group("g")}},
	} {
		task := NewTask("job", []byte("example.com"), append(row.own, asynq.Queue("crawl"))...)
		info, err := row.client.Enqueue(task, row.opts...)
		if err == nil {
			_, err = tasks.GetTaskInfo(want, info.ID)
		}
		if err != nil || info.Queue != want {
			t.Errorf("%s: %+v, %v; want queue %s", name, info, err, want)
		}
	}
	if r := plain.EnqueueAll(t.Context(), NewTask("job", nil, asynq.Queue("crawl"), key))[0]; r.Err != nil || r.Info.Queue != want {
		t.Errorf("all: %+v, %v; want queue %s", r.Info, r.Err, want)
	}
	if _, err := keyed.Enqueue(NewTask("job", nil, asynq.Queue("crawl"))); err == nil || !strings.Contains(err.Error(), "no host") {
		t.Errorf("without a key: %v", err)
	}
	info, err := plain.Enqueue(NewTask("job", nil), asynq.TaskID("it"), asynq.Queue("crawl"))
	if want := shard.ForKey("crawl", "it", 4).Name(); err != nil || info.Queue != want || info.ID != "it" {
		t.Errorf("by its ID: %+v, %v; want queue %s", info, err, want)
	}
	unique := func() (*asynq.TaskInfo, error) {
		return plain.Enqueue(NewTask("once", []byte("x")), asynq.Queue("crawl"), asynq.Unique(time.Hour))
	}
	if _, err := unique(); err != nil {
		t.Fatal(err)
	}
	for range 8 {
		if info, err := unique(); !errors.Is(err, asynq.ErrDuplicateTask) {
			t.Errorf("unique: %+v, %v; want a duplicate", info, err)
		}
	}
	if info, err := plain.Enqueue(NewTask("job", nil)); err != nil || info.Queue != "default" {
		t.Errorf("without shards: %+v, %v", info, err)
	}
	names, _ := tasks.Queues()
	if slices.Contains(names, "crawl") {
		t.Errorf("queues %v: want shards alone", names)
	}
}

// TestShards_LimitInTwoPlaces: a limit that would count twice is refused.
func TestShards_LimitInTwoPlaces(t *testing.T) {
	queues, err := newQueues([]Shards{crawl})
	if err != nil {
		t.Fatal(err)
	}
	right := shard.ForKey("crawl", "example.com", 4)
	wrong := shard.All("crawl", 4)[(right.Index+1)%4]
	host := throttle.Need{Limit: "host", Key: "example.com"}
	for want, job := range map[string]struct {
		queue string
		need  throttle.Need
	}{
		"<nil>": {right.Name(), host},
		"limit host belongs to the sharded queue crawl: jobs of other queues cannot use it":                                                                        {"default", host},
		"limit api is not one of queue crawl: add it to the queue's divided limits":                                                                                {right.Name(), throttle.Need{Limit: "api"}},
		"limit host without a key: its key must be the shard key of queue crawl":                                                                                   {right.Name(), throttle.Need{Limit: "host"}},
		"limit host counts key example.com in shard " + right.Name() + ", but this job is in " + wrong.Name() + ": enqueue the job with the shard key example.com": {wrong.Name(), host},
	} {
		needs := []throttle.Need{job.need, {Limit: "total", Key: "any"}}
		if job.queue == "default" {
			needs = needs[:1]
		}
		if got := fmt.Sprint(queues.Check(queues.QueueOf(job.queue), queues.ShardNamed(job.queue), needs)); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestServer_RefusesShards(t *testing.T) {
	_, rdb := redistest.Mini(t)
	mail := Shards{Queue: "mail", Count: 2, Divided: []string{"host"}}
	large, none, undivided := crawl, crawl, crawl
	large.Count, none.Queue, undivided.Divided = 1001, "", []string{"total", "api"}
	for want, shards := range map[string][]Shards{
		"shards of queue mail: limit host: queue crawl uses it already; want another limit":            {crawl, mail},
		"shards of queue crawl: count 1001: want 1 to 1000":                                            {large},
		`shards of queue : queue "": want a name, given only once`:                                     {none},
		`shards of queue crawl: queue "crawl": want a name, given only once`:                           {crawl, crawl},
		"rules: limit api: capacity 1: want at least 4, one for each of the 4 shards of queue crawl":   {undivided},
		"shards of queue mail: the config does not serve the queue: want it among the config's Queues": {{Queue: "mail", Count: 2}},
	} {
		s := crawlSettings(1)
		_, err := NewServer(rdb, Rules{Limits: s.limits, RuleFor: noNeeds}, s.config, WithShards(shards...))
		if err == nil || err.Error() != want {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
	_, err := NewClient(rdb, large).Enqueue(NewTask("job", nil))
	if want := "shards of queue crawl: count 1001: want 1 to 1000"; err == nil || err.Error() != want {
		t.Errorf("client: %v, want %s", err, want)
	}
}

func TestShards_Weights(t *testing.T) {
	queues := shard.Queues{"crawl": {Count: 4}, "mail": {Count: 3}}
	for _, strict := range []bool{false, true} {
		got := expandQueues(queues, map[string]int{"crawl": 4, "mail": 1, "default": 2}, strict)
		sums := map[string]int{}
		for name, weight := range got {
			sums[queues.QueueOf(name)] += weight
		}
		want := map[string]int{"crawl": 12, "mail": 3, "default": 6}
		if strict {
			want = map[string]int{"crawl": 16, "mail": 3, "default": 2}
		}
		if len(got) != 8 || !maps.Equal(sums, want) {
			t.Errorf("strict %v: %v, in sum %v, want %v", strict, got, sums, want)
		}
	}
}

func TestShards_ChangedNumber(t *testing.T) {
	_, rdb := redistest.Mini(t)
	begin := func(count int) (*Server, error) {
		s := crawlSettings(1)
		var options []Option
		if count > 0 {
			options = append(options, WithShards(Shards{Queue: "crawl", Count: count, ByKey: []string{"host"}, Divided: []string{"total"}}))
		}
		server := newServer(t, rdb, s.limits, s.config, options...)
		return server, server.Start(asynq.NewServeMux())
	}
	server, err := begin(4)
	if err != nil {
		t.Fatal(err)
	}
	for { // the server writes its process in the background
		processes, err := stats.ReadProcesses(t.Context(), rdb, "crawl.0")
		if err != nil {
			t.Fatal(err)
		}
		if len(processes) > 0 {
			break
		}
		runtime.Gosched()
	}
	if second, err := begin(2); err == nil || !strings.Contains(err.Error(), "still runs with 4 shards: stop all such workers") {
		second.Shutdown()
		t.Fatalf("beside another worker: %v", err)
	}
	server.Shutdown()
	for i := range 10 {
		waits := asynq.ProcessIn(time.Hour)
		if i%2 == 0 {
			waits = asynq.Group("pages")
		}
		if _, err := NewClient(rdb, crawl).Enqueue(NewTask("job", nil), asynq.Queue("crawl"), asynq.TaskID(fmt.Sprint(i)), waits); err != nil {
			t.Fatal(err)
		}
	}
	for _, count := range []int{2, 0} {
		if _, err := begin(count); err == nil || !strings.Contains(err.Error(), "10 jobs left where it had 4 shards") {
			t.Errorf("%d shards: %v", count, err)
		}
	}
	if _, err := NewClient(rdb, Shards{Queue: "crawl", Count: 2}).Enqueue(NewTask("job", nil), asynq.Queue("crawl")); err == nil || !strings.Contains(err.Error(), "count 2: queue crawl has 4 shards; want as many here") {
		t.Errorf("a client of 2 shards: %v", err)
	}
	for _, name := range (shard.Queues{"crawl": {Count: 4}}).Names("crawl") {
		tasks := asynq.NewInspectorFromRedisClient(rdb)
		_, scheduled := tasks.DeleteAllScheduledTasks(name)
		_, grouped := tasks.DeleteAllAggregatingTasks(name, "pages")
		for _, err := range []error{scheduled, grouped} {
			if err != nil && !errors.Is(err, asynq.ErrQueueNotFound) {
				t.Fatal(err)
			}
		}
	}
	for _, count := range []int{2, 0, 4} {
		server, err := begin(count)
		if err != nil {
			t.Fatalf("%d shards: %v", count, err)
		}
		server.Shutdown()
	}
}
