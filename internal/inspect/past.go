package inspect

import (
	"context"
	"time"

	"github.com/headgate/headgate/internal/history"
)

// past is what has become of jobs since the scope began, and what was within recently.
type past struct {
	now    time.Time // by Redis's clock
	totals map[history.Task]history.Counts
	recent map[history.Task]history.Counts
	limits map[string]history.Limited // what was decided
}

// recently is the time over which a rate is taken.
const recently = 10 * time.Second

func (q *Queues) past(ctx context.Context) (past, error) {
	totals, err := history.Totals(ctx, q.rdb, q.scope)
	if err != nil {
		return past{}, err
	}
	now, err := q.rdb.Time(ctx).Result() // the summaries go by Redis's clock
	if err != nil {
		return past{}, err
	}
	summaries, err := history.Read(ctx, q.rdb, q.scope, history.StreamID(now.Add(-recently)))
	p := past{now, totals, map[history.Task]history.Counts{}, map[string]history.Limited{}}
	for _, s := range summaries {
		for _, ended := range s.Tasks {
			task := history.Task{Queue: ended.Queue, Type: ended.Type}
			counts := p.recent[task]
			for end, n := range ended.Ends {
				counts[end] += n
			}
			p.recent[task] = counts
		}
		for name, of := range s.Limits {
			sum := p.limits[name]
			sum.Allowed += of.Allowed
			sum.Denied += of.Denied
			p.limits[name] = sum
		}
	}
	return p, err
}

// fill adds the past of a queue to its tasks.
func (p past) fill(queue string, task func(name string) *Task) {
	for t, counts := range p.totals {
		if t.Queue == queue {
			c := &task(t.Type).Counts
			c.Done, c.Failed = int(counts[history.Done]), int(counts[history.Failed]+counts[history.Archived])
		}
	}
	for t, counts := range p.recent {
		if t.Queue == queue {
			task(t.Type).Rate = float64(counts[history.Done]) / recently.Seconds()
		}
	}
}
