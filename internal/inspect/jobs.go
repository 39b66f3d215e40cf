package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/duration"
	"github.com/headgate/headgate/internal/forecast"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/tasks"
	"github.com/headgate/headgate/throttle"
)

// The states that a job has beside asynq's. asynq takes one that waits for a permit for
// one that waits for its next attempt, or has it pending once more.
const (
	Waiting = "waiting"
	Granted = "granted"
)

// States are all states that a job can be in, in the order in which Jobs tells them.
var States = []string{"active", Granted, Waiting, "pending", "retry", "scheduled", "archived", "completed"}

// Job is a job with the state that it is really in.
type Job struct {
	*asynq.TaskInfo
	State string // one of States
	// Since is when it came into its state: zero where nobody knows, as of a
	// scheduled one. One in retry is so since it failed last.
	Since time.Time
	Place *waitdb.Position // of one that waits or is called
}

// JobID is which job it is.
func (j Job) JobID() throttle.JobID { return throttle.JobID{Queue: j.Queue, ID: j.ID} }

// Named lists the jobs of an id, in whatever queues, or in the one that is named.
// There is at least one.
func (q *Queues) FindByID(ctx context.Context, id, queue string) ([]Job, error) {
	jobs, err := q.FindAllByID(ctx, id, queue)
	if err == nil && len(jobs) == 0 {
		where := ""
		if queue != "" {
			where = " in queue " + queue
		}
		err = fmt.Errorf("there is no job %s%s: it never was, was deleted, or is done and had no retention", id, where)
	}
	return jobs, err
}

// Namesakes is Named where there may be none.
func (q *Queues) FindAllByID(ctx context.Context, id, queue string) (jobs []Job, err error) {
	names, err := q.Names(ctx, queue)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		job, err := q.Job(ctx, throttle.JobID{Queue: name, ID: id})
		switch {
		case err == nil:
			jobs = append(jobs, job)
		case !errors.Is(err, asynq.ErrTaskNotFound) && !errors.Is(err, asynq.ErrQueueNotFound):
			return nil, err
		}
	}
	return jobs, nil
}

// Job is one job. The error is asynq's if there is none.
func (q *Queues) Job(ctx context.Context, id throttle.JobID) (Job, error) {
	info, err := q.Inspector.GetTaskInfo(id.Queue, id.ID)
	if err != nil {
		return Job{}, err
	}
	jobs, err := q.look(ctx, []*asynq.TaskInfo{info})
	if err != nil {
		return Job{}, err
	}
	return jobs[0], nil
}

// look tells the real states of jobs of one queue, a hundred at most, in a round trip
// or two. asynq has all of them in the same state.
func (q *Queues) look(ctx context.Context, infos []*asynq.TaskInfo) ([]Job, error) {
	jobs := make([]Job, len(infos))
	for i, info := range infos {
		jobs[i] = Job{TaskInfo: info, State: info.State.String()}
		info.LastErr = asynqdb.PlainError(info.LastErr)
	}
	if len(jobs) == 0 {
		return nil, nil
	}
	var err error
	switch infos[0].State {
	case asynq.TaskStatePending:
		if err = q.placed(ctx, jobs); err == nil {
			err = since(ctx, jobs, q.DB.PendingSince)
		}
	case asynq.TaskStateRetry:
		err = q.placed(ctx, jobs)
	case asynq.TaskStateActive:
		err = q.startedAt(jobs)
	case asynq.TaskStateArchived:
		err = since(ctx, jobs, q.DB.ArchivedAt)
	}
	for i, job := range jobs {
		switch {
		case job.Place != nil:
			jobs[i].Since = job.Place.Since
		case job.State == "retry":
			jobs[i].Since = job.LastFailedAt
		case job.State == "completed":
			jobs[i].Since = job.CompletedAt
		}
	}
	return jobs, err
}

func (q *Queues) placed(ctx context.Context, jobs []Job) error {
	ids := make([]throttle.JobID, len(jobs))
	for i, job := range jobs {
		ids[i] = job.JobID()
	}
	places, err := q.Limiter.Positions(ctx, ids...)
	for i, id := range ids {
		if place, waits := places[id]; waits {
			jobs[i].State, jobs[i].Place = Waiting, &place
			if place.Granted {
				jobs[i].State = Granted
			}
		}
	}
	return err
}

// Expect has the places of jobs say when these run as the forecast of all that waits does.
func (q *Queues) AddEstimates(ctx context.Context, jobs []Job) error {
	var opts forecast.Options
	waits := false
	for _, job := range jobs {
		if job.Place != nil {
			waits, opts.Lane = true, job.Place.Lane.Name
		}
	}
	if !waits {
		return nil
	}
	forecast, err := q.Forecast(ctx, opts)
	if err != nil {
		return err
	}
	for _, job := range jobs {
		if job.Place != nil {
			*job.Place = forecast.Position(*job.Place)
		}
	}
	return nil
}

// since asks for what asynq keeps and does not tell.
func since(ctx context.Context, jobs []Job, ask func(ctx context.Context, queue string, ids ...string) ([]time.Time, error)) error {
	ids := make([]string, len(jobs))
	for i, job := range jobs {
		ids[i] = job.ID
	}
	times, err := ask(ctx, jobs[0].Queue, ids...)
	for i, at := range times {
		jobs[i].Since = at
	}
	return err
}

func (q *Queues) startedAt(jobs []Job) error {
	servers, err := q.Inspector.Servers()
	if err != nil {
		return err
	}
	for _, server := range servers {
		for _, w := range server.ActiveWorkers {
			i := slices.IndexFunc(jobs, func(job Job) bool { return job.ID == w.TaskID && job.Queue == w.Queue })
			if i >= 0 {
				jobs[i].Since = w.Started
			}
		}
	}
	return nil
}

// Filter says which jobs are meant. The zero value means all.
type Filter struct {
	States     []string // of States; any where there are none
	Queue      string
	Type       string
	Limit, Key string // those that wait for it, or are called
	Payload    string // a part of it
	Error      string // a part of it
	// Older is for how long they have been in their state at least. Those of which nobody
	// knows it are not meant.
	OlderThan time.Duration
}

// otherNames are the titles that the status has for states.
var otherNames = map[string]string{"failed": "archived", "done": "completed", "running": "active"}

// Check reports the first word of it that makes no sense, as a *throttle.FieldError, or that
// there is no such limit.
func (f Filter) Validate(ctx context.Context, limiter *waitdb.DB) error {
	for _, state := range f.States {
		want := ""
		switch {
		case !slices.Contains(States, state):
			want = "want " + strings.Join(States, ", ")
			if meant := otherNames[state]; meant != "" {
				want = "did you mean " + meant + "? " + want
			}
		case f.Limit+f.Key != "" && state != Waiting && state != Granted:
			want = "with a limit or a key want waiting or granted: no other job waits for a limit"
		case f.OlderThan != 0 && state == "scheduled":
			return &throttle.FieldError{Field: "older", Value: duration.Exact(f.OlderThan), Want: "want another state than scheduled: nobody knows since when those are"}
		}
		if want != "" {
			return &throttle.FieldError{Field: "state", Value: state, Want: want}
		}
	}
	if f.OlderThan < 0 {
		return &throttle.FieldError{Field: "older", Value: duration.Exact(f.OlderThan), Want: "want a time up to now, such as 24h"}
	}
	if f.Limit == "" {
		return nil
	}
	_, _, err := limiter.Internals().Key(ctx, f.Limit, "")
	return err
}

// says reports what can be told without a look at the place and the time.
func (f Filter) says(job *asynq.TaskInfo) bool {
	return (f.Type == "" || job.Type == f.Type) &&
		strings.Contains(string(job.Payload), f.Payload) && strings.Contains(job.LastErr, f.Error)
}

// Means reports whether a job is meant.
func (f Filter) Matches(job Job) bool {
	return f.says(job.TaskInfo) && f.wants(job.State) && (f.Queue == "" || job.Queue == f.Queue) && f.waits(job) &&
		(f.OlderThan == 0 || !job.Since.IsZero() && time.Since(job.Since) > f.OlderThan)
}

func (f Filter) wants(states ...string) bool {
	return slices.ContainsFunc(states, func(state string) bool {
		return (len(f.States) == 0 || slices.Contains(f.States, state)) &&
			(f.Limit == "" && f.Key == "" || state == Waiting || state == Granted)
	})
}

func (f Filter) waits(job Job) bool {
	if f.Limit == "" && f.Key == "" {
		return true
	}
	return job.Place != nil && slices.ContainsFunc(job.Place.Lane.Meters, func(meter string) bool {
		limit, key, _ := strings.Cut(meter, "|")
		return (f.Limit == "" || f.Limit == limit) && (f.Key == "" || f.Key == key)
	})
}

// pageSize is how many jobs are read at once: Redis does nothing else meanwhile, and
// payloads can be large.
const pageSize = 100

type kept struct {
	name   string
	list   func(queue string, opts ...asynq.ListOption) ([]*asynq.TaskInfo, error)
	states []string // in which its jobs can be
	newest bool     // comes last
}

func (q *Queues) sets() []kept {
	i := q.Inspector
	return []kept{
		{"active", i.ListActiveTasks, []string{"active"}, false},
		{"pending", i.ListPendingTasks, []string{"pending", Waiting, Granted}, false},
		{"retry", i.ListRetryTasks, []string{"retry", Waiting, Granted}, false},
		{"scheduled", i.ListScheduledTasks, []string{"scheduled"}, false},
		{"archived", i.ListArchivedTasks, []string{"archived"}, true},
		{"completed", i.ListCompletedTasks, []string{"completed"}, true},
	}
}

// CrawlJobs means the jobs of a crawl that wait for whatever reason.
func CrawlJobs(name string) Filter {
	return Filter{Type: tasks.TypeCrawlFetch, Payload: fmt.Sprintf(`"crawl":%q`, name), States: Archive.States}
}

// Jobs tells the jobs that are meant, queue by queue and in each set of asynq's by itself:
// those that are archived or completed from the newest on, the others from the next on.
// It holds a page of them at a time. Jobs that come or go meanwhile may be told or not. It
// ends with the first error.
func (q *Queues) List(ctx context.Context, f Filter) iter.Seq2[Job, error] {
	return func(yield func(Job, error) bool) {
		for s, err := range q.sheets(ctx, f, Cursor{}, pageSize) {
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
type Cursor struct {
	queue, set string
	page       int // the next of the set's, counted from 0
}

// String is read by ParseMark. It is empty at the beginning.
func (m Cursor) String() string {
	if m == (Cursor{}) {
		return ""
	}
	return fmt.Sprintf("%d %s %s", m.page, m.set, m.queue)
}

// ParseMark reads a mark. What is none is the beginning.
func ParseCursor(text string) Cursor {
	parts := strings.SplitN(text, " ", 3)
	page, err := strconv.Atoi(parts[0])
	if err != nil || page < 0 || page > 1_000_000 || len(parts) < 3 || parts[2] == "" {
		return Cursor{}
	}
	return Cursor{queue: parts[2], set: parts[1], page: page}
}

// Some is Jobs from a mark on: size jobs, or up to as many more, after a look at most jobs at
// most. Next is where to go on; the zero value where nothing is left.
func (q *Queues) ListPage(ctx context.Context, f Filter, from Cursor, size, most int) (jobs []Job, next Cursor, err error) {
	looked := 0
	for s, err := range q.sheets(ctx, f, from, size) {
		if err != nil {
			return nil, Cursor{}, err
		}
		if len(jobs) >= size || looked >= most {
			return jobs, s.mark, nil
		}
		jobs, looked = append(jobs, s.jobs...), looked+s.looked
	}
	return jobs, Cursor{}, nil
}

type sheet struct {
	mark   Cursor // its own
	looked int    // how many it has in all
	jobs   []Job
}

func (q *Queues) sheets(ctx context.Context, f Filter, from Cursor, size int) iter.Seq2[sheet, error] {
	return func(yield func(sheet, error) bool) {
		names, err := q.Names(ctx, f.Queue)
		if err != nil {
			yield(sheet{}, err)
			return
		}
		for _, name := range names {
			mark, sets := Cursor{queue: name}, q.sets()
			switch {
			case name < from.queue:
				continue
			case name == from.queue:
				mark = from
				sets = sets[max(0, slices.IndexFunc(sets, func(s kept) bool { return s.name == from.set })):]
			}
			for _, set := range sets {
				if set.name != mark.set {
					mark.set, mark.page = set.name, 0
				}
				if !f.wants(set.states...) {
					continue
				}
				for page, err := range q.pages(ctx, set, mark, size) {
					s := sheet{mark: mark, looked: len(page)}
					if err == nil {
						s.jobs, err = q.look(ctx, slices.DeleteFunc(page, func(job *asynq.TaskInfo) bool { return !f.says(job) }))
					}
					s.jobs = slices.DeleteFunc(s.jobs, func(job Job) bool { return !f.Matches(job) })
					if !yield(s, err) || err != nil {
						return
					}
					mark.page++
				}
			}
		}
	}
}

// pages reads a set from the end that comes first, from a mark on. What has moved from one
// page to the next meanwhile is told once. None is empty but where all of it was told.
func (q *Queues) pages(ctx context.Context, set kept, from Cursor, size int) iter.Seq2[[]*asynq.TaskInfo, error] {
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
			if err = cmp.Or(err, ctx.Err()); err != nil {
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
