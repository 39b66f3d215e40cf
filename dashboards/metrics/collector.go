// Package metrics exports what headgate does to Prometheus.
//
// Metrics named headgate_… are the process's own counters and histograms: sum them over processes.
// Metrics named headgate_scope_… are read from Redis at each scrape and are the same from every
// process: take their max, not their sum. All metrics have the label scope. Other labels are a
// bounded number of names of limits, queues, task types and schedules; never a key, a job's ID or a
// URL.
//
//	registry.MustRegister(metrics.New(server, rdb, metrics.Options{}))
//
// A scrape costs a few round trips to Redis, plus one for each hundred limits without a key and three
// for each queue. The number of jobs and keys does not matter. A scrape that cannot read everything reports
// headgate_scope_up 0 and what it could read; missing series are not zeros.
package metrics

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redishealth"
	"github.com/headgate/headgate/internal/stats"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/scheduler/cron"
	"github.com/headgate/headgate/throttle"
)

// Options are the optional settings of New.
type Options struct {
	// Schedules are the schedules whose ticks are exported. Nil means none.
	Schedules *cron.Runner
}

// healthTimeout is how long a scrape waits for the check of Redis, and then for the metrics of the
// scope. It is short, so that a scrape is quick while Redis is away. Without an answer in this time,
// the scrape has the last known state and metrics, if they are younger than
// redishealth.AnswerTimeout. Otherwise it waits for the rest of AnswerTimeout.
const healthTimeout = 200 * time.Millisecond

// collector reads the metrics of one scope at each scrape.
type collector struct {
	stats     *stats.Recorder
	scope     string
	rdb       redis.UniversalClient // the limiter's Redis
	limiter   *waitdb.DB            // belongs to no app, so it reads the limits of all apps
	queuesRDB redis.UniversalClient // the queues' Redis
	inspector *asynq.Inspector
	schedules *cron.Runner
	isShard   bool // whether the scope is a shard: then only its limits and its dispatcher are read from Redis

	trouble *atomic.Value // redishealth.Problem: what the last scrape of all scopes found
	evicts  atomic.Bool   // the last answer to whether a Redis evicts keys
	mu      sync.Mutex
	reading *scopeRead // the current read; nil if there is none
	last    *scopeRead // the last complete read; nil if there is none
}

// collectors has a collector for each scope of a server: its limiter's scope, and each shard.
type collectors struct {
	scopes  []prometheus.Collector
	ready   func(context.Context) error // checks both Redises
	trouble *atomic.Value
}

// Describe sends the descriptions of all metrics.
func (all collectors) Describe(descs chan<- *prometheus.Desc) {
	for _, c := range all.scopes {
		c.Describe(descs)
	}
}

// Collect checks Redis, and then collects all scopes at once.
func (all collectors) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), healthTimeout)
	defer cancel()
	all.trouble.Store(redishealth.ProblemOf(all.ready(ctx)))
	var running sync.WaitGroup
	for _, c := range all.scopes {
		running.Go(func() { c.Collect(out) })
	}
	running.Wait()
}

// New returns the collector of a server, for any registry. queues is the Redis of the server's
// queues; the caller closes it after the last scrape. New sends nothing to Redis. The collector
// is safe for concurrent use. While Redis is slow, a scrape has the metrics that an earlier scrape has
// read, up to redishealth.AnswerTimeout old.
func New(server *scheduler.Server, queues redis.UniversalClient, opts Options) prometheus.Collector {
	all := collectors{ready: server.Ready, trouble: new(atomic.Value)}
	for i, recorder := range stats.RecordersOf(server) {
		c := &collector{
			stats: recorder, schedules: opts.Schedules, isShard: i > 0, trouble: all.trouble,
			queuesRDB: queues, inspector: asynq.NewInspectorFromRedisClient(queues),
		}
		c.rdb, c.scope = c.stats.Redis()
		c.limiter = waitdb.New(throttle.New(c.rdb, throttle.Options{Scope: c.scope}))
		all.scopes = append(all.scopes, prometheus.WrapCollectorWith(prometheus.Labels{"scope": c.scope}, c))
	}
	return all
}

// Describe sends the descriptions of all metrics.
func (c *collector) Describe(descs chan<- *prometheus.Desc) {
	for _, m := range allMetrics {
		descs <- m.desc
	}
}

// Collect sends the metrics of the process, and then those of the scope until the first error.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	c.collectProcess(out)
	found, _ := c.trouble.Load().(redishealth.Problem)
	up := false
	if found == redishealth.None || found.RefusesWrites() {
		read := c.readScope()
		for _, m := range read.metrics {
			out <- m
		}
		if up = read.err == nil; up {
			out <- scopeAge.value(read.age())
		}
	}
	out <- scopeUp.value(boolValue(up))
	if c.isShard {
		return
	}
	for _, t := range redishealth.All() {
		present := t == found
		if t == redishealth.Evicts {
			present = c.evicts.Load()
		}
		out <- redisTrouble.value(boolValue(present), string(t))
	}
}

// metric describes one exported metric. Its values are made at each scrape, so a deleted limit or
// queue has no scope series from the next scrape on.
type metric struct {
	desc   *prometheus.Desc
	kind   prometheus.ValueType
	name   string
	labels []string // without the scope
}

var allMetrics []metric

// histogram marks histograms, which have no prometheus.ValueType of their own.
const (
	counter   = prometheus.CounterValue
	gauge     = prometheus.GaugeValue
	histogram = prometheus.UntypedValue
)

func newMetric(kind prometheus.ValueType, name, help string, labels ...string) metric {
	name = "headgate_" + name
	m := metric{prometheus.NewDesc(name, help, labels, nil), kind, name, labels}
	allMetrics = append(allMetrics, m)
	return m
}

// newScopeMetric returns a metric that is the same from every process, as its help says.
func newScopeMetric(kind prometheus.ValueType, name, help string, labels ...string) metric {
	return newMetric(kind, "scope_"+name, strings.TrimSuffix(help, ".")+" (the same from every process: take max, not sum).", labels...)
}

// value returns a value of the metric. It panics if the number of labels is wrong.
func (m metric) value(v float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(m.desc, m.kind, v, labels...)
}

func (m metric) histogram(h *stats.Histogram, labels ...string) prometheus.Metric {
	count, sum, buckets := h.Snapshot()
	return prometheus.MustNewConstHistogram(m.desc, count, sum, buckets, labels...)
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
