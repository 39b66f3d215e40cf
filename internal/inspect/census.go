package inspect

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/history"
	"github.com/headgate/headgate/scheduler/lanes"
	"github.com/headgate/headgate/throttle"
)

// How many jobs of one state in a queue are looked at: so many, a few at a time,
// spread over all.
const (
	sampled    = 200
	samplePage = 20
)

type census struct {
	*Queues
	queue string
	tasks map[string]*Task
	waits map[string]*waits // by type

	forecast *lanes.Forecast
}

type waits struct {
	last    time.Duration // when the last of those looked at would run
	unknown bool          // whether nobody knows that of one
	about   bool          // whether that of one is an estimate
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
		c := census{q, name, map[string]*Task{}, map[string]*waits{}, forecast}
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
		ids := make([]throttle.JobID, len(some))
		for i, job := range some {
			ids[i] = throttle.JobID{Queue: c.queue, ID: job.ID}
		}
		places, err := c.Limiter.Places(ctx, ids...)
		if err != nil {
			return err
		}
		for i, job := range some {
			place, waits := places[ids[i]]
			if !waits {
				c.task(job.Type).Counts.Retry++
				continue
			}
			waiting++
			c.task(job.Type).Counts.Waiting++
			c.wait(job.Type, place, len(jobs) < size)
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
	w := c.waits[task]
	if w == nil {
		w = &waits{}
		c.waits[task] = w
	}
	if some {
		p.Position = max(p.Position, p.Waiting)
	}
	p = c.forecast.Place(p)
	w.unknown, w.about = w.unknown || !p.Known, w.about || p.About
	w.last = max(w.last, p.In)
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
		var last time.Duration
		if w := c.waits[name]; w != nil {
			if w.unknown {
				continue
			}
			last, t.EndAbout = w.last, w.about
		}
		others := t.Counts.Left() - t.Counts.Waiting
		if others > 0 && t.Rate == 0 {
			continue
		}
		if others > 0 {
			last = max(last, time.Duration(float64(others)/t.Rate*float64(time.Second)))
		}
		if t.Counts.Left() > 0 {
			t.End = now.Add(last)
		}
	}
}
