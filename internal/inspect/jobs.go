package inspect

import (
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/hibiken/asynq"
)

// pageSize is how many jobs are read at once: Redis does nothing else meanwhile, and
// payloads can be large.
const pageSize = 100

// kept is one of asynq's sets of jobs.
type kept struct {
	name   string
	list   list
	states []string // in which its jobs can be
	newest bool     // comes last
}

func (q *Queues) sets() []kept {
	i := q.Inspector
	return []kept{
		{"active", i.ListActiveTasks, []string{"active"}, false},
		{"pending", i.ListPendingTasks, []string{"pending", Waiting, Called}, false},
		{"retry", i.ListRetryTasks, []string{"retry", Waiting, Called}, false},
		{"scheduled", i.ListScheduledTasks, []string{"scheduled"}, false},
		{"archived", i.ListArchivedTasks, []string{"archived"}, true},
		{"completed", i.ListCompletedTasks, []string{"completed"}, true},
	}
}

// Jobs tells the jobs that are meant, queue by queue and in each set of asynq's by itself:
// those that are archived or completed from the newest on, the others from the next on.
// It holds a page of them at a time. Jobs that come or go meanwhile may be told or not. It
// ends with the first error.
func (q *Queues) Jobs(ctx context.Context, f Filter) iter.Seq2[Job, error] {
	return func(yield func(Job, error) bool) {
		names, err := q.Names(f.Queue)
		if err != nil {
			yield(Job{}, err)
			return
		}
		for _, name := range names {
			for _, set := range q.sets() {
				if f.wants(set.states...) && !q.tell(ctx, name, set, f, yield) {
					return
				}
			}
		}
	}
}

// tell yields the jobs of a set that are meant, and reports whether to go on.
func (q *Queues) tell(ctx context.Context, queue string, set kept, f Filter, yield func(Job, error) bool) bool {
	for page, err := range q.pages(ctx, queue, set) {
		var jobs []Job
		if err == nil {
			jobs, err = q.look(ctx, slices.DeleteFunc(page, func(job *asynq.TaskInfo) bool { return !f.says(job) }))
		}
		if err != nil {
			yield(Job{}, err)
			return false
		}
		for _, job := range jobs {
			if f.Means(job) && !yield(job, nil) {
				return false
			}
		}
	}
	return true
}

// pages reads a set from the end that comes first. What has moved from one page to the
// next meanwhile is told once.
func (q *Queues) pages(ctx context.Context, queue string, set kept) iter.Seq2[[]*asynq.TaskInfo, error] {
	return func(yield func([]*asynq.TaskInfo, error) bool) {
		page, step := 1, 1
		if set.newest {
			n, err := q.rdb.ZCard(ctx, "asynq:{"+queue+"}:"+set.name).Result()
			if err != nil {
				yield(nil, err)
				return
			}
			page, step = (int(n)+pageSize-1)/pageSize, -1
		}
		told := map[string]bool{} // of the page before
		for ; page >= 1; page += step {
			jobs, err := set.list(queue, asynq.Page(page), asynq.PageSize(pageSize))
			if errors.Is(err, asynq.ErrQueueNotFound) {
				return // it was deleted
			}
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if set.newest {
				slices.Reverse(jobs)
			}
			n, before := len(jobs), told
			told = map[string]bool{}
			for _, job := range jobs {
				told[job.ID] = true
			}
			if !yield(slices.DeleteFunc(jobs, func(job *asynq.TaskInfo) bool { return before[job.ID] }), nil) || !set.newest && n < pageSize {
				return
			}
		}
	}
}
