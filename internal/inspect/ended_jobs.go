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

// EndedJobs finds jobs that have ended, each job once. It reads the IDs of all jobs but only the new
// jobs themselves, because results can be large.
type EndedJobs struct {
	q     *Queues
	queue string // empty for all
	set   string // asynq's completed or archived
	seen  map[throttle.JobID]float64
}

// NewEndedJobs returns an EndedJobs for the completed or the archived jobs of a queue. An empty queue
// means all queues.
func NewEndedJobs(q *Queues, queue string, archived bool) *EndedJobs {
	set := "completed"
	if archived {
		set = "archived"
	}
	return &EndedJobs{q: q, queue: queue, set: set}
}

// Next returns the jobs that have ended since the last call, the oldest first. It stops after the
// first error.
func (e *EndedJobs) Next(ctx context.Context) iter.Seq2[*asynq.TaskInfo, error] {
	return func(yield func(*asynq.TaskInfo, error) bool) {
		added, err := e.newIDs(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, id := range added {
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

// newIDs returns the IDs that are new, or whose score has changed because the job ended again.
func (e *EndedJobs) newIDs(ctx context.Context) (all []throttle.JobID, err error) {
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
		var added []throttle.JobID
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
					added = append(added, id)
				}
			}
			if len(ids) < page {
				break
			}
		}
		slices.Reverse(added)
		all = append(all, added...)
	}
	e.seen = now
	return all, nil
}
