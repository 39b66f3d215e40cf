package metrics

import (
	"context"
	"errors"
	"unicode/utf8"

	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/history"
)

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
// shorter way, and it takes no context, so the time is looked at after each queue.
func (c *Collector) queueStates(ctx context.Context, out chan<- prometheus.Metric) error {
	names, err := asynqdb.New(c.both).Queues(ctx)
	if err != nil {
		return err
	}
	var rest *asynq.QueueInfo
	for i, name := range names {
		// One that was deleted since the list was read is as good as never there.
		info, err := c.queues.GetQueueInfo(name)
		if errors.Is(err, asynq.ErrQueueNotFound) {
			continue
		}
		if err = errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		if i < maxQueues && isLabel(name) {
			tellQueue(info, out)
			continue
		}
		if rest == nil {
			rest = &asynq.QueueInfo{Queue: history.Other}
		}
		add(rest, info)
	}
	if rest != nil {
		tellQueue(rest, out)
	}
	return nil
}

// isLabel reports whether a name can be a label's value of its own: it is one that
// Prometheus takes, not too long, and not the one that the rest is told under, which
// would make two values of one series and fail the whole scrape.
func isLabel(name string) bool {
	return name != history.Other && len(name) <= 100 && utf8.ValidString(name)
}

// tellQueue tells of one queue, or of several that were added up. A state that no job is
// in is told as 0. Jobs that were called are pending, and active once they run.
func tellQueue(q *asynq.QueueInfo, out chan<- prometheus.Metric) {
	for state, n := range map[string]int{
		"pending": q.Pending, "active": q.Active, "scheduled": q.Scheduled, "retry": q.Retry,
		"archived": q.Archived, "completed": q.Completed, "aggregating": q.Aggregating,
	} {
		out <- queueJobs.value(float64(n), q.Queue, state)
	}
	out <- queueLatency.value(q.Latency.Seconds(), q.Queue)
	out <- queuePaused.value(one(q.Paused), q.Queue)
}

// add adds another queue to those that are told of together: their jobs are summed
// up, and of latency and pause the worst counts: one that stands still must not vanish
// among many that go on.
func add(q, other *asynq.QueueInfo) {
	q.Pending, q.Active, q.Scheduled = q.Pending+other.Pending, q.Active+other.Active, q.Scheduled+other.Scheduled
	q.Retry, q.Archived, q.Completed = q.Retry+other.Retry, q.Archived+other.Archived, q.Completed+other.Completed
	q.Aggregating += other.Aggregating
	q.Latency, q.Paused = max(q.Latency, other.Latency), q.Paused || other.Paused
}
