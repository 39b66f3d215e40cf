package inspect

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/hibiken/asynq"
)

// pageSize is how many jobs are read at once: Redis does nothing else meanwhile, and
// payloads can be large.
const pageSize = 100

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
		for s, err := range q.sheets(ctx, f, Mark{}, pageSize) {
			if err != nil {
				yield(Job{}, err)
				return
			}
			for _, job := range s.jobs {
				if !yield(job, nil) {
					return
				}
			}
		}
	}
}

// Mark is how far a list of jobs was read. The zero value is its beginning.
type Mark struct {
	queue, set string
	page       int // the next of the set's, counted from 0
}

// String is read by ParseMark. It is empty at the beginning.
func (m Mark) String() string {
	if m == (Mark{}) {
		return ""
	}
	return fmt.Sprintf("%d %s %s", m.page, m.set, m.queue)
}

// ParseMark reads a mark. What is none is the beginning.
func ParseMark(text string) (m Mark) {
	var name string
	if _, err := fmt.Sscanf(text, "%d %s ", &m.page, &m.set); err != nil || m.page < 0 || m.page > 1_000_000 {
		return Mark{}
	}
	if name = text[len(fmt.Sprintf("%d %s", m.page, m.set)):]; len(name) < 2 {
		return Mark{}
	}
	m.queue = name[1:]
	return m
}

// Some is Jobs from a mark on: size jobs, or up to as many more, after a look at most jobs at
// most. Next is where to go on; the zero value where nothing is left.
func (q *Queues) Some(ctx context.Context, f Filter, from Mark, size, most int) (jobs []Job, next Mark, err error) {
	looked := 0
	for s, err := range q.sheets(ctx, f, from, size) {
		if err != nil {
			return nil, Mark{}, err
		}
		if len(jobs) >= size || looked >= most {
			return jobs, s.mark, nil
		}
		jobs, looked = append(jobs, s.jobs...), looked+s.looked
	}
	return jobs, Mark{}, nil
}

type sheet struct {
	mark   Mark // its own
	looked int  // how many it has in all
	jobs   []Job
}

func (q *Queues) sheets(ctx context.Context, f Filter, from Mark, size int) iter.Seq2[sheet, error] {
	return func(yield func(sheet, error) bool) {
		names, err := q.Names(ctx, f.Queue)
		if err != nil {
			yield(sheet{}, err)
			return
		}
		sets := q.sets()
		for _, name := range names {
			if name < from.queue {
				continue
			}
			first := Mark{queue: name}
			begin := 0
			if name == from.queue {
				first = from
				begin = max(0, slices.IndexFunc(sets, func(s kept) bool { return s.name == from.set }))
			}
			for _, set := range sets[begin:] {
				if set.name != first.set {
					first.set, first.page = set.name, 0
				}
				if f.wants(set.states...) && !q.tell(ctx, set, f, first, size, yield) {
					return
				}
			}
		}
	}
}

func (q *Queues) tell(ctx context.Context, set kept, f Filter, from Mark, size int, yield func(sheet, error) bool) bool {
	s := sheet{mark: from}
	for page, err := range q.pages(ctx, set, from, size) {
		s.jobs, s.looked = nil, len(page)
		if err == nil {
			s.jobs, err = q.look(ctx, slices.DeleteFunc(page, func(job *asynq.TaskInfo) bool { return !f.says(job) }))
		}
		if err != nil {
			yield(sheet{}, err)
			return false
		}
		s.jobs = slices.DeleteFunc(s.jobs, func(job Job) bool { return !f.Means(job) })
		if !yield(s, nil) {
			return false
		}
		s.mark.page++
	}
	return true
}

// pages reads a set from the end that comes first, from a mark on. What has moved from one
// page to the next meanwhile is told once. None is empty but where all of it was told.
func (q *Queues) pages(ctx context.Context, set kept, from Mark, size int) iter.Seq2[[]*asynq.TaskInfo, error] {
	return func(yield func([]*asynq.TaskInfo, error) bool) {
		page, step := from.page+1, 1
		if set.newest {
			n, err := q.rdb.ZCard(ctx, asynqdb.Key(from.queue, set.name)).Result()
			if err != nil {
				yield(nil, err)
				return
			}
			page, step = (int(n)+size-1)/size-from.page, -1
		}
		told := map[string]bool{} // of the page before
		for ; page >= 1; page += step {
			jobs, err := set.list(from.queue, asynq.Page(page), asynq.PageSize(size))
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
			if len(jobs) == 0 && !set.newest {
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
			if !yield(slices.DeleteFunc(jobs, func(job *asynq.TaskInfo) bool { return before[job.ID] }), nil) || !set.newest && n < size {
				return
			}
		}
	}
}
