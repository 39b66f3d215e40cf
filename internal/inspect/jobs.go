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
	"github.com/headgate/headgate/internal/shard"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// States of jobs that asynq does not have. To asynq, a waiting job is in retry, and a granted job
// is in retry or pending.
const (
	Waiting = "waiting"
	Granted = "granted"
)

// States are all states of jobs.
var States = []string{"active", Granted, Waiting, "pending", "retry", "scheduled", "archived", "completed"}

// Job is asynq's TaskInfo with a state that also tells waiting and granted jobs from others.
type Job struct {
	*asynq.TaskInfo
	State string // one of States
	// Since is the time at which the job entered its state. It is zero if unknown, as for scheduled
	// jobs.
	Since    time.Time
	Position *waitdb.Position // nil if the job neither waits nor is granted
}

// JobID returns the job's queue and ID.
func (j Job) JobID() throttle.JobID { return throttle.JobID{Queue: j.Queue, ID: j.ID} }

// FindByID returns the jobs with an ID in all queues, or only in the given queue.
func (q *Queues) FindByID(ctx context.Context, id, queue string) (jobs []Job, err error) {
	names, err := q.Names(ctx, queue)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		job, err := q.Job(ctx, throttle.JobID{Queue: name, ID: id})
		if err == nil {
			jobs = append(jobs, job)
		} else if !IsGone(err) {
			return nil, err
		}
	}
	return jobs, nil
}

// IsGone reports whether an error means that the job or its queue does not exist.
func IsGone(err error) bool {
	return errors.Is(err, asynq.ErrTaskNotFound) || errors.Is(err, asynq.ErrQueueNotFound)
}

// Job reads one job. It returns asynq.ErrTaskNotFound or asynq.ErrQueueNotFound if there is none.
func (q *Queues) Job(ctx context.Context, id throttle.JobID) (Job, error) {
	info, err := q.Inspector.GetTaskInfo(id.Queue, id.ID)
	if err != nil {
		return Job{}, err
	}
	jobs, err := q.withStates(ctx, []*asynq.TaskInfo{info})
	if err != nil {
		return Job{}, err
	}
	return jobs[0], nil
}

// withStates adds the limiter's states, positions and Since to jobs of one queue and one asynq
// state.
func (q *Queues) withStates(ctx context.Context, infos []*asynq.TaskInfo) ([]Job, error) {
	if len(infos) == 0 {
		return nil, nil
	}
	jobs, ids, jobIDs := make([]Job, len(infos)), make([]string, len(infos)), make([]throttle.JobID, len(infos))
	since := make([]time.Time, len(infos))
	for i, info := range infos {
		info.LastErr = asynqdb.PlainError(info.LastErr)
		jobs[i] = Job{TaskInfo: info, State: info.State.String()}
		ids[i], jobIDs[i] = info.ID, jobs[i].JobID()
		if since[i] = info.CompletedAt; info.State == asynq.TaskStateRetry {
			since[i] = info.LastFailedAt
		}
	}
	queue, state := infos[0].Queue, infos[0].State
	var err error
	switch state {
	case asynq.TaskStatePending, asynq.TaskStateArchived:
		since, err = q.DB.Since(ctx, queue, state, ids...)
	case asynq.TaskStateActive:
		since, err = q.startedAt(jobIDs)
	}
	var positions map[throttle.JobID]waitdb.Position
	if err == nil && (state == asynq.TaskStatePending || state == asynq.TaskStateRetry || state == asynq.TaskStateActive) {
		positions, err = q.limiterOf(queue).Positions(ctx, jobIDs...)
	}
	var fetched []bool
	if err == nil && state == asynq.TaskStateActive {
		fetched, err = q.DB.JustTaken(ctx, queue, ids...)
	}
	if err != nil {
		return nil, err
	}
	for i := range jobs {
		job := &jobs[i]
		job.Since = since[i]
		if fetched != nil && fetched[i] {
			job.State = "pending"
		}
		if position, waits := positions[jobIDs[i]]; waits {
			job.State, job.Position, job.Since = Waiting, &position, position.Since
			if position.Granted {
				job.State = Granted
			}
		}
	}
	return jobs, nil
}

// startedAt returns the start times of running jobs, from asynq's list of its servers' jobs. A time
// is zero if no server lists the job.
func (q *Queues) startedAt(ids []throttle.JobID) ([]time.Time, error) {
	servers, err := q.Inspector.Servers()
	started := make([]time.Time, len(ids))
	for _, server := range servers {
		for _, w := range server.ActiveWorkers {
			if i := slices.Index(ids, throttle.JobID{Queue: w.Queue, ID: w.TaskID}); i >= 0 {
				started[i] = w.Started
			}
		}
	}
	return started, err
}

// AddEstimates replaces the estimates in the positions of waiting jobs with those of the forecast.
func (q *Queues) AddEstimates(ctx context.Context, jobs []Job) (err error) {
	forecasts := map[shard.Shard]*forecast.Forecast{}
	for i := 0; i < len(jobs) && err == nil; i++ {
		part, position := q.Sharded.ShardNamed(jobs[i].Queue), jobs[i].Position
		if position != nil && forecasts[part] == nil {
			forecasts[part], err = q.In(part).Forecast(ctx, forecast.Options{})
		}
		if position != nil && err == nil {
			*position = forecasts[part].Position(*position)
		}
	}
	return err
}

// Filter selects jobs. The zero value selects all.
type Filter struct {
	States     []string // if empty, all States
	Queue      string
	Type       string
	Limit, Key string // if set, only waiting and granted jobs match
	Batch      string // the job's batch
	Payload    string // a part of the payload
	Error      string // a part of the error text
	// OlderThan selects jobs that have been in their state for longer, without those whose Since is
	// unknown. 0 selects all jobs.
	OlderThan time.Duration

	taken bool // whether the state active also selects jobs that a worker has, and that have no permits yet
}

// otherWords are words that people use for states.
var otherWords = map[string]string{"failed": "archived", "dead": "archived", "done": "completed", "finished": "completed", "running": "active"}

// Validate returns a *throttle.FieldError for the first invalid field. It also fails if there is no
// such limit.
func (f Filter) Validate(ctx context.Context, q *Queues) error {
	for _, state := range f.States {
		switch {
		case !slices.Contains(States, state):
			want := "want " + strings.Join(States, ", ")
			if meant, ok := otherWords[state]; ok {
				want += "; did you mean " + meant + "?"
			}
			return &throttle.FieldError{Field: "state", Value: state, Want: want}
		case f.Limit+f.Key != "" && state != Waiting && state != Granted:
			return &throttle.FieldError{Field: "state", Value: state, Want: "want waiting or granted: a limit and a key select no other jobs"}
		case f.OlderThan != 0 && state == "scheduled":
			return &throttle.FieldError{Field: "older", Value: duration.Exact(f.OlderThan), Want: "cannot be combined with the state scheduled, whose start is unknown"}
		}
	}
	if f.OlderThan < 0 {
		return &throttle.FieldError{Field: "older", Value: duration.Exact(f.OlderThan), Want: "want a time up to now, such as 24h"}
	}
	if f.Limit == "" {
		return nil
	}
	_, err := q.Definition(ctx, f.Limit)
	return err
}

func (f Filter) matchesInfo(job *asynq.TaskInfo) bool {
	return (f.Type == "" || job.Type == f.Type) &&
		(f.Batch == "" || asynqdb.JobHeader(throttle.JobID{Queue: job.Queue, ID: job.ID}, job.Headers, asynqdb.HeaderBatch) == f.Batch) &&
		strings.Contains(string(job.Payload), f.Payload) && strings.Contains(job.LastErr, f.Error)
}

// Matches reports whether the filter selects a job. A filter with a queue also selects the jobs of
// the queue's shards.
func (f Filter) Matches(job Job) bool {
	states := []string{job.State}
	if f.taken && job.TaskInfo.State == asynq.TaskStateActive {
		states = append(states, "active")
	}
	return f.matchesInfo(job.TaskInfo) && f.matchesState(states...) && (f.Queue == "" || job.Queue == f.Queue || strings.HasPrefix(job.Queue, f.Queue+".")) && f.matchesMeter(job) &&
		(f.OlderThan == 0 || !job.Since.IsZero() && time.Since(job.Since) > f.OlderThan)
}

// matchesState reports whether a job in one of the states can match.
func (f Filter) matchesState(states ...string) bool {
	return slices.ContainsFunc(states, func(state string) bool {
		return (len(f.States) == 0 || slices.Contains(f.States, state)) &&
			(f.Limit+f.Key == "" || state == Waiting || state == Granted)
	})
}

func (f Filter) matchesMeter(job Job) bool {
	return f.Limit+f.Key == "" || job.Position != nil && slices.ContainsFunc(job.Position.Lane.Meters, func(meter string) bool {
		limit, key, _ := strings.Cut(meter, "|")
		return (f.Limit == "" || f.Limit == limit) && (f.Key == "" || f.Key == key)
	})
}

// pageSize is the number of jobs in one read. Redis executes nothing else during a read.
const pageSize = 100

// taskSet is a part of one of asynq's lists and sets of jobs: its jobs in some states.
type taskSet struct {
	name        string // of the part
	key         string // of the whole list or set
	list        func(queue string, opts ...asynq.ListOption) ([]*asynq.TaskInfo, error)
	states      []string
	newestFirst bool // List returns the newest jobs first; asynq lists them last
}

// retrying is the part of the set retry that can have far fewer jobs than the set.
const retrying = "retry"

// taskSets returns the parts in the order of List: first the jobs that may need a person.
func (q *Queues) taskSets() []taskSet {
	i := q.Inspector
	return []taskSet{
		{"archived", asynqdb.Archived, i.ListArchivedTasks, []string{"archived"}, true},
		{retrying, asynqdb.Retry, i.ListRetryTasks, []string{"retry"}, false},
		{Waiting, asynqdb.Retry, i.ListRetryTasks, []string{Waiting, Granted}, false},
		{"pending", asynqdb.Pending, i.ListPendingTasks, []string{"pending", Waiting, Granted}, false},
		{"active", asynqdb.Active, i.ListActiveTasks, []string{"active", "pending", Waiting, Granted}, false},
		{"scheduled", asynqdb.Scheduled, i.ListScheduledTasks, []string{"scheduled"}, false},
		{"completed", asynqdb.Completed, i.ListCompletedTasks, []string{"completed"}, true},
	}
}

// Cursor is a position in the list of all jobs. The zero value is the beginning.
type Cursor struct {
	queue, set string
	number     int // of the page in the set, from 0
}

// String returns a text for ParseCursor.
func (c Cursor) String() string { return fmt.Sprintf("%d %s %s", c.number, c.set, c.queue) }

// ParseCursor parses the text of a cursor. For an invalid text it returns the zero value.
func ParseCursor(text string) Cursor {
	parts := strings.SplitN(text, " ", 3)
	page, err := strconv.Atoi(parts[0])
	if err != nil || page < 0 || page > 1_000_000 || len(parts) < 3 || parts[2] == "" {
		return Cursor{}
	}
	return Cursor{queue: parts[2], set: parts[1], number: page}
}

// List returns the jobs of a filter: those of all queues that are archived, then those that failed and
// are retried, then waiting ones, and then the others. Archived and completed jobs come from
// the newest on, others from the next to run. It can miss a job whose state changes meanwhile,
// or return it twice. It stops after the first error.
func (q *Queues) List(ctx context.Context, f Filter) iter.Seq2[Job, error] {
	return func(yield func(Job, error) bool) {
		for p, err := range q.pages(ctx, f, Cursor{}, pageSize) {
			if err != nil {
				yield(Job{}, err)
				return
			}
			for _, job := range p.jobs {
				if !yield(job, nil) {
					return
				}
			}
		}
	}
}

// ListPage returns jobs of List from a cursor on. It reads size jobs at a time, until at least size
// jobs match or it has read maxRead jobs. At the end of the list, next is zero.
func (q *Queues) ListPage(ctx context.Context, f Filter, from Cursor, size, maxRead int) (jobs []Job, next Cursor, err error) {
	read := 0
	for p, err := range q.pages(ctx, f, from, size) {
		if err != nil {
			return nil, Cursor{}, err
		}
		if len(jobs) >= size || read >= maxRead {
			return jobs, p.Cursor, nil
		}
		jobs, read = append(jobs, p.jobs...), read+p.read
	}
	return jobs, Cursor{}, nil
}

type page struct {
	Cursor
	read int   // number of jobs on the page
	jobs []Job // the jobs of the page that match the filter
}

// pages reads the pages that can have jobs of a filter, from a cursor on.
func (q *Queues) pages(ctx context.Context, f Filter, from Cursor, size int) iter.Seq2[page, error] {
	return func(yield func(page, error) bool) {
		names, err := q.Names(ctx, f.Queue)
		if err != nil {
			yield(page{}, err)
			return
		}
		for _, set := range q.taskSets() {
			for _, name := range names {
				at := Cursor{queue: name, set: set.name}
				switch {
				case from == Cursor{}:
				case name == from.queue && set.name == from.set:
					at, from = from, Cursor{}
				default:
					continue
				}
				for ; f.matchesState(set.states...); at.number++ {
					p, err := q.readPage(ctx, f, set, at, size)
					if err == nil && p.read == 0 {
						break
					}
					at = p.Cursor
					if !yield(p, err) || err != nil {
						return
					}
				}
			}
		}
	}
}

// readPage reads one page of a set, or of the set retry a later one. After the last page, it returns a page whose read is 0. asynq's
// page 1 has the oldest jobs.
func (q *Queues) readPage(ctx context.Context, f Filter, set taskSet, at Cursor, size int) (page, error) {
	if set.name == retrying {
		skipped, found, more, err := q.skipWaiting(ctx, at, size)
		if err != nil || !more {
			return page{}, err
		}
		if at = skipped; !found {
			return page{Cursor: at, read: 1}, nil // of far less work than the jobs of a page
		}
	}
	number := at.number + 1
	if set.newestFirst {
		n, err := q.rdb.ZCard(ctx, asynqdb.Key(at.queue, set.key)).Result()
		if number = (int(n)+size-1)/size - at.number; err != nil || number < 1 {
			return page{}, err
		}
	}
	infos, err := q.readPieces(ctx, set, at.queue, number, size)
	if IsGone(err) {
		return page{}, nil
	}
	if err != nil {
		return page{}, err
	}
	if err := q.nameLost(ctx, set.key, at.queue, (number-1)*size, size, infos); err != nil {
		return page{}, err
	}
	if set.newestFirst {
		slices.Reverse(infos)
	}
	p := page{Cursor: at, read: len(infos)}
	p.jobs, err = q.withStates(ctx, slices.DeleteFunc(infos, func(job *asynq.TaskInfo) bool { return !f.matchesInfo(job) }))
	p.jobs = slices.DeleteFunc(p.jobs, func(job Job) bool { return !slices.Contains(set.states, job.State) || !f.Matches(job) })
	return p, err
}

// lookAhead is about the number of jobs whose records skipWaiting reads in one step.
const lookAhead = 500

// skipWaiting moves a cursor in the set retry to the first page, from the cursor's on, that has a job
// which does not wait for permits. Most pages of a backlog have none. If the next jobs all wait, found
// is false, and the cursor is at the last page of them. At the end of the set, more is false.
func (q *Queues) skipWaiting(ctx context.Context, at Cursor, size int) (_ Cursor, found, more bool, err error) {
	start, n := at.number*size, max(1, lookAhead/size)*size
	ids, err := q.rdb.ZRange(ctx, asynqdb.Key(at.queue, asynqdb.Retry), int64(start), int64(start+n-1)).Result()
	if err != nil || len(ids) == 0 {
		return at, false, false, err
	}
	jobs := make([]throttle.JobID, len(ids))
	for i, id := range ids {
		jobs[i] = throttle.JobID{Queue: at.queue, ID: id}
	}
	waits, err := q.In(q.Sharded.ShardNamed(at.queue)).Limiter.Known(ctx, jobs)
	i := slices.Index(waits, false)
	found = i >= 0
	if !found {
		i = len(ids) - 1
	}
	at.number += i / size
	return at, found, true, err
}

// readPieces reads a page of a set in pieces whose replies are not too large.
func (q *Queues) readPieces(ctx context.Context, set taskSet, queue string, number, size int) (infos []*asynq.TaskInfo, err error) {
	start := (number - 1) * size
	n, err := q.DB.PieceSize(ctx, queue, set.key, start, size)
	if err != nil {
		return nil, err
	}
	for at := start; at < start+size; at += n {
		piece, err := set.list(queue, asynq.Page(at/n+1), asynq.PageSize(n))
		infos = append(infos, piece...)
		err = cmp.Or(err, ctx.Err())
		if err != nil || len(piece) < n {
			return infos, err
		}
	}
	return infos, nil
}

// nameLost fills in the jobs whose hashes Redis has lost. asynq lists them without any field. infos
// is a page of the set from start on, in asynq's order.
func (q *Queues) nameLost(ctx context.Context, set, queue string, start, size int, infos []*asynq.TaskInfo) error {
	known := map[string]bool{}
	for _, info := range infos {
		known[info.ID] = true
	}
	if !known[""] {
		return nil
	}
	key, stop := asynqdb.Key(queue, set), start+size-1
	var ids []string
	var err error
	if set == asynqdb.Active || set == asynqdb.Pending {
		ids, err = q.rdb.LRange(ctx, key, int64(-stop-1), int64(-start-1)).Result()
		slices.Reverse(ids)
	} else {
		ids, err = q.rdb.ZRange(ctx, key, int64(start), int64(stop)).Result()
	}
	ids = slices.DeleteFunc(ids, func(id string) bool { return known[id] })
	for _, info := range infos {
		if info.ID == "" && len(ids) > 0 {
			info.ID, info.Queue, info.LastErr = ids[0], queue, "Redis has lost the data of this job"
			ids = ids[1:]
		}
	}
	return err
}
