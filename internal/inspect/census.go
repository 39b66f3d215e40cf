package inspect

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/throttle"
)

// How many jobs of one state in a queue are looked at: so many, a few at a time,
// spread over all.
const (
	sampled    = 200
	samplePage = 20
)

// census counts the jobs of a queue by type.
type census struct {
	*Queues
	queue string
	tasks map[string]*Task
	waits map[string]*waits // by type
}

// waits is what jobs of a type wait for.
type waits struct {
	meters  map[throttle.Need]bool
	last    time.Duration // when the last of those looked at would run
	unknown bool          // whether nobody knows that of one
	some    bool          // whether not all were looked at
}

// Status counts all jobs.
func (q *Queues) Status(ctx context.Context) (Status, error) {
	names, err := q.Names("")
	if err != nil {
		return Status{}, err
	}
	past, err := q.past(ctx)
	if err != nil {
		return Status{}, err
	}
	s := Status{At: time.Now(), Queues: []Queue{}}
	for _, name := range names {
		c := census{q, name, map[string]*Task{}, map[string]*waits{}}
		of, err := c.count(ctx)
		if errors.Is(err, asynq.ErrQueueNotFound) {
			continue
		}
		if err != nil {
			return s, err
		}
		past.fill(name, c.task)
		if err := c.ends(ctx, s.At); err != nil {
			return s, err
		}
		for _, t := range slices.Sorted(maps.Keys(c.tasks)) {
			of.Tasks = append(of.Tasks, *c.tasks[t])
			of.Counts.Done += c.tasks[t].Counts.Done
			of.Counts.Failed += c.tasks[t].Counts.Failed
		}
		s.Queues = append(s.Queues, of)
	}
	s.Limits, err = q.Limits(ctx)
	return s, err
}

func (c *census) task(name string) *Task {
	if c.tasks[name] == nil {
		c.tasks[name] = &Task{Type: name}
	}
	return c.tasks[name]
}

// list is asynq's way to list the jobs of a state.
type list func(queue string, opts ...asynq.ListOption) ([]*asynq.TaskInfo, error)

// count counts by state and type.
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

// countRetry tells apart those of asynq's retry set that wait for permits.
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

// wait notes what a job waits for.
func (c *census) wait(task string, p throttle.Place, some bool) {
	w := c.waits[task]
	if w == nil {
		w = &waits{meters: map[throttle.Need]bool{}}
		c.waits[task] = w
	}
	for _, meter := range p.Lane {
		w.meters[needOf(meter)] = true
	}
	w.some = w.some || some
	w.unknown = w.unknown || !p.Known
	w.last = max(w.last, p.In)
}

// needOf is a permit of a meter, limit|key.
func needOf(meter string) throttle.Need {
	limit, key, _ := strings.Cut(meter, "|")
	return throttle.Need{Limit: limit, Key: key}
}

// sample lists all jobs of a state, or some that are spread over them.
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

// scale takes what was counted among some for all.
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
func (c *census) ends(ctx context.Context, now time.Time) error {
	for name, t := range c.tasks {
		var last time.Duration
		if w := c.waits[name]; w != nil {
			if err := c.lastOf(ctx, w); err != nil {
				return err
			}
			if w.unknown {
				continue
			}
			last = w.last
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
	return nil
}

// lastOf asks the limiter when the last would run, if not all were looked at.
func (c *census) lastOf(ctx context.Context, w *waits) error {
	if !w.some {
		return nil
	}
	for some := range slices.Chunk(slices.Collect(maps.Keys(w.meters)), 100) {
		forecasts, err := c.Limiter.Forecast(ctx, some...)
		if err != nil {
			return err
		}
		for _, f := range forecasts {
			w.last = max(w.last, f.In)
		}
	}
	return nil
}
