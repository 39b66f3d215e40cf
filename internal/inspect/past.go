package inspect

import (
	"context"
	"time"

	"github.com/headgate/headgate/internal/history"
)

// past is what has become of jobs: since the scope began, and a second ago.
type past struct {
	totals map[history.Task]history.Counts
	recent map[history.Task]history.Counts // within recently
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
	p := past{totals, map[history.Task]history.Counts{}}
	for _, s := range summaries {
		for _, ended := range s.Tasks {
			task := history.Task{Queue: ended.Queue, Type: ended.Type}
			counts := p.recent[task]
			for end, n := range ended.Ends {
				counts[end] += n
			}
			p.recent[task] = counts
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
