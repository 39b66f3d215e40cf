package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/internal/shard"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/scheduler"
)

type shardsCommand struct {
	Jobs        int  `default:"8000" help:"Jobs of a case at this rate, equally many for each shard."`
	Rate        int  `default:"800" help:"Permits a second of the limit that all share."`
	Capacity    int  `default:"800" help:"Permits of that limit that can be taken at once."`
	Concurrency int  `default:"32" help:"Jobs that the worker runs at once."`
	JSON        bool `name:"json" help:"Print one JSON array."`
}

// shardsRow is the result of a backlog in a queue with shards. Node is the busiest master's share
// of the CPU of all masters.
type shardsRow struct {
	Case      string  `json:"case" table:"case"`
	System    string  `json:"system" table:"system"`
	LimitUsed float64 `json:"limit_used" table:"limit used,%"`
	Over      int     `json:"over" table:"over,0"`
	CPU       float64 `json:"redis_cpu_ms_per_job" table:"CPU ms/job,3"`
	Node      float64 `json:"busiest_node_share" table:"busiest master,%"`
	PerCore   float64 `json:"jobs_per_s_and_core" table:"jobs/s and core,0"`
	Ratio     float64 `json:"ratio" table:"ratio,2"` // of PerCore to that of one Redis without shards at the rate of a master
}

// Run measures backlogs with and without shards, on one Redis and on a cluster. The more jobs a
// Redis has a second, the less CPU a job costs. So each case is compared with one Redis without
// shards at the rate of a master.
func (c *shardsCommand) Run(b *bench) error {
	if c.Jobs < 48 || c.Rate < 48 || c.Capacity < 48 || c.Concurrency < 1 {
		return errors.New("--jobs, --rate, --capacity: want 48 or more, some for each shard of each master; --concurrency: want 1 or more")
	}
	nodes := &nodes{}
	defer nodes.close()
	cluster := redistest.RunCluster(nodes)
	options := cluster.Options()
	options.PoolSize = poolSize
	rdb := redis.NewClusterClient(options)
	defer rdb.Close()
	var rows []shardsRow
	alone := map[int]float64{} // jobs a second and core of one Redis without shards, by rate
	for _, k := range []struct{ numerator, denominator, masters, shards int }{
		{1, 16, 1, 1},
		{1, 3, 1, 1},
		{1, 2, 1, 1},
		{1, 1, 1, 1},
		{1, 1, 1, 4},
		{1, 1, 1, 16},
		{1, 1, 3, 16},
		{3, 2, 3, 4},
		{3, 2, 3, 16},
	} {
		part := shardsCommand{Jobs: c.Jobs * k.numerator / k.denominator, Rate: c.Rate * k.numerator / k.denominator, Capacity: c.Capacity * k.numerator / k.denominator, Concurrency: c.Concurrency}
		client, servers := redis.UniversalClient(b.rdb), []*redistest.Server{b.server}
		if k.masters > 1 {
			client, servers = rdb, cluster.Nodes
		}
		row, err := part.measure(b, client, servers, k.shards)
		if err != nil {
			return err
		}
		rate := part.Rate / k.masters
		if k.shards == 1 {
			alone[rate] = row.PerCore
		}
		row.Ratio = row.PerCore / alone[rate]
		rows = append(rows, row)
	}
	return printRows(b, c.JSON, rows)
}

// measure runs the backlog. If shards is 1, the queue has no shards.
func (c *shardsCommand) measure(b *bench, rdb redis.UniversalClient, nodes []*redistest.Server, shards int) (row shardsRow, err error) {
	s := spec{Jobs: c.Jobs, Rate: c.Rate, Capacity: c.Capacity, Concurrency: c.Concurrency}
	queue := scheduler.Shards{Queue: "jobs", Count: shards, Divided: []string{shared}}
	config, options := serverConfig(s), []scheduler.Option{scheduler.WithLogger(silent)}
	config.Queues = map[string]int{queue.Queue: 1}
	client := scheduler.NewClient(rdb)
	if shards > 1 {
		options, client = append(options, scheduler.WithShards(queue)), scheduler.NewClient(rdb, queue)
	}
	row = shardsRow{Case: fmt.Sprintf("%d/s, %s, %s", c.Rate, display.Count(len(nodes), "master"), display.Count(shards, "shard")), System: "headgate"}
	for _, node := range nodes {
		if err := node.Flush(); err != nil {
			return row, err
		}
	}
	before, err := spentByNodes(b.ctx, nodes)
	if err != nil {
		return row, err
	}
	next := 0
	for i := range c.Jobs {
		for shard.ForKey(queue.Queue, strconv.Itoa(next), shards).Index != i%shards { // as many jobs for each shard
			next++
		}
		if _, err := client.Enqueue(asynq.NewTask(taskType, fmt.Appendf(nil, `{"job":%d}`, i)), asynq.Queue(queue.Queue), scheduler.ShardKey(strconv.Itoa(next))); err != nil {
			return row, err
		}
		next++
	}
	h := newHistory(c.Jobs)
	server, err := scheduler.NewServer(rdb, scheduler.Rules{Limits: s.limits(), RuleFor: headgateRule}, config, options...)
	if err != nil {
		return row, err
	}
	begin := time.Now()
	if err := server.Start(handler(h)); err != nil {
		return row, err
	}
	err = b.await(h.all, s, begin)
	server.Shutdown()
	if err != nil {
		return row, err
	}
	after, err := spentByNodes(b.ctx, nodes)
	out := outcome{starts: h.byAdmission(), begin: begin.UnixMicro()}
	took, all := elapsed(out), time.Duration(0)
	for i := range nodes {
		all += after[i] - before[i]
		row.Node = max(row.Node, (after[i] - before[i]).Seconds())
	}
	row.Node /= all.Seconds()
	row.CPU = all.Seconds() * 1000 / float64(c.Jobs)
	row.PerCore = 1000 / row.CPU
	row.LimitUsed = s.ideal().Seconds() / took.Seconds() * float64(len(out.starts)) / float64(c.Jobs)
	row.Over = over(s, out.starts)
	b.note("shards: %s: %.3f ms/job, %s of the limit used", row.Case, row.CPU, percent(row.LimitUsed))
	return row, err
}

// spentByNodes returns the processor time of each server so far.
func spentByNodes(ctx context.Context, nodes []*redistest.Server) (spent []time.Duration, err error) {
	for _, node := range nodes {
		rdb := node.Client()
		u, failed := (&bench{ctx: ctx, rdb: rdb}).usage()
		spent, err = append(spent, u.cpu), errors.Join(err, failed, rdb.Close())
	}
	return spent, err
}

// nodes implements redistest.TB. Its servers end with close, not with a test.
type nodes struct{ ends []func() }

func (n *nodes) Helper()                           {}
func (n *nodes) Fatalf(format string, args ...any) { panic(fmt.Errorf(format, args...)) }
func (n *nodes) Cleanup(end func())                { n.ends = append(n.ends, end) }

func (n *nodes) close() {
	for _, end := range n.ends {
		end()
	}
}
