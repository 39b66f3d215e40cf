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
	"errors"
	"strings"
	"sync"
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

const (
	readTimeout   = 2 * time.Second
	healthTimeout = 400 * time.Millisecond // short, so that a scrape is quick while Redis is away
)

// collector reads the metrics of one scope at each scrape.
type collector struct {
	stats     *stats.Recorder
	ready     func(context.Context) error // checks both Redises
	scope     string
	rdb       redis.UniversalClient // the limiter's Redis
	limiter   *waitdb.DB            // belongs to no app, so it reads the limits of all apps
	queuesRDB redis.UniversalClient // the queues' Redis
	inspector *asynq.Inspector
	schedules *cron.Runner
	isShard   bool // whether the scope is a shard: then only its limits and its dispatcher are read from Redis
}

// collectors has a collector for each scope of a server: its limiter's scope, and each shard.
type collectors []prometheus.Collector

// Describe sends the descriptions of all metrics.
func (all collectors) Describe(descs chan<- *prometheus.Desc) {
	for _, c := range all {
		c.Describe(descs)
	}
}

// Collect collects all scopes at once.
func (all collectors) Collect(out chan<- prometheus.Metric) {
	var running sync.WaitGroup
	for _, c := range all {
		running.Go(func() { c.Collect(out) })
	}
	running.Wait()
}

// New returns the collector of a server, for any registry. queues is the Redis of the server's
// queues; the caller closes it after the last scrape. New sends nothing to Redis. The collector
// is safe for concurrent use. It caches nothing.
func New(server *scheduler.Server, queues redis.UniversalClient, opts Options) prometheus.Collector {
	var all collectors
	for i, recorder := range stats.RecordersOf(server) {
		c := &collector{
			stats: recorder, ready: server.Ready, schedules: opts.Schedules, isShard: i > 0,
			queuesRDB: queues, inspector: asynq.NewInspectorFromRedisClient(queues),
		}
		c.rdb, c.scope = c.stats.Redis()
		c.limiter = waitdb.New(throttle.New(c.rdb, throttle.Options{Scope: c.scope}))
		all = append(all, prometheus.WrapCollectorWith(prometheus.Labels{"scope": c.scope}, c))
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
	if c.isShard {
		out <- scopeUp.value(boolValue(c.collectScope(out) == nil))
		return
	}
	found := redishealth.ProblemOf(c.checkRedis())
	readable := found == redishealth.None || found.RefusesWrites()
	up := readable && c.collectScope(out) == nil
	out <- scopeUp.value(boolValue(up))
	for _, t := range redishealth.All() {
		present := t == found
		if t == redishealth.Evicts {
			present = readable && c.evicts()
		}
		out <- redisTrouble.value(boolValue(present), string(t))
	}
}

func (c *collector) collectScope(out chan<- prometheus.Metric) error {
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	parts := []func(context.Context, chan<- prometheus.Metric) error{
		c.collectLimits, c.collectDispatcher, c.collectWorkers, c.collectQueues, c.collectSchedules,
	}
	if c.isShard {
		parts = parts[:2]
	}
	for _, part := range parts {
		if err := part(ctx, out); err != nil {
			return err
		}
	}
	return nil
}

func (c *collector) evicts() bool {
	ctx, cancel := context.WithTimeout(context.Background(), healthTimeout)
	defer cancel()
	return redishealth.EvictionPolicy(ctx, c.rdb) != "" || redishealth.EvictionPolicy(ctx, c.queuesRDB) != ""
}

// checkRedis returns an error after healthTimeout, even if the Redis client ignores its context.
// The check then continues in the background.
func (c *collector) checkRedis() error {
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
		defer cancel()
		done <- c.ready(ctx)
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(healthTimeout):
		return errors.New("no answer from Redis in time")
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
