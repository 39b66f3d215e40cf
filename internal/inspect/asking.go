package inspect

import (
	"context"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// maxAsking is the most active jobs of a queue that countAsking reads.
const maxAsking = 1000

// limiterOf returns the limiter of a queue's jobs.
func (q *Queues) limiterOf(queue string) *waitdb.DB {
	return q.In(q.Sharded.ShardNamed(queue)).Limiter
}

// countAsking counts the jobs of a queue that asynq calls active, but that have no permits yet:
// asking are those that were denied and are about to be put back, or are about to take the permits
// that they were granted. fetched are those that a worker has just taken.
func (q *Queues) countAsking(ctx context.Context, queue string, active int) (asking, fetched int, err error) {
	if active == 0 {
		return 0, 0, nil
	}
	ids, err := q.rdb.LRange(ctx, asynqdb.Key(queue, asynqdb.Active), 0, maxAsking-1).Result()
	if err != nil {
		return 0, 0, err
	}
	just, err := q.DB.JustTaken(ctx, queue, ids...)
	if err != nil {
		return 0, 0, err
	}
	jobs := make([]throttle.JobID, len(ids))
	for i, id := range ids {
		jobs[i] = throttle.JobID{Queue: queue, ID: id}
	}
	known, err := q.limiterOf(queue).Known(ctx, jobs)
	for i := range known {
		switch {
		case known[i]:
			asking++
		case just[i]:
			fetched++
		}
	}
	return asking, fetched, err
}
