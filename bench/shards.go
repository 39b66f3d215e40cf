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
	Jobs        int  `default:"8000" help:"How many jobs, as many for each shard."`
	Rate        int  `default:"800" help:"Permits a second of the limit that all share."`
	Capacity    int  `default:"800" help:"Permits of it that can be taken at once."`
	Concurrency int  `default:"32" help:"Jobs that the worker runs at once."`
	JSON        bool `name:"json" help:"Print one JSON array."`
}

// shardsRow is the result of a backlog in a queue with shards. Node is the CPU of the busiest master.
type shardsRow struct {
	Case      string  `json:"case" table:"case"`
	System    string  `json:"system" table:"system"`
	LimitUsed float64 `json:"limit_used" table:"limit used,%"`
	Over      int     `json:"over" table:"over,0"`
	CPU       float64 `json:"redis_cpu_ms_per_job" table:"CPU ms/job,3"`
	Node      float64 `json:"busiest_node_share" table:"busiest master,%"`
	PerCore   float64 `json:"jobs_per_s_and_core" table:"jobs/s and core,0"`
	Ratio     float64 `json:"ratio" table:"ratio,2"` // to one Redis without shards, at the rate of a shard
}

// Run measures the backlog with 1, 4 and 16 shards, on one Redis and on a cluster. A job costs less the
// more of them a scope has a second, so the ratio is to one Redis without shards at the rate of a shard.
func (c *shardsCommand) Run(b *bench) error {
	if c.Jobs < 16 || c.Rate < 16 || c.Capacity < 16 || c.Concurrency < 1 {
		return errors.New("--jobs, --rate, --capacity: want 16 or more, as there are shards; --concurrency: want 1 or more")
	}
	nodes := &nodes{}
	defer nodes.close()
	cluster := redistest.RunCluster(nodes)
	options := cluster.Options()
	options.PoolSize = poolSize
	rdb := redis.NewClusterClient(options)
	defer rdb.Close()
	var rows []shardsRow
	for _, shards := range []int{1, 4, 16} {
		part := shardsCommand{Jobs: c.Jobs / shards, Rate: c.Rate / shards, Capacity: c.Capacity / shards, Concurrency: c.Concurrency}
		alone, err := part.measure(b, b.rdb, []*redistest.Server{b.server}, 1)
		if err != nil {
			return err
		}
		one, err1 := c.measure(b, b.rdb, []*redistest.Server{b.server}, shards)
		three, err2 := c.measure(b, rdb, cluster.Nodes, shards)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		for _, row := range []shardsRow{alone, one, three} {
			row.Ratio = row.PerCore / alone.PerCore
			rows = append(rows, row)
		}
	}
	return printRows(b, c.JSON, rows)
}

// measure runs the backlog. One shard is a queue without shards.
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
		for shard.Of(queue.Queue, strconv.Itoa(next), shards).Index != i%shards { // as many jobs for each shard
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

// nodes implements redistest.TB for servers that end with a command.
type nodes struct{ ends []func() }

func (n *nodes) Helper()                           {}
func (n *nodes) Fatalf(format string, args ...any) { panic(fmt.Errorf(format, args...)) }
func (n *nodes) Cleanup(end func())                { n.ends = append(n.ends, end) }

func (n *nodes) close() {
	for _, end := range n.ends {
		end()
	}
}
