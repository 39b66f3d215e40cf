package metrics

import (
	"context"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/history"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/lua"
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
	waitingJobs = scoped(gauge, "waiting_jobs", "Jobs that wait for permits, or were called and have not come, as they were counted some seconds ago.", "limit")
	oldestWait  = scoped(gauge, "oldest_wait_seconds", "For how long the job has waited that waits longest, 0 where none does, as it was found some seconds ago.", "limit")
	lastRun     = scoped(gauge, "last_run_seconds", "In how long the last job would run that waits and needs the limit, whatever else it waits for, if nothing else comes; 0 where none waits, and missing where nobody knows. As it was foreseen some seconds ago.", "limit")
	waitingKeys = scoped(gauge, "waiting_keys", "Keys that jobs wait for, as they were counted some seconds ago.", "limit")
	surveyAge   = scoped(gauge, "survey_age_seconds", "How long ago the waiting jobs were counted.")
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
func (c *Collector) limits(ctx context.Context, out chan<- prometheus.Metric) error {
	survey, err := history.ReadSurvey(ctx, c.rdb, c.scope)
	if err != nil {
		return err
	}
	now, err := c.rdb.Time(ctx).Result()
	if err != nil {
		return err
	}
	// All limits in one round trip: how each is defined, Look tells below.
	names, err := c.rdb.SMembers(ctx, lua.Prefix(c.scope)+"limits").Result()
	if err != nil {
		return err
	}
	// In order, so that it is the same ones at every scrape and in every process.
	slices.Sort(names)
	names = names[:min(len(names), maxLimits)]
	known := inspect.Known{Survey: survey, Wanted: inspect.Surveyed(survey)}
	for _, name := range names {
		known.Limits = append(known.Limits, throttle.Limit{Name: name})
	}
	counted := known.Counted()
	if survey != nil {
		out <- surveyAge.value(max(0, now.Sub(survey.At)).Seconds())
		// Zeros for limits that nothing waits for: a graph falls to zero then, and an
		// alert ends, where a missing series would leave it open.
		for _, l := range counted {
			out <- waitingJobs.value(float64(l.Waiting), l.Name)
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
func (c *Collector) turns(ctx context.Context, out chan<- prometheus.Metric) error {
	n, err := c.rdb.Exists(ctx, lua.Prefix(c.scope)+"turns").Result()
	if err == nil {
		out <- dispatcher.value(float64(n))
	}
	return err
}

// workers tells how many processes live, and how many are gone without a word.
func (c *Collector) workers(ctx context.Context, out chan<- prometheus.Metric) error {
	found, err := history.Processes(ctx, c.rdb, c.scope)
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
