package inspect

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/stats"
	"github.com/headgate/headgate/scheduler/lanes"
)

// Status is how far all work is.
type Status struct {
	At      time.Time       `json:"at"` // by Redis's clock
	Queues  []Queue         `json:"queues"`
	Limits  []Limit         `json:"-"`
	Workers []stats.Process `json:"workers"`
	// Uncounted is how many pending jobs no end takes into account, since it is not known what
	// they will ask for.
	Uncounted int `json:"pending_not_counted,omitempty"`
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
	Estimated bool      `json:"estimated"` // whether Counts are; those since the scope began never are
	Rate      float64   `json:"done_a_second"`
	End       time.Time `json:"end,omitzero"`        // zero if nobody knows, or nothing is left
	EndAbout  bool      `json:"end_about,omitempty"` // whether End is an estimate
	// NotBefore is a lower bound of the end, zero if there is none: of jobs that hold permits of
	// a concurrency limit for an unknown time.
	NotBefore time.Time `json:"not_before,omitzero"`

	waits   bool           // whether any of them waits for permits, or is pending and will
	last    lanes.Expected // when the last of these would run
	pending int            // how many of these are pending
}

// Expected is when the last of the jobs would be done.
func (t Task) Expected(now time.Time) lanes.Expected {
	if !t.NotBefore.IsZero() {
		return lanes.Expected{AtLeast: true, In: t.NotBefore.Sub(now), About: t.EndAbout}
	}
	return lanes.Expected{Known: !t.End.IsZero(), In: t.End.Sub(now), About: t.EndAbout}
}

// Counts is how many jobs there are, by state.
type Counts struct {
	Pending   int `json:"pending"`
	Waiting   int `json:"waiting"`
	Retry     int `json:"retry"`
	Scheduled int `json:"scheduled"`
	Running   int `json:"running"`
	Archived  int `json:"archived"`
	Done      int `json:"done"`   // since the scope began, as the rest
	Failed    int `json:"failed"` // jobs that failed for good
	// FailedAttempts counts each failed attempt, of jobs that run again as well.
	FailedAttempts int `json:"failed_attempts"`
}

// Left is how many are still to be done.
func (c Counts) Left() int { return c.Pending + c.Waiting + c.Retry + c.Scheduled + c.Running }

// of is the count of a state that a job can be in, but for those that are completed.
func (c *Counts) of(state string) *int {
	return map[string]*int{
		"active": &c.Running, "pending": &c.Pending, "retry": &c.Retry, "scheduled": &c.Scheduled,
		"archived": &c.Archived, Waiting: &c.Waiting, Called: &c.Waiting,
	}[state]
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
	forecast, pending, err := q.foresee(ctx, lanes.ForecastOptions{})
	if err != nil {
		return Status{}, err
	}
	s := Status{At: past.now, Queues: []Queue{}, Uncounted: pending.Uncounted}
	for _, name := range names {
		c := census{map[string]*Task{}, forecast}
		of, err := q.count(ctx, name, &c)
		if errors.Is(err, asynq.ErrQueueNotFound) {
			continue
		}
		if err != nil {
			return s, err
		}
		past.fill(name, c.task)
		for name, t := range c.tasks {
			if last, jobs := pending.Last(forecast, stats.Task{Queue: of.Queue, Type: name}); jobs > 0 {
				t.pending = min(jobs, t.Counts.Pending)
				t.note(last)
			}
		}
		c.ends(s.At)
		for _, t := range slices.Sorted(maps.Keys(c.tasks)) {
			of.Tasks = append(of.Tasks, *c.tasks[t])
			of.Counts.Done += c.tasks[t].Counts.Done
			of.Counts.Failed += c.tasks[t].Counts.Failed
			of.Counts.FailedAttempts += c.tasks[t].Counts.FailedAttempts
		}
		s.Queues = append(s.Queues, of)
	}
	if s.Limits, err = q.limits(ctx, forecast, past); err != nil {
		return s, err
	}
	s.Workers, err = stats.Processes(ctx, q.rdb, q.scope)
	return s, err
}

// How many jobs of one set in a queue are looked at: so many, a few at a time,
// spread over all.
const (
	sampled    = 200
	samplePage = 20
)

// census is what is known of the jobs of one queue, by type.
type census struct {
	tasks    map[string]*Task
	forecast *lanes.Forecast
}

func (c *census) task(name string) *Task {
	if c.tasks[name] == nil {
		c.tasks[name] = &Task{Type: name}
	}
	return c.tasks[name]
}

// count counts the jobs of a queue: of each set as asynq does, and by type as those of it
// that are looked at.
func (q *Queues) count(ctx context.Context, queue string, c *census) (Queue, error) {
	info, err := q.Inspector.GetQueueInfo(queue)
	if err != nil {
		return Queue{}, err
	}
	of := Queue{Queue: queue, Paused: info.Paused, Tasks: []Task{}}
	for _, set := range q.sets() {
		size := QueueInfo{QueueInfo: info}.In(set.name)
		if set.name == "completed" || size == 0 {
			continue
		}
		jobs, err := q.sample(ctx, queue, set, size)
		if err != nil {
			return of, err
		}
		waiting := c.add(jobs, size)
		*of.Counts.of(set.name) += max(0, size-waiting)
		of.Counts.Waiting += waiting
	}
	return of, nil
}

// sample is some of the jobs of a set, or all. Those in retry are looked at closely: they
// may wait for permits.
func (q *Queues) sample(ctx context.Context, queue string, set kept, size int) (jobs []Job, err error) {
	pages := (size + samplePage - 1) / samplePage
	step := max(1, pages*samplePage/sampled)
	for page := 1; page <= pages; page += step {
		infos, err := set.list(queue, asynq.Page(page), asynq.PageSize(samplePage))
		if err != nil {
			return nil, err
		}
		for _, info := range infos {
			jobs = append(jobs, Job{TaskInfo: info, State: set.name})
		}
	}
	if set.name != "retry" {
		return jobs, nil
	}
	for some := range slices.Chunk(jobs, pageSize) {
		if err := q.placed(ctx, some); err != nil {
			return nil, err
		}
	}
	return jobs, nil
}

// add counts so many jobs as some of them, by type, and says how many of all wait.
func (c *census) add(some []Job, all int) (waiting int) {
	type kind struct{ task, state string }
	found := map[kind]int{}
	all = max(all, len(some))
	for _, job := range some {
		found[kind{job.Type, job.State}]++
		if job.Place != nil {
			waiting++
			c.wait(job.Type, *job.Place, len(some) < all)
		}
	}
	for of, n := range found {
		t := c.task(of.task)
		*t.Counts.of(of.state) += n * all / len(some)
		t.Estimated = t.Estimated || len(some) < all
	}
	return waiting * all / max(1, len(some))
}

// wait notes when a job would run, or the last of its lane where not all are looked at.
func (c *census) wait(task string, p lanes.Place, some bool) {
	if some {
		p.Position = max(p.Position, p.Waiting)
	}
	p = c.forecast.Place(p)
	c.task(task).note(lanes.Expected{In: p.In, Known: p.Known, About: p.About, AtLeast: p.AtLeast})
}

// note notes when some of its jobs would run.
func (t *Task) note(e lanes.Expected) {
	if t.waits {
		e = e.OrLater(t.last)
	}
	t.waits, t.last = true, e
}

// ends fills in when the last job of each type would be done, where it can be
// told.
func (c *census) ends(now time.Time) {
	for _, t := range c.tasks {
		if t.waits && !t.last.Known {
			if t.last.AtLeast && t.last.In > 0 {
				t.NotBefore = now.Add(t.last.In)
			}
			continue
		}
		t.EndAbout = t.last.About
		in := t.last.In
		others := t.Counts.Left() - t.Counts.Waiting - t.pending
		if others > 0 && t.Rate == 0 {
			continue
		}
		if others > 0 {
			in = max(in, time.Duration(float64(others)/t.Rate*float64(time.Second)))
		}
		if t.Counts.Left() > 0 {
			t.End = now.Add(in)
		}
	}
}

// past is what has become of jobs since the scope began, and what was within recently.
type past struct {
	now    time.Time // by Redis's clock
	totals map[stats.Task]stats.Counts
	done   map[stats.Task]int64     // within recently
	limits map[string]stats.Limited // what was decided
}

func (q *Queues) past(ctx context.Context) (past, error) {
	totals, err := stats.Totals(ctx, q.rdb, q.scope)
	if err != nil {
		return past{}, err
	}
	now, err := q.rdb.Time(ctx).Result() // the summaries go by Redis's clock
	if err != nil {
		return past{}, err
	}
	summaries, err := stats.Read(ctx, q.rdb, q.scope, stats.StreamID(now.Add(-Recent)))
	p := past{now: now, totals: totals}
	p.limits, p.done = Lately(summaries, now)
	return p, err
}

func (p past) fill(queue string, task func(name string) *Task) {
	for t, counts := range p.totals {
		if t.Queue == queue {
			c := &task(t.Type).Counts
			c.Done, c.Failed, c.FailedAttempts = int(counts[stats.Done]), int(counts.FailedJobs()), int(counts.FailedAttempts())
		}
	}
	for t, n := range p.done {
		if t.Queue == queue {
			task(t.Type).Rate = aSecond(n)
		}
	}
}

// limits is how all limits stand, by name.
func (q *Queues) limits(ctx context.Context, forecast *lanes.Forecast, past past) ([]Limit, error) {
	k := Known{Now: past.now, Forecast: forecast, Lately: past.limits}
	survey, err := stats.ReadSurvey(ctx, q.rdb, q.scope)
	if err != nil {
		return nil, err
	}
	if survey != nil {
		k.Wanted = survey.Limits
	}
	if err := k.ReadLimits(ctx, q.Limiter); err != nil {
		return nil, err
	}
	all, err := k.Read(ctx, q.Limiter, math.MaxInt)
	slices.SortFunc(all, func(a, b Limit) int { return strings.Compare(a.Name, b.Name) })
	return all, err
}
