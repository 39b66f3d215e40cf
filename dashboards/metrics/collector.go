// Package metrics gives what headgate does to Prometheus.
//
// There are two sorts of metrics. The process's own, counters and histograms of
// what it did itself: sum them over processes. And the scope's, headgate_scope_…,
// which are read from Redis at each scrape and are the same from every process:
// take their max, not their sum. All have the label scope, for scopes do not add
// up. Other labels are names of limits, queues, task types and schedules, a bounded
// number of each; never a key, a job's ID or a URL.
//
//	registry.MustRegister(metrics.New(server, rdb, metrics.Options{}))
//
// What the process did costs a scrape nothing. What Redis says costs a few round
// trips, one more for each hundred meters, and some for each queue, however many
// jobs and keys there are.
//
// Two Redis are asked, which may be one: the limiter's for what waits, limits, turns and
// ticks, and that of the queues. A scrape that cannot read all of it has
// headgate_scope_up at 0 and what it could read; series that are missing are not zeros.
package metrics

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redishealth"
	"github.com/headgate/headgate/internal/stats"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/scheduler/cron"
	"github.com/headgate/headgate/throttle"
)

// Options are what New does not require.
type Options struct {
	// Schedules are those whose ticks are told of. Nil means none. Where processes run
	// different ones, each tells of its own.
	Schedules *cron.Runner
}

const (
	// timeout bounds what a scrape asks a Redis that answers. asynq's Inspector knows no
	// timeouts: of its calls the one that is underway is waited for, as long as the Redis
	// client has patience.
	timeout = 2 * time.Second
	// answerTimeout is how long Redis may take to say that it can be used, which it is asked
	// before: a scrape is done soon after, and Prometheus may come each second. One that does
	// not answer counts as away, and is asked nothing more.
	answerTimeout = 400 * time.Millisecond
)

// collector keeps no values and starts nothing: what is told is as of the scrape. So a
// process that nobody scrapes asks Redis nothing for it.
type collector struct {
	history   *stats.Recorder             // what this process did
	ready     func(context.Context) error // whether both Redises can be used
	scope     string                      // of the limiter
	rdb       redis.UniversalClient       // the limiter's
	limiter   *throttle.Redis             // which asks as no app, so it sees all limits
	queues    *asynq.Inspector
	both      redis.UniversalClient // that of the queues
	schedules *cron.Runner
}

// New returns the collector for a server and the Redis of its queues, for any registry. The
// limiter's Redis and the scope, whose name is a label of all metrics, are the server's own.
// It asks nothing yet, and queues is the caller's to close, after the last scrape. It is safe
// for concurrent use: two scrapes at once ask Redis twice.
//
// Where Redis cannot be asked, or a part of it not in time, only what is known is told, and
// headgate_scope_up is 0. The process's own metrics are told in any case; of the scope's
// those that come after the first error are missing, which is better than old ones.
func New(server *scheduler.Server, queues redis.UniversalClient, opts Options) prometheus.Collector {
	c := &collector{
		history: stats.Of(server), queues: asynq.NewInspectorFromRedisClient(queues),
		schedules: opts.Schedules, both: queues, ready: server.Ready,
	}
	c.rdb, c.scope = c.history.Redis()
	c.limiter = throttle.New(c.rdb, throttle.RedisOptions{Scope: c.scope})
	return prometheus.WrapCollectorWith(prometheus.Labels{"scope": c.scope}, c)
}

// Describe tells of all metrics, whether a scrape has them or not.
func (c *collector) Describe(descs chan<- *prometheus.Desc) {
	for _, m := range all {
		descs <- m.desc
	}
}

// Collect tells what the process did, what is wrong with Redis, and then, part by part, what
// it says. The first error ends it: a Redis that did not answer once would use up the time
// of the scrape part after part, and Prometheus would have nothing at all.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	c.own(out)
	found := redishealth.Of(c.answers(answerTimeout))
	readable := found == redishealth.None || found.RefusesWrites()
	up := readable && c.scopes(out) == nil
	out <- scopeUp.value(one(up))
	for _, t := range redishealth.All() {
		is := t == found
		if t == redishealth.Evicts {
			is = readable && c.evicts()
		}
		out <- troubles.value(one(is), string(t))
	}
}

func (c *collector) scopes(out chan<- prometheus.Metric) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	for _, part := range []func(context.Context, chan<- prometheus.Metric) error{c.limits, c.turns, c.workers, c.queueStates, c.ticks} {
		if err := part(ctx, out); err != nil {
			return err
		}
	}
	return nil
}

func (c *collector) evicts() bool {
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	return redishealth.EvictionPolicy(ctx, c.rdb) != "" || redishealth.EvictionPolicy(ctx, c.both) != ""
}

// metric is one of the metrics that there are. A collector keeps none of their values:
// each scrape makes them of what the server has counted and what Redis says. So a limit
// that is deleted, or a queue that is removed, has no series of the scope from the next
// scrape on; what the process did with it stays told until the process ends.
type metric struct {
	desc   *prometheus.Desc
	kind   prometheus.ValueType
	name   string   // with its prefix, and without the scope's label
	labels []string // in the order in which value takes them
}

// all are the metrics, in the order in which they are made, which is before main. A
// test holds them against a list, since dashboards and alerts of others go by names.
var all []metric

// own is a metric of what the process does. It counts from the process's start, so a
// restart is a reset, which rate and increase know of.
func own(kind prometheus.ValueType, name, help string, labels ...string) metric {
	name = "headgate_" + name
	m := metric{prometheus.NewDesc(name, help, labels, nil), kind, name, labels}
	all = append(all, m)
	return m
}

// scoped is a metric of the scope, which every process tells alike, if not at the same
// moment. What to do about that stands in each help text, as that is what people see who
// choose a metric in Prometheus.
func scoped(kind prometheus.ValueType, name, help string, labels ...string) metric {
	return own(kind, "scope_"+name, strings.TrimSuffix(help, ".")+". Of the scope, the same from every process: take max, not sum.", labels...)
}

// value is a value of the metric, with its labels in the order of their names. A
// number of labels that is wrong is a mistake in this package, and panics.
func (m metric) value(v float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(m.desc, m.kind, v, labels...)
}

// histogram is the metric as a histogram stands at this moment.
func (m metric) histogram(h *stats.Histogram, labels ...string) prometheus.Metric {
	count, sum, buckets := h.Snapshot()
	return prometheus.MustNewConstHistogram(m.desc, count, sum, buckets, labels...)
}

func one(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

var errAway = errors.New("no answer in time")

// patience bounds the wait for a connection to ask with. What was sent is waited for as long
// as the Redis client has patience.
const patience = 2 * time.Second

// answers asks whether Redis can be used. A call that hangs outlasts the scrape, so there may
// be as many as scrapes come meanwhile, or as the client has connections.
func (c *collector) answers(within time.Duration) error {
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		done <- c.ready(ctx)
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(within):
		return errAway
	}
}
