// Package inspect tells what becomes of jobs: where they are, how many of them, and how the
// limits that they wait for stand.
package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/forecast"
	"github.com/headgate/headgate/internal/script"
	"github.com/headgate/headgate/internal/stats"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// Queues is asynq's view of Redis, and the limiter's of the jobs in it.
type Queues struct {
	Inspector *asynq.Inspector
	DB        asynqdb.DB // what asynq keeps and does not tell
	Limiter   *waitdb.DB

	rdb   redis.UniversalClient
	scope string
	rules Rules
}

// Rules are those of the workers, if they are at hand: what jobs that are pending will ask for,
// in the queues that are served, and limits that Redis may not have yet.
type Rules struct {
	RuleFor      stats.RuleFunc
	ServedQueues []string
	Limits       []throttle.Limit
}

// By has pending jobs counted by these rules, and not as a worker found them last.
func (q *Queues) WithRules(rules Rules) *Queues {
	q.rules = rules
	return q
}

// New looks at the queues of a Redis, and at the limiter of a scope there.
func New(rdb redis.UniversalClient, limiter *waitdb.DB, scope string) *Queues {
	return &Queues{Inspector: asynq.NewInspectorFromRedisClient(rdb), DB: asynqdb.New(rdb), Limiter: limiter, rdb: rdb, scope: scope}
}

// Close ends its client.
func (q *Queues) Close() { _ = q.rdb.Close() }

// Forecast is when the jobs would run that wait or are pending.
func (q *Queues) Forecast(ctx context.Context, opts forecast.Options) (*forecast.Forecast, error) {
	var pending stats.Pending
	var err error
	if q.rules.RuleFor != nil {
		opts.Limits = q.rules.Limits
		pending, err = stats.ReadPending(ctx, q.rdb, q.Limiter, q.rules.ServedQueues, q.rules.RuleFor)
	} else {
		var survey *stats.BacklogSample
		if survey, err = stats.ReadBacklogSample(ctx, q.rdb, q.scope); err == nil {
			pending, err = stats.SampledPending(ctx, q.rdb, survey)
		}
	}
	if err != nil {
		return nil, err
	}
	return stats.Forecast(ctx, q.Limiter, q.rdb, pending, opts)
}

// Pending is how many jobs are pending, in all queues.
func (q *Queues) PendingCount(ctx context.Context) (jobs int, err error) {
	sizes, err := stats.PendingCounts(ctx, q.DB)
	for _, n := range sizes {
		jobs += n
	}
	return jobs, err
}

// Names lists the queues, or the one that is named if there is such a queue: one that a
// process has left that died while it started, too.
func (q *Queues) Names(ctx context.Context, queue string) ([]string, error) {
	if queue == "" {
		return q.DB.Queues(ctx)
	}
	names, err := q.Inspector.Queues()
	if err != nil {
		return nil, err
	}
	if !slices.Contains(names, queue) {
		return nil, fmt.Errorf("there is no queue %s", queue)
	}
	return []string{queue}, nil
}

// QueueInfo is what asynq knows of a queue, and how many of its jobs wait for permits or
// are called. Those do not count as jobs in retry.
type QueueInfo struct {
	*asynq.QueueInfo
	Waiting int
}

// Infos tells of the queue that is named, or of all. A queue that was removed meanwhile is
// left out. Nil for how many jobs of each queue wait has them counted.
func (q *Queues) ReadQueues(ctx context.Context, queue string, waits func(queue string) int) (infos []QueueInfo, err error) {
	if waits == nil {
		waiting, err := q.waiting(ctx, queue)
		if err != nil {
			return nil, err
		}
		waits = func(name string) int { return len(waiting[name]) }
	}
	names, err := q.Names(ctx, queue)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		info, err := q.Inspector.GetQueueInfo(name)
		if errors.Is(err, asynq.ErrQueueNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("queue %s: %w", name, err)
		}
		n := waits(name)
		info.Retry = max(0, info.Retry-n)
		infos = append(infos, QueueInfo{info, n})
	}
	return infos, nil
}

// Info is Infos of one queue. It fails if there is none of that name.
func (q *Queues) ReadQueue(ctx context.Context, queue string) (QueueInfo, error) {
	infos, err := q.ReadQueues(ctx, queue, nil)
	if err == nil && len(infos) == 0 {
		err = fmt.Errorf("queue %s: %w", queue, asynq.ErrQueueNotFound)
	}
	if err != nil {
		return QueueInfo{}, err
	}
	return infos[0], nil
}

// In is how many of its jobs are in some states. Those that are called are among those that
// wait.
func (i QueueInfo) Count(states ...string) (n int) {
	for state, of := range map[string]int{
		Waiting: i.Waiting, "pending": i.Pending, "active": i.Active, "retry": i.Retry,
		"scheduled": i.Scheduled, "archived": i.Archived, "completed": i.Completed,
	} {
		if slices.Contains(states, state) {
			n += of
		}
	}
	return n
}

// waiting lists who waits for permits or is called, by queue; of the queue that is named,
// or of all. It reads all of them, a part at a time.
func (q *Queues) waiting(ctx context.Context, queue string) (map[string][]throttle.JobID, error) {
	told := map[string]bool{} // a scan may tell one twice
	waiting := map[string][]throttle.JobID{}
	scan := q.rdb.HScan(ctx, script.Prefix(q.scope)+"jobs", 0, "*", 1000).Iterator()
	for scan.Next(ctx) {
		name := scan.Val()
		of, id, ok := strings.Cut(name, "\n")
		if ok && !told[name] && (queue == "" || of == queue) {
			told[name] = true
			waiting[of] = append(waiting[of], throttle.JobID{Queue: of, ID: id})
		}
		scan.Next(ctx) // the record
	}
	return waiting, scan.Err()
}
