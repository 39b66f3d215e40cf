package inspect

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/throttle"
)

// EndedJobs finds jobs that have ended, each of them once. It reads only IDs until it knows which
// are new, because results can be large.
type EndedJobs struct {
	q     *Queues
	queue string // empty for all
	set   string // asynq's completed or archived
	seen  map[throttle.JobID]float64
}

// NewEndedJobs finds the completed or the archived jobs of a queue, or of all if it is empty.
func NewEndedJobs(q *Queues, queue string, archived bool) *EndedJobs {
	set := "completed"
	if archived {
		set = "archived"
	}
	return &EndedJobs{q: q, queue: queue, set: set}
}

// Next returns the jobs that have ended since the last call, the oldest first. It ends with the
// first error.
func (e *EndedJobs) Next(ctx context.Context) iter.Seq2[*asynq.TaskInfo, error] {
	return func(yield func(*asynq.TaskInfo, error) bool) {
		fresh, err := e.fresh(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, id := range fresh {
			job, err := e.q.Inspector.GetTaskInfo(id.Queue, id.ID)
			if errors.Is(err, asynq.ErrTaskNotFound) || errors.Is(err, asynq.ErrQueueNotFound) {
				continue // its retention is over
			}
			err = cmp.Or(err, ctx.Err())
			if err == nil && e.set == "archived" { // set it also if the job never failed
				job.LastFailedAt = time.Unix(int64(e.seen[id]), 0)
			}
			if !yield(job, err) || err != nil {
				return
			}
		}
	}
}

// fresh returns the IDs that are new, or have another score because the job ended once more.
func (e *EndedJobs) fresh(ctx context.Context) (all []throttle.JobID, err error) {
	names, err := e.q.Names(ctx, "")
	if err != nil {
		return nil, err
	}
	const page = 1000
	now := make(map[throttle.JobID]float64, len(e.seen))
	for _, queue := range names {
		if e.queue != "" && queue != e.queue {
			continue
		}
		var fresh []throttle.JobID
		for at := int64(0); ; at += page {
			ids, err := e.q.rdb.ZRevRangeWithScores(ctx, asynqdb.Key(queue, e.set), at, at+page-1).Result()
			if err != nil {
				return nil, err
			}
			for _, z := range ids {
				id := throttle.JobID{Queue: queue, ID: z.Member.(string)}
				old, known := e.seen[id]
				read, repeated := now[id] // pages move while they are read
				now[id] = z.Score
				if (!known || old != z.Score) && (!repeated || read != z.Score) {
					fresh = append(fresh, id)
				}
			}
			if len(ids) < page {
				break
			}
		}
		slices.Reverse(fresh)
		all = append(all, fresh...)
	}
	e.seen = now
	return all, nil
}
