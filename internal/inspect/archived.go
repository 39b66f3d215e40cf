package inspect

import (
	"context"
	"slices"
	"time"

	"github.com/hibiken/asynq"
)

// Archived lists the archived jobs that match, of the queue that is named or of all, the
// newest first. LastFailedAt is when a job was archived.
func (q *Queues) Archived(ctx context.Context, queue string, match func(*asynq.TaskInfo) bool) ([]*asynq.TaskInfo, error) {
	names, err := q.Names(queue)
	if err != nil {
		return nil, err
	}
	var found []*asynq.TaskInfo
	for _, name := range names {
		at, err := q.archivedAt(ctx, name)
		if err != nil {
			return nil, err
		}
		const size = 1000
		for page := 1; ; page++ {
			jobs, err := q.Inspector.ListArchivedTasks(name, asynq.Page(page), asynq.PageSize(size))
			if err != nil {
				return nil, err
			}
			for _, job := range jobs {
				if when, ok := at[job.ID]; ok {
					job.LastFailedAt = when // else when it failed last, if it ever did
				}
				if match(job) {
					found = append(found, job)
				}
			}
			if len(jobs) < size {
				break
			}
		}
	}
	slices.SortStableFunc(found, func(a, b *asynq.TaskInfo) int { return b.LastFailedAt.Compare(a.LastFailedAt) })
	return found, nil
}

// archivedAt is when the jobs of a queue were archived, by ID, in whole seconds: asynq
// keeps it and does not tell.
func (q *Queues) archivedAt(ctx context.Context, queue string) (map[string]time.Time, error) {
	scores, err := q.rdb.ZRangeWithScores(ctx, "asynq:{"+queue+"}:archived", 0, -1).Result()
	at := map[string]time.Time{}
	for _, z := range scores {
		if id, ok := z.Member.(string); ok {
			at[id] = time.Unix(int64(z.Score), 0)
		}
	}
	return at, err
}
