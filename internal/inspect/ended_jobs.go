package inspect

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/throttle"
	"github.com/hibiken/asynq"
)

// Endings finds jobs that have ended, each of them once. It reads ids alone until
// it knows which are new: results can be large.
type EndedJobs struct {
	q     *Queues
	queue string // only this one; all if it is empty
	set   string // of asynq's, by when its jobs leave it or entered it
	seen  map[throttle.JobID]float64
	polls int
}

// NewEndings finds those of a queue, or of all where it is empty: completed ones, or
// archived ones.
func NewEndedJobs(q *Queues, queue string, archived bool) *EndedJobs {
	set := "completed"
	if archived {
		set = "archived"
	}
	return &EndedJobs{q: q, queue: queue, set: set, seen: map[throttle.JobID]float64{}}
}

// wholeEach is how many polls pass between two that read all ids. The others
// stop where nothing is new: jobs that are kept for different times are not in
// the order in which they ended.
const wholeEach = 30

// Next gives the jobs that have ended since it was called last, the oldest
// first, and ends with the first error.
func (e *EndedJobs) Next(ctx context.Context) iter.Seq2[*asynq.TaskInfo, error] {
	return func(yield func(*asynq.TaskInfo, error) bool) {
		fresh, err := e.fresh(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, key := range fresh {
			job, err := e.q.Inspector.GetTaskInfo(key.Queue, key.ID)
			if errors.Is(err, asynq.ErrTaskNotFound) || errors.Is(err, asynq.ErrQueueNotFound) {
				continue // its time is over
			}
			err = cmp.Or(err, ctx.Err())
			if err == nil && e.set == "archived" { // when, also if it never failed
				job.LastFailedAt = time.Unix(int64(e.seen[key]), 0)
			}
			if !yield(job, err) || err != nil {
				return
			}
		}
	}
}

// fresh lists those that have ended since, queue by queue.
func (e *EndedJobs) fresh(ctx context.Context) (all []throttle.JobID, err error) {
	names, err := e.q.Names(ctx, "")
	if err != nil {
		return nil, err
	}
	whole := e.polls%wholeEach == 0
	e.polls++
	now := e.seen
	if whole {
		now = make(map[throttle.JobID]float64, len(e.seen))
	}
	for _, name := range names {
		if e.queue != "" && name != e.queue {
			continue
		}
		fresh, err := e.freshIn(ctx, name, whole, now)
		if err != nil {
			return nil, err
		}
		slices.Reverse(fresh)
		all = append(all, fresh...)
	}
	e.seen = now
	return all, nil
}

// freshIn reads the ids of a queue from the end, where the new ones mostly are,
// and notes in now what is there.
func (e *EndedJobs) freshIn(ctx context.Context, queue string, whole bool, now map[throttle.JobID]float64) (fresh []throttle.JobID, err error) {
	const page = 1000
	for at := int64(0); ; at += page {
		ids, err := e.q.rdb.ZRevRangeWithScores(ctx, asynqdb.Key(queue, e.set), at, at+page-1).Result()
		if err != nil {
			return nil, err
		}
		n := len(fresh)
		for _, z := range ids {
			key := throttle.JobID{Queue: queue, ID: z.Member.(string)}
			before, known := e.seen[key]
			again, twice := now[key] // a page has moved on meanwhile
			now[key] = z.Score
			// It was not there before, or has ended once more.
			if (!known || before != z.Score) && (!twice || again != z.Score) {
				fresh = append(fresh, key)
			}
		}
		if len(ids) < page || !whole && len(fresh) == n {
			return fresh, nil
		}
	}
}
