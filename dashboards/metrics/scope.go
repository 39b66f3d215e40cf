package metrics

import (
	"context"
	"errors"
	"slices"

	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/script"
	"github.com/headgate/headgate/internal/stats"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// The maximum numbers of limits, queues and schedules that are exported. The first ones in the
// order of their names are exported.
const (
	maxLimits    = 200
	maxQueues    = 50
	maxSchedules = 200
)

// The metrics of the scope. Only scope_up and scope_age_seconds can differ between processes.
var (
	scopeUp      = newMetric(gauge, "scope_up", "1 if all metrics of the scope could be read from Redis in the last 5 seconds.")
	scopeAge     = newMetric(gauge, "scope_age_seconds", "Time since the metrics of the scope were read: 0, or up to 5 seconds while Redis is slow; missing if scope_up is 0.")
	waiting      = newScopeMetric(gauge, "waiting_permits", "Permits for the jobs that wait longer for the limit than for their other limits, at the time of the backlog sample.", "limit")
	oldestWait   = newScopeMetric(gauge, "oldest_wait_seconds", "Time since the oldest job began to wait that the limit holds back; 0 if the limit holds no job back.", "limit")
	backlogDrain = newScopeMetric(gauge, "backlog_drain_seconds", "Estimated time until the last waiting or pending job of the limit runs; 0 if there is no such job, missing if the time is unknown.", "limit")
	waitingKeys  = newScopeMetric(gauge, "waiting_keys", "Keys that waiting jobs need, at the time of the backlog sample.", "limit")
	sampleAge    = newScopeMetric(gauge, "backlog_sample_age_seconds", "Age of the backlog sample. The metrics of waiting jobs come from this sample.")
	used         = newScopeMetric(gauge, "permits_used", "Permits taken or reserved at the fullest meter of the limit, among those of the empty key and of the five keys with the highest demand.", "limit")
	capacity     = newScopeMetric(gauge, "permits_capacity", "Permits that the meter of headgate_scope_permits_used can give at once.", "limit")
	perSecond    = newScopeMetric(gauge, "permits_per_second", "Long-run rate of the limit for a job without a key; 0 for a concurrency limit.", "limit")
	blocked      = newScopeMetric(gauge, "blocked_keys", "Keys that are blocked, as by an upstream's Retry-After.", "limit")
	paused       = newScopeMetric(gauge, "paused", "1 while the limit is paused.", "limit")
	processes    = newScopeMetric(gauge, "workers", "Worker processes by state: alive, or lost (not seen for 30 seconds, within the last hour, without a clean stop).", "state")
	foreign      = newScopeMetric(gauge, "foreign_servers", "asynq servers without headgate that serve queues of headgate's servers, and run jobs without permits.")
	dispatcher   = newScopeMetric(gauge, "dispatcher_alive", "1 if any process is the dispatcher.")
	queueJobs    = newScopeMetric(gauge, "queue_jobs", "Jobs of an asynq queue by state; jobs that wait for permits are in state retry.", "queue", "state")
	queueLatency = newScopeMetric(gauge, "queue_latency_seconds", "Time since the oldest pending job of an asynq queue became pending.", "queue")
	queuePaused  = newScopeMetric(gauge, "queue_paused", "1 while an asynq queue is paused.", "queue")
	ticks        = newScopeMetric(counter, "schedule_ticks_total", "Ticks of schedules by outcome: enqueued, skipped (missed, or the previous job was not done) or failed.", "schedule", "outcome")
	ticksLate    = newScopeMetric(gauge, "schedule_late_seconds", "Time since the oldest due tick that a schedule has not enqueued yet; 0 if none is due.", "schedule")
)

// collectLimits reads the backlog sample, and the meters of a few keys of each limit. Without a
// sample of the last minute, the metrics of waiting jobs are missing. For a limit without waiting
// jobs they are 0, so that alerts end.
func (c *collector) collectLimits(ctx context.Context, out chan<- prometheus.Metric) error {
	sample, err := stats.ReadBacklogSample(ctx, c.rdb, c.scope)
	if err != nil {
		return err
	}
	now, err := c.rdb.Time(ctx).Result()
	if err != nil {
		return err
	}
	names, err := c.rdb.SMembers(ctx, script.Prefix(c.scope)+"limits").Result()
	if err != nil {
		return err
	}
	slices.Sort(names)
	names = names[:min(len(names), maxLimits)]
	var needs []throttle.Need
	if sample != nil {
		out <- sampleAge.value(max(0, now.Sub(sample.At)).Seconds())
	}
	for _, name := range names {
		if sample == nil {
			needs = append(needs, inspect.MeterNeeds(name, nil)...)
			continue
		}
		limit := sample.Limits[name]
		out <- waiting.value(float64(limit.WaitingPermits), name)
		out <- waitingKeys.value(float64(limit.KeyCount), name)
		out <- oldestWait.value(limit.WaitedFor(now).Seconds(), name)
		if last, needed := sample.DrainedAt[name]; !needed || !last.IsZero() {
			out <- backlogDrain.value(max(0, last.Sub(now)).Seconds(), name)
		}
		needs = append(needs, inspect.MeterNeeds(name, limit.TopKeys)...)
	}
	meters, err := inspect.ReadMeters(ctx, c.limiter, needs)
	if err != nil {
		return err
	}
	fullest := map[string]waitdb.Meter{} // by limit
	for _, m := range meters {
		if old, seen := fullest[m.Limit]; !seen || m.Used()*old.Capacity > old.Used()*m.Capacity {
			fullest[m.Limit] = m
		}
		if m.Key == "" && m.Capacity > 0 { // a deleted limit has no capacity
			out <- perSecond.value(m.PerSecond, m.Limit)
			out <- blocked.value(float64(m.Blocked), m.Limit)
			out <- paused.value(boolValue(m.Paused), m.Limit)
		}
	}
	for limit, m := range fullest {
		if m.Capacity > 0 {
			out <- used.value(float64(m.Used()), limit)
			out <- capacity.value(float64(m.Capacity), limit)
		}
	}
	return nil
}

// collectDispatcher checks the dispatcher's lease, which ends some seconds after a process is killed.
func (c *collector) collectDispatcher(ctx context.Context, out chan<- prometheus.Metric) error {
	n, err := c.rdb.Exists(ctx, script.Prefix(c.scope)+"leader").Result()
	if err == nil {
		out <- dispatcher.value(float64(n))
	}
	return err
}

func (c *collector) collectWorkers(ctx context.Context, out chan<- prometheus.Metric) error {
	found, err := stats.ReadProcesses(ctx, c.rdb, c.scope)
	if err != nil {
		return err
	}
	alive := slices.DeleteFunc(slices.Clone(found), func(p stats.Process) bool { return p.Lost })
	out <- processes.value(float64(len(alive)), "alive")
	out <- processes.value(float64(len(found)-len(alive)), "lost")
	servers, err := asynqdb.New(c.queuesRDB).ForeignServers(ctx)
	if err == nil {
		out <- foreign.value(float64(len(servers)))
	}
	return err
}

// collectQueues exports the queues of the asynq Redis, of all scopes.
func (c *collector) collectQueues(ctx context.Context, out chan<- prometheus.Metric) error {
	names, err := asynqdb.New(c.queuesRDB).Queues(ctx)
	if err != nil {
		return err
	}
	for _, name := range labels(names, maxQueues) {
		q, err := c.inspector.GetQueueInfo(name)
		if errors.Is(err, asynq.ErrQueueNotFound) { // deleted since the list was read
			continue
		}
		if err = errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		for state, n := range map[string]int{
			"pending": q.Pending, "active": q.Active, "scheduled": q.Scheduled, "retry": q.Retry,
			"archived": q.Archived, "completed": q.Completed, "aggregating": q.Aggregating,
		} {
			out <- queueJobs.value(float64(n), name, state)
		}
		out <- queueLatency.value(q.Latency.Seconds(), name)
		out <- queuePaused.value(boolValue(q.Paused), name)
	}
	return nil
}

func labels(names []string, n int) []string {
	names = slices.DeleteFunc(names, func(name string) bool { return stats.Label(name) != name })
	return names[:min(n, len(names))]
}

// collectSchedules exports the counts of ticks in Redis, which outlive processes. Disabled and
// paused schedules are never late.
func (c *collector) collectSchedules(ctx context.Context, out chan<- prometheus.Metric) error {
	if c.schedules == nil {
		return nil
	}
	list, err := c.schedules.List(ctx, 0)
	if err != nil {
		return err
	}
	for _, t := range list[:min(maxSchedules, len(list))] {
		if name := stats.Label(t.Entry.Name); name == t.Entry.Name {
			out <- ticks.value(float64(t.Enqueued), name, "enqueued")
			out <- ticks.value(float64(t.Skipped), name, "skipped")
			out <- ticks.value(float64(t.Failed), name, "failed")
			out <- ticksLate.value(t.Late.Seconds(), name)
		}
	}
	return nil
}
