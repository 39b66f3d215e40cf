package inspect

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/throttle"
)

// EndedJobs finds jobs that have ended, each end once. It reads the IDs of all ended jobs, but
// reads the rest only of new jobs, because results can be large.
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
			if isGone(err) { // its retention is over
				continue
			}
			err = cmp.Or(err, ctx.Err())
			if err == nil && e.set == "archived" { // asynq leaves it empty if an operator archived the job
				job.LastFailedAt = time.Unix(int64(e.seen[id]), 0)
			}
			if !yield(job, err) || err != nil {
				return
			}
		}
	}
}

// newIDs returns the IDs that are new, or whose score has changed because the job ended again.
func (e *EndedJobs) newIDs(ctx context.Context) (added []throttle.JobID, err error) {
	names, err := e.q.DB.Queues(ctx)
	if err != nil {
		return nil, err
	}
	now := make(map[throttle.JobID]float64, len(e.seen))
	for _, queue := range names {
		if e.queue != "" && queue != e.queue {
			continue
		}
		scan := e.q.rdb.ZScan(ctx, asynqdb.Key(queue, e.set), 0, "", 1000).Iterator()
		for scan.Next(ctx) {
			id := throttle.JobID{Queue: queue, ID: scan.Val()}
			scan.Next(ctx)
			score, _ := strconv.ParseFloat(scan.Val(), 64)
			_, repeated := now[id] // a scan may return a job twice
			if old, known := e.seen[id]; !repeated && (!known || old != score) {
				added = append(added, id)
			}
			now[id] = score
		}
		if err := scan.Err(); err != nil {
			return nil, err
		}
	}
	e.seen = now
	slices.SortStableFunc(added, func(a, b throttle.JobID) int { return cmp.Compare(now[a], now[b]) })
	return added, nil
}
