package inspect

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/history"
	"github.com/headgate/headgate/scheduler/lanes"
)

// Status is how far all work is.
type Status struct {
	At      time.Time         `json:"at"` // by Redis's clock
	Queues  []Queue           `json:"queues"`
	Limits  []Limit           `json:"-"`
	Workers []history.Process `json:"workers"`
}

// Queue is how far a queue is.
type Queue struct {
	Queue  string `json:"queue"`
	Paused bool   `json:"paused"`
	Counts Counts `json:"counts"`
	Tasks  []Task `json:"tasks"`
}

// Task is how far the jobs of one type are.
type Task struct {
	Type      string    `json:"type"`
	Counts    Counts    `json:"counts"`
	Estimated bool      `json:"estimated"` // whether Counts are: Done and Failed never are
	Rate      float64   `json:"done_a_second"`
	End       time.Time `json:"end,omitzero"`        // zero if nobody knows, or nothing is left
	EndAbout  bool      `json:"end_about,omitempty"` // whether End is an estimate
}

// Counts is how many jobs there are, by state.
type Counts struct {
	Pending   int `json:"pending"`
	Waiting   int `json:"waiting"`
	Retry     int `json:"retry"`
	Scheduled int `json:"scheduled"`
	Running   int `json:"running"`
	Archived  int `json:"archived"`
	Done      int `json:"done"`
	Failed    int `json:"failed"`
}

// Left is how many are still to be done.
func (c Counts) Left() int { return c.Pending + c.Waiting + c.Retry + c.Scheduled + c.Running }

// How many jobs of one state in a queue are looked at: so many, a few at a time,
// spread over all.
const (
	sampled    = 200
	samplePage = 20
)

type census struct {
	*Queues
	queue    string
	tasks    map[string]*Task
	lasts    map[string]lanes.Expected // of each type, when the last of those that wait would run
	forecast *lanes.Forecast
}

// Status counts all jobs.
func (q *Queues) Status(ctx context.Context) (Status, error) {
	names, err := q.Names(ctx, "")
	if err != nil {
		return Status{}, err
	}
	past, err := q.past(ctx)
	if err != nil {
		return Status{}, err
	}
	forecast, err := q.Forecast(ctx, lanes.ForecastOptions{})
	if err != nil {
		return Status{}, err
	}
	s := Status{At: past.now, Queues: []Queue{}}
	for _, name := range names {
		c := census{q, name, map[string]*Task{}, map[string]lanes.Expected{}, forecast}
		of, err := c.count(ctx)
		if errors.Is(err, asynq.ErrQueueNotFound) {
			continue
		}
		if err != nil {
			return s, err
		}
		past.fill(name, c.task)
		c.ends(s.At)
		for _, t := range slices.Sorted(maps.Keys(c.tasks)) {
			of.Tasks = append(of.Tasks, *c.tasks[t])
			of.Counts.Done += c.tasks[t].Counts.Done
			of.Counts.Failed += c.tasks[t].Counts.Failed
		}
		s.Queues = append(s.Queues, of)
	}
	if s.Limits, err = q.limits(ctx, forecast, past); err != nil {
		return s, err
	}
	s.Workers, err = history.Processes(ctx, q.rdb, q.scope)
	return s, err
}

func (c *census) task(name string) *Task {
	if c.tasks[name] == nil {
		c.tasks[name] = &Task{Type: name}
	}
	return c.tasks[name]
}

type list func(queue string, opts ...asynq.ListOption) ([]*asynq.TaskInfo, error)

func (c *census) count(ctx context.Context) (Queue, error) {
	info, err := c.Inspector.GetQueueInfo(c.queue)
	if err != nil {
		return Queue{}, err
	}
	of := Queue{Queue: c.queue, Paused: info.Paused, Tasks: []Task{}, Counts: Counts{
		Pending: info.Pending, Scheduled: info.Scheduled, Running: info.Active, Archived: info.Archived,
	}}
	for _, state := range []struct {
		list  list
		size  int
		count func(*Counts) *int
	}{
		{c.Inspector.ListPendingTasks, info.Pending, func(n *Counts) *int { return &n.Pending }},
		{c.Inspector.ListScheduledTasks, info.Scheduled, func(n *Counts) *int { return &n.Scheduled }},
		{c.Inspector.ListActiveTasks, info.Active, func(n *Counts) *int { return &n.Running }},
		{c.Inspector.ListArchivedTasks, info.Archived, func(n *Counts) *int { return &n.Archived }},
	} {
		jobs, err := c.sample(state.list, state.size)
		if err != nil {
			return of, err
		}
		for _, job := range jobs {
			*state.count(&c.task(job.Type).Counts)++
		}
		c.scale(state.count, len(jobs), state.size)
	}
	return of, c.countRetry(ctx, info.Retry, &of.Counts)
}

func (c *census) countRetry(ctx context.Context, size int, whole *Counts) error {
	jobs, err := c.sample(c.Inspector.ListRetryTasks, size)
	if err != nil {
		return err
	}
	waiting := 0
	for some := range slices.Chunk(jobs, 100) {
		looked, err := c.look(ctx, some)
		if err != nil {
			return err
		}
		for _, job := range looked {
			if job.Place == nil {
				c.task(job.Type).Counts.Retry++
				continue
			}
			waiting++
			c.task(job.Type).Counts.Waiting++
			c.wait(job.Type, *job.Place, len(jobs) < size)
		}
	}
	if len(jobs) > 0 {
		whole.Waiting = waiting * max(size, len(jobs)) / len(jobs)
		whole.Retry = max(0, size-whole.Waiting)
	}
	c.scale(func(n *Counts) *int { return &n.Waiting }, len(jobs), size)
	c.scale(func(n *Counts) *int { return &n.Retry }, len(jobs), size)
	return nil
}

// wait notes when a job would run, or the last of its lane where not all are looked at.
func (c *census) wait(task string, p lanes.Place, some bool) {
	if some {
		p.Position = max(p.Position, p.Waiting)
	}
	p = c.forecast.Place(p)
	last, others := c.lasts[task]
	c.lasts[task] = lanes.Expected{In: max(last.In, p.In), Known: p.Known && (last.Known || !others), About: p.About || last.About}
}

func (c *census) sample(list list, size int) ([]*asynq.TaskInfo, error) {
	if size == 0 {
		return nil, nil
	}
	pages := (size + samplePage - 1) / samplePage
	step := max(1, pages*samplePage/sampled)
	var all []*asynq.TaskInfo
	for page := 1; page <= pages; page += step {
		jobs, err := list(c.queue, asynq.Page(page), asynq.PageSize(samplePage))
		if err != nil {
			return nil, err
		}
		all = append(all, jobs...)
	}
	return all, nil
}

func (c *census) scale(count func(*Counts) *int, of, all int) {
	if of == 0 || of >= all {
		return
	}
	for _, t := range c.tasks {
		n := count(&t.Counts)
		t.Estimated = t.Estimated || *n > 0
		*n = *n * all / of
	}
}

// ends fills in when the last job of each type would be done, where it can be
// told.
func (c *census) ends(now time.Time) {
	for name, t := range c.tasks {
		last, waits := c.lasts[name]
		if waits && !last.Known {
			continue
		}
		t.EndAbout = last.About
		others := t.Counts.Left() - t.Counts.Waiting
		if others > 0 && t.Rate == 0 {
			continue
		}
		if others > 0 {
			last.In = max(last.In, time.Duration(float64(others)/t.Rate*float64(time.Second)))
		}
		if t.Counts.Left() > 0 {
			t.End = now.Add(last.In)
		}
	}
}

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
