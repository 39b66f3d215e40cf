package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/stats"
	"github.com/headgate/headgate/throttle"
)

// The types of metrics, in few letters.
const (
	counter = prometheus.CounterValue
	gauge   = prometheus.GaugeValue
	// histogram has no type of value of its own: a metric of this kind is never made
	// with value.
	histogram = prometheus.UntypedValue
)

// What the process does. Limits and tasks come into being with their first job, 200 of
// each by name and the rest as other; what has no labels is there from the start. Which
// key a permit was of nothing tells: unkeyed is told apart since only of a limit without
// keys all processes together can be held against what it allows.
//
// lateness and wait are of jobs that were denied, and denials of all that were allowed,
// so the count of wait by that of denials is the share of jobs that had to wait. Jobs
// that came without having been called have no lateness: they are uncalled.
var (
	decisions    = own(counter, "decisions_total", "Answers of the limiter to jobs. An allowed job counts for each of its limits; any other for the limit that decided.", "limit", "outcome")
	permits      = own(counter, "permits_total", "Permits that jobs took.", "limit")
	unkeyed      = own(counter, "unkeyed_permits_total", "Permits that jobs took of the limit without a key. All processes together take no more than the limit allows.", "limit")
	returned     = own(counter, "unkeyed_permits_returned_total", "Permits without a key that were given back, since a call had cost less.", "limit")
	refused      = own(counter, "refused_calls_total", "Calls that had their permits and that the other side refused, as with 429. Each counts for the limits of which it shut a key.", "limit")
	retryAfter   = own(histogram, "retry_after_seconds", "How long denied jobs were told to wait.", "limit")
	lateness     = own(histogram, "lateness_seconds", "Of jobs that waited: from when their permits were there for them until they took them and started.")
	wait         = own(histogram, "wait_seconds", "Of jobs that waited: from their first denial until they had their permits and started.")
	denials      = own(histogram, "denials_per_job", "How often jobs were denied before they had their permits.")
	calls        = own(histogram, "limiter_call_duration_seconds", "How long jobs' calls of the limiter took.")
	failedCalls  = own(counter, "limiter_call_failures_total", "Jobs' calls of the limiter that had no answer.")
	leads        = own(gauge, "dispatcher", "1 while this process is the one that gives waiting jobs their turns. The sum over a scope is 1.")
	rounds       = own(histogram, "turn_round_duration_seconds", "How long this process took each time that it gave turns.")
	uncalled     = own(counter, "uncalled_jobs_total", "Jobs that waited and took permits that were not reserved for them: asynq's own polls brought them, or they came too late after they were called.")
	polling      = own(gauge, "release_fallback", "1 while waiting jobs are not called back, but left to asynq's own polls: they come late.")
	jobs         = own(counter, "jobs_total", "Jobs by how they ended: done, failed (for good: it is archived), dropped.", "queue", "task", "outcome")
	attempts     = own(counter, "attempts_total", "Attempts to run jobs by how they ended: done, failed (the job runs again, or this was its last attempt), dropped, put_back (denied: it did not run), retry_after (put back by its handler).", "queue", "task", "outcome")
	running      = own(gauge, "jobs_running", "Jobs that run now in this process.", "queue", "task")
	jobDurations = own(histogram, "job_duration_seconds", "How long jobs ran, however they ended.", "queue", "task")
	troubles     = own(gauge, "redis_trouble", "1 while this process finds that of a Redis that it uses: away, out_of_memory, read_only, wrong_password and others, with which jobs wait; or evicts, which is a maxmemory-policy that deletes jobs and limits when its memory is full.", "trouble")
	unwritten    = own(counter, "history_write_failures_total", "Summaries for the history in Redis that could not be written at once.")
)

// own tells what the process did. Unavailable is no answer of the limiter, so it is
// among the failed calls and not among the decisions. All outcomes and ends of a limit
// or task are told once it is known, at 0 if need be: a rate over a series that begins
// with its first value would miss that value.
func (c *collector) own(out chan<- prometheus.Metric) {
	r := c.history
	for _, l := range r.Limits() {
		for outcome, n := range l.Decisions {
			if o := throttle.Outcome(outcome); o != throttle.Unavailable {
				out <- decisions.value(float64(n), l.Limit, strings.ReplaceAll(o.String(), " ", "_"))
			}
		}
		out <- permits.value(float64(l.Permits), l.Limit)
		out <- unkeyed.value(float64(l.Unkeyed), l.Limit)
		out <- returned.value(float64(l.Returned), l.Limit)
		out <- refused.value(float64(l.Refused), l.Limit)
		out <- retryAfter.histogram(l.RetryAfter, l.Limit)
	}
	for _, t := range r.Tasks() {
		for _, end := range []stats.End{stats.Done, stats.Dropped, stats.PutBack, stats.RetryAfter} {
			n := float64(t.Ends[end])
			out <- attempts.value(n, t.Queue, t.Type, end.String())
			if end == stats.Done || end == stats.Dropped {
				out <- jobs.value(n, t.Queue, t.Type, end.String())
			}
		}
		out <- jobs.value(float64(t.Ends.FailedJobs()), t.Queue, t.Type, "failed")
		out <- attempts.value(float64(t.Ends.FailedAttempts()), t.Queue, t.Type, "failed")
		out <- running.value(float64(t.Busy), t.Queue, t.Type)
		out <- jobDurations.histogram(t.Duration, t.Queue, t.Type)
	}
	out <- lateness.histogram(r.Lateness)
	out <- wait.histogram(r.Wait)
	out <- denials.histogram(r.Denials)
	out <- calls.histogram(r.Calls)
	out <- failedCalls.value(float64(r.FailedCalls.Load()))
	out <- leads.value(one(r.Leads.Load()))
	out <- rounds.histogram(r.Rounds)
	out <- uncalled.value(float64(r.Uncalled.Load()))
	out <- polling.value(one(r.Polling.Load()))
	out <- unwritten.value(float64(r.Unwritten.Load()))
}
