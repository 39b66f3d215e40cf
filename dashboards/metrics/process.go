package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/stats"
	"github.com/headgate/headgate/throttle"
)

// The process's own metrics. A limit or a task appears with its first job. The first 100 limits and
// the first 100 tasks have their own labels, and all further ones have the label other. Permits
// without a key are also counted alone: only their sum over all processes compares with the limit's
// rate, which is the rate of one key.
var (
	decisions           = newMetric(counter, "decisions_total", "Decisions of the limiter: an allowed job counts for each of its limits, any other for the limit that decided.", "limit", "outcome")
	permits             = newMetric(counter, "permits_total", "Permits that jobs took.", "limit")
	unkeyedPermits      = newMetric(counter, "unkeyed_permits_total", "Permits that jobs without a key took of the limit.", "limit")
	unkeyedReturned     = newMetric(counter, "unkeyed_permits_returned_total", "Permits without a key that were given back because a call cost less.", "limit")
	upstreamRateLimited = newMetric(counter, "upstream_rate_limited_total", "Calls that had their permits and were rate limited upstream, as with status 429. A call counts for each limit whose key it blocked.", "limit")
	retryAfter          = newMetric(histogram, "retry_after_seconds", "Retry-after of denied jobs.", "limit")
	lateness            = newMetric(histogram, "lateness_seconds", "Time from when the permits of a waiting job existed until it took them.")
	wait                = newMetric(histogram, "wait_seconds", "Time from the first denial of a job until it had its permits.")
	denials             = newMetric(histogram, "denials_per_job", "How often jobs were denied before they had their permits.")
	limiterCalls        = newMetric(histogram, "limiter_call_duration_seconds", "Duration of the calls to the limiter.")
	limiterFailures     = newMetric(counter, "limiter_call_failures_total", "Calls to the limiter that failed.")
	isDispatcher        = newMetric(gauge, "dispatcher", "1 while this process is the dispatcher of its scope.")
	dispatchRounds      = newMetric(histogram, "dispatch_round_duration_seconds", "Duration of the dispatcher's rounds in this process.")
	ungranted           = newMetric(counter, "ungranted_jobs_total", "Waiting jobs that took permits without a reservation, because asynq's polls brought these jobs, or they came too late.")
	pollingFallback     = newMetric(gauge, "polling_fallback", "1 while this process cannot promote waiting jobs, so that they run late, after asynq's polls.")
	jobs                = newMetric(counter, "jobs_total", "Jobs by how they ended: done, failed for good (archived), or dropped.", "queue", "task", "outcome")
	attempts            = newMetric(counter, "attempts_total", "Attempts by how they ended: done, failed, dropped, put_back (denied, the job did not run) or retry_after (put back by its handler).", "queue", "task", "outcome")
	running             = newMetric(gauge, "jobs_running", "Jobs that this process is running.", "queue", "task")
	jobDurations        = newMetric(histogram, "job_duration_seconds", "How long jobs ran, however they ended.", "queue", "task")
	redisTrouble        = newMetric(gauge, "redis_trouble", "1 while a Redis of this process has the trouble, such as away, out_of_memory, read_only or evicts (its maxmemory-policy deletes jobs).", "trouble")
	statsFailures       = newMetric(counter, "stats_write_failures_total", "Failed writes of this process's stats to Redis.")
)

// collectProcess sends every outcome of a known limit or task, even if its count is 0: a rate
// misses the first event of a series that begins with it.
func (c *collector) collectProcess(out chan<- prometheus.Metric) {
	r := c.stats
	for _, l := range r.Limits() {
		for outcome, n := range l.Decisions {
			if o := throttle.Outcome(outcome); o != throttle.Unavailable { // counted in limiterFailures
				out <- decisions.value(float64(n), l.Limit, strings.ReplaceAll(o.String(), " ", "_"))
			}
		}
		out <- permits.value(float64(l.Permits), l.Limit)
		out <- unkeyedPermits.value(float64(l.Unkeyed), l.Limit)
		out <- unkeyedReturned.value(float64(l.Returned), l.Limit)
		out <- upstreamRateLimited.value(float64(l.RateLimited), l.Limit)
		out <- retryAfter.histogram(l.RetryAfter, l.Limit)
	}
	for _, t := range r.Tasks() {
		for _, end := range []stats.AttemptEnd{stats.Done, stats.Dropped, stats.PutBack, stats.RetryAfter} {
			n := float64(t.Ends[end])
			out <- attempts.value(n, t.Queue, t.Type, end.String())
			if end == stats.Done || end == stats.Dropped {
				out <- jobs.value(n, t.Queue, t.Type, end.String())
			}
		}
		out <- jobs.value(float64(t.Ends[stats.Archived]), t.Queue, t.Type, "failed")
		out <- attempts.value(float64(t.Ends.FailedAttempts()), t.Queue, t.Type, "failed")
		out <- running.value(float64(t.Running), t.Queue, t.Type)
		out <- jobDurations.histogram(t.Duration, t.Queue, t.Type)
	}
	out <- lateness.histogram(r.Lateness)
	out <- wait.histogram(r.Wait)
	out <- denials.histogram(r.Denials)
	out <- limiterCalls.histogram(r.LimiterCalls)
	out <- limiterFailures.value(float64(r.LimiterFailures.Load()))
	out <- isDispatcher.value(boolValue(r.IsLeader.Load()))
	out <- dispatchRounds.histogram(r.Rounds)
	out <- ungranted.value(float64(r.Ungranted.Load()))
	out <- pollingFallback.value(boolValue(r.PollingFallback.Load()))
	out <- statsFailures.value(float64(r.FailedWrites.Load()))
}
