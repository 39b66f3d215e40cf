package metrics

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/script"
	"github.com/headgate/headgate/internal/stats"
	"github.com/headgate/headgate/scheduler/cron"
	"github.com/headgate/headgate/throttle"
)

// What bounds a scrape: so many limits, queues and schedules by name, and so many
// meters that are looked at. Limits beyond the first 200 by name are not told
// of at all, since how full several are together says nothing. A scrape looks at 1,200
// meters at most, in twelve calls: Redis does nothing else during one.
const (
	maxLimits = 200
	maxQueues = 50
	maxTicks  = 200
	maxLooks  = maxLimits * (inspect.Busiest + 1)
)

// What Redis says of the scope. scope_up is the process's own in spite of its name: it
// says what this scrape could read, so one process may be at 0 and another at 1.
var (
	scopeUp     = own(gauge, "scope_up", "1 if all that follows could be read from Redis for this scrape.")
	waiting     = scoped(gauge, "waiting_permits", "Permits that jobs wait for, as they were counted some seconds ago.", "limit")
	oldestWait  = scoped(gauge, "oldest_wait_seconds", "For how long the job has waited that waits longest, 0 where none does, as it was found some seconds ago.", "limit")
	lastRun     = scoped(gauge, "last_run_seconds", "In how long the last job would run that waits or is pending and needs the limit, whatever else it waits for, if nothing else comes; 0 where none waits, and missing where nobody knows. As it was foreseen some seconds ago.", "limit")
	waitingKeys = scoped(gauge, "waiting_keys", "Keys that jobs wait for, as they were counted some seconds ago.", "limit")
	surveyAge   = scoped(gauge, "survey_age_seconds", "How long ago it was counted what jobs wait for.")
	used        = scoped(gauge, "permits_used", "Permits taken or reserved of the fullest meter among the five keys that most jobs wait for and the empty key, which is that of limits without keys.", "limit")
	capacity    = scoped(gauge, "permits_capacity", "Permits that the meter of headgate_scope_permits_used can give at once.", "limit")
	perSecond   = scoped(gauge, "permits_per_second", "Permits that come back in a second in the long run, for jobs that have no key of the limit; 0 of a concurrency limit.", "limit")
	blocked     = scoped(gauge, "blocked_keys", "Keys that are held shut, as by an upstream's Retry-After.", "limit")
	paused      = scoped(gauge, "paused", "1 while the limit is paused.", "limit")
	processes   = scoped(gauge, "workers", "Processes that run jobs, by state: here, or gone: within the last hour they ended without a word, or could not reach Redis any more.", "state")
	dispatcher  = scoped(gauge, "dispatcher_alive", "1 if any process gives waiting jobs their turns.")
)

// limits tells of what waits and of how full limits are. It reads a survey, which
// a process of the scope makes all the time, and looks at a few keys of a limit:
// so a scrape's work does not grow with jobs and keys. While no process runs there is
// no survey, and nothing is told of what waits: no number would be true. A survey lives
// for a minute, so that is also how long the last numbers outlast the last process. A
// limit that is not in it has nothing waiting, and is told with zeros.
func (c *collector) limits(ctx context.Context, out chan<- prometheus.Metric) error {
	survey, err := stats.ReadSurvey(ctx, c.rdb, c.scope)
	if err != nil {
		return err
	}
	now, err := c.rdb.Time(ctx).Result()
	if err != nil {
		return err
	}
	// All limits in one round trip: how each is defined, Look tells below.
	names, err := c.rdb.SMembers(ctx, script.Prefix(c.scope)+"limits").Result()
	if err != nil {
		return err
	}
	// In order, so that it is the same ones at every scrape and in every process.
	slices.Sort(names)
	names = names[:min(len(names), maxLimits)]
	known := inspect.Known{}
	if survey != nil {
		known.Wanted = survey.Limits
	}
	for _, name := range names {
		known.Limits = append(known.Limits, throttle.Limit{Name: name})
	}
	counted := known.Counted()
	if survey != nil {
		out <- surveyAge.value(max(0, now.Sub(survey.At)).Seconds())
		// Zeros for limits that nothing waits for: a graph falls to zero then, and an
		// alert ends, where a missing series would leave it open.
		for _, l := range counted {
			out <- waiting.value(float64(l.Waiting), l.Name)
			out <- waitingKeys.value(float64(l.Keys), l.Name)
			out <- oldestWait.value(l.WaitedFor(now).Seconds(), l.Name)
			if last, known := survey.Lasts[l.Name]; known || !slices.Contains(survey.Unknown, l.Name) {
				out <- lastRun.value(max(0, last.Sub(now)).Seconds(), l.Name)
			}
		}
	}
	if err := inspect.Look(ctx, c.limiter, counted, maxLooks); err != nil {
		return err
	}
	for _, l := range counted {
		if l.Any.Capacity == 0 { // there is no such limit
			continue
		}
		fullest := l.Fullest()
		out <- perSecond.value(l.Any.PerSecond, l.Name)
		out <- used.value(float64(fullest.Used()), l.Name)
		out <- capacity.value(float64(fullest.Capacity), l.Name)
		out <- blocked.value(float64(l.Any.Blocked), l.Name)
		out <- paused.value(one(l.Any.Paused), l.Name)
	}
	return nil
}

// turns tells whether any process has the lease of the dispatcher. The lease outlives a
// process that was killed by a few seconds.
func (c *collector) turns(ctx context.Context, out chan<- prometheus.Metric) error {
	n, err := c.rdb.Exists(ctx, script.Prefix(c.scope)+"turns").Result()
	if err == nil {
		out <- dispatcher.value(float64(n))
	}
	return err
}

func (c *collector) workers(ctx context.Context, out chan<- prometheus.Metric) error {
	found, err := stats.Processes(ctx, c.rdb, c.scope)
	if err != nil {
		return err
	}
	gone := 0
	for _, p := range found {
		if p.Gone {
			gone++
		}
	}
	out <- processes.value(float64(len(found)-gone), "here")
	out <- processes.value(float64(gone), "gone")
	return nil
}

// What asynq says of its queues. They are those of the Redis that New was given, whatever
// scope their jobs are of: two scopes on one Redis tell of the same queues. The latency is
// by the clock of the process that is scraped, against that of who made the job pending.
var (
	queueJobs    = scoped(gauge, "queue_jobs", "Jobs of an asynq queue by state. Jobs that wait for a permit are among those in state retry.", "queue", "state")
	queueLatency = scoped(gauge, "queue_latency_seconds", "For how long the oldest pending job of an asynq queue has been pending.", "queue")
	queuePaused  = scoped(gauge, "queue_paused", "1 while an asynq queue is paused.", "queue")
)

// queueStates tells of the first 50 queues by name; of the rest together, as other. It
// takes three round trips for each queue, also for those of the rest: Inspector has no
// shorter way, and it takes no context, so the time is looked at after each queue. Those that
// were read before it is over are told of, and the rest only where it is whole.
func (c *collector) queueStates(ctx context.Context, out chan<- prometheus.Metric) error {
	names, err := asynqdb.New(c.both).Queues(ctx)
	if err != nil {
		return err
	}
	rest, others := newQueueSum(), false
	for i, name := range names {
		// One that was deleted since the list was read is as good as never there.
		info, err := c.queues.GetQueueInfo(name)
		if errors.Is(err, asynq.ErrQueueNotFound) {
			continue
		}
		if err = errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		if of := label(name, i, maxQueues); of != stats.Other {
			q := newQueueSum()
			q.add(info)
			q.tell(of, out)
			continue
		}
		rest.add(info)
		others = true
	}
	if others {
		rest.tell(stats.Other, out)
	}
	return nil
}

// queueSum is a queue, or several that are told of together. Of latency and pause the worst
// counts: one that stands still must not vanish among many that go on. Jobs that were called
// are pending, and active once they run.
type queueSum struct {
	jobs    map[string]int // by state, also where there are none
	latency time.Duration
	paused  bool
}

func newQueueSum() *queueSum { return &queueSum{jobs: map[string]int{}} }

func (s *queueSum) add(q *asynq.QueueInfo) {
	for state, n := range map[string]int{
		"pending": q.Pending, "active": q.Active, "scheduled": q.Scheduled, "retry": q.Retry,
		"archived": q.Archived, "completed": q.Completed, "aggregating": q.Aggregating,
	} {
		s.jobs[state] += n
	}
	s.latency, s.paused = max(s.latency, q.Latency), s.paused || q.Paused
}

func (s *queueSum) tell(name string, out chan<- prometheus.Metric) {
	for state, n := range s.jobs {
		out <- queueJobs.value(float64(n), name, state)
	}
	out <- queueLatency.value(s.latency.Seconds(), name)
	out <- queuePaused.value(one(s.paused), name)
}

// label is the name of one of those that are told of as a label: other where it is one too
// many.
func label(name string, i, most int) string {
	if i >= most {
		return stats.Other
	}
	return stats.Label(name)
}

// What Redis says of schedules. Ticks are counted in Redis since the schedule began, so
// they outlive processes; where Redis has lost them they begin anew, as counters may. A
// run of missed ticks that was dropped at once counts as one skipped.
var (
	ticks     = scoped(counter, "schedule_ticks_total", "Ticks of schedules by outcome: enqueued, skipped (missed, or the job of the one before was not done) or failed.", "schedule", "outcome")
	ticksLate = scoped(gauge, "schedule_late_seconds", "For how long a schedule's tick has been due that nobody has enqueued yet, 0 where none is.", "schedule")
)

// ticks tells of the first 200 schedules by name, of the rest together, as other, in one
// round trip. One that is named so is of the rest, too. Disabled and paused ones are told
// of, and are never late: nobody should be woken for what somebody has stopped.
func (c *collector) ticks(ctx context.Context, out chan<- prometheus.Metric) error {
	if c.schedules == nil {
		return nil
	}
	// Without the ticks to come, which nothing here is made of.
	list, err := c.schedules.List(ctx, 0)
	if err != nil {
		return err
	}
	told := map[string]cron.Status{}
	for i, s := range list {
		of := label(s.Entry.Name, i, maxTicks)
		sum := told[of]
		sum.Enqueued, sum.Skipped, sum.Failed = sum.Enqueued+s.Enqueued, sum.Skipped+s.Skipped, sum.Failed+s.Failed
		sum.Late = max(sum.Late, s.Late)
		told[of] = sum
	}
	for name, s := range told {
		// Each outcome is told, at 0 where no tick had it.
		out <- ticks.value(float64(s.Enqueued), name, "enqueued")
		out <- ticks.value(float64(s.Skipped), name, "skipped")
		out <- ticks.value(float64(s.Failed), name, "failed")
		out <- ticksLate.value(s.Late.Seconds(), name)
	}
	return nil
}
