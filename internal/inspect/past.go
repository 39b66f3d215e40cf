package inspect

import (
	"context"
	"iter"
	"slices"
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

func (q *Queues) past(ctx context.Context) (past, error) {
	totals, err := history.Totals(ctx, q.rdb, q.scope)
	if err != nil {
		return past{}, err
	}
	now, err := q.rdb.Time(ctx).Result() // the summaries go by Redis's clock
	if err != nil {
		return past{}, err
	}
	summaries, err := history.Read(ctx, q.rdb, q.scope, history.StreamID(now.Add(-Recent)))
	p := past{now, totals, map[history.Task]history.Counts{}, Lately(summaries, now)}
	for s := range lately(summaries, now) {
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

// Recent is how far back the summaries reach that rates are made of, recently the whole
// seconds among them: a limit of one permit in 2 s would be at 0 and 1 in turn otherwise.
const (
	Recent   = recently + 2*time.Second
	recently = 10 * time.Second
)

// lately are those of the last whole seconds. The very last may not be told yet and is left
// out, as is the one that is underway.
func lately(summaries []history.Summary, now time.Time) iter.Seq[history.Summary] {
	end := now.Truncate(time.Second).Add(-time.Second)
	return func(yield func(history.Summary) bool) {
		for _, s := range summaries {
			if s.At.Before(end) && !s.At.Before(end.Add(-recently)) && !yield(s) {
				return
			}
		}
	}
}

// Lately is what was decided of each limit within ten seconds.
func Lately(summaries []history.Summary, now time.Time) map[string]history.Limited {
	sums := map[string]history.Limited{}
	for s := range lately(summaries, now) {
		for name, of := range s.Limits {
			sums[name] = sums[name].Plus(of)
		}
	}
	return sums
}

// aSecond is how many a second so many of lately are.
func aSecond(n int64) float64 { return float64(n) / recently.Seconds() }

func (p past) fill(queue string, task func(name string) *Task) {
	for t, counts := range p.totals {
		if t.Queue == queue {
			c := &task(t.Type).Counts
			c.Done, c.Failed = int(counts[history.Done]), int(counts[history.Failed]+counts[history.Archived])
		}
	}
	for t, counts := range p.recent {
		if t.Queue == queue {
			task(t.Type).Rate = aSecond(counts[history.Done])
		}
	}
}

// steps are those that a time is told in: the first that makes few slices of it.
var steps = []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour}

// maxSlices is how many slices people read in one table.
const maxSlices = 30

// Since is what became of jobs in a time up to now, in some thirty slices at most.
func (q *Queues) Since(ctx context.Context, past time.Duration) (history.Past, error) {
	step := steps[len(steps)-1]
	for _, s := range slices.Backward(steps) {
		if past/s <= maxSlices {
			step = s
		}
	}
	now, err := q.rdb.Time(ctx).Result()
	if err != nil {
		return history.Past{}, err
	}
	return history.ReadPast(ctx, q.rdb, q.scope, now.Add(-past), now, step)
}
