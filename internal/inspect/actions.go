package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/throttle"
)

// Act is something that can be done to jobs.
type Action struct {
	Done   string   // what it has done, for the changelog
	States []string // the states of the jobs that it can be done to
	do     func(i *asynq.Inspector, queue, id string) error
	ends   bool // whether the jobs have no place any more
	not    map[string]string
}

// Check reports the first word of a filter by which no job can be meant that it can be done
// to: a *throttle.FieldError.
func (a *Action) Validate(f Filter) error {
	for _, state := range f.States {
		if not := a.Excludes(state); slices.Contains(States, state) && not != "" {
			return &throttle.FieldError{
				Field: "state", Value: state,
				Want: fmt.Sprintf("want %s; of a job that is %s: %s", strings.Join(a.States, ", "), state, not),
			}
		}
	}
	if not := a.Excludes(Waiting); f.Limit+f.Key != "" && not != "" {
		field, value := "limit", f.Limit
		if value == "" {
			field, value = "key", f.Key
		}
		return &throttle.FieldError{Field: field, Value: value, Want: "want another filter: of a job that waits: " + not}
	}
	return nil
}

// Not is why it cannot be done to a job of this state, and what to do instead; empty if
// it can.
func (a *Action) Excludes(state string) string {
	if slices.Contains(a.States, state) {
		return ""
	}
	return cmp.Or(a.not[state], "it is "+state)
}

const waitsOn = "it runs as soon as its limits let it, and not before"

// What can be done to jobs.
var (
	Run = &Action{
		Done: "run", States: []string{"retry", "scheduled", "archived"},
		do: (*asynq.Inspector).RunTask,
		not: map[string]string{
			"active": "it runs already", Granted: "it is on its way", Waiting: waitsOn,
			"pending": "it is in its queue already", "completed": "it is done: enqueue it anew",
		},
	}
	Cancel = &Action{
		Done: "cancelled", States: []string{"active"},
		do: func(i *asynq.Inspector, _, id string) error { return i.CancelProcessing(id) },
		not: map[string]string{
			Granted: noRun, Waiting: noRun, "pending": noRun, "retry": noRun, "scheduled": noRun,
			"archived": "it is given up already", "completed": "it is done",
		},
	}
	Archive = &Action{
		Done: "archived", States: []string{Granted, Waiting, "pending", "retry", "scheduled"}, ends: true,
		do: (*asynq.Inspector).ArchiveTask,
		not: map[string]string{
			"active":   "it runs: cancel it first",
			"archived": "it is in the archive already", "completed": "it is done",
		},
	}
	Delete = &Action{
		Done: "deleted", States: slices.DeleteFunc(slices.Clone(States), func(s string) bool { return s == "active" }), ends: true,
		do:  (*asynq.Inspector).DeleteTask,
		not: map[string]string{"active": "it runs: cancel it first"},
	}
)

const noRun = "it does not run: archive or delete it"

// Find lists the jobs of a filter that it would be done to, up to most.
func (q *Queues) Find(ctx context.Context, a *Action, f Filter, most int) (jobs []throttle.JobID, err error) {
	if len(f.States) == 0 {
		f.States = a.States
	}
	for job, err := range q.List(ctx, f) {
		if err != nil {
			return nil, err
		}
		if len(jobs) == most {
			break
		}
		jobs = append(jobs, job.JobID())
	}
	return jobs, nil
}

// Do does it to those of the jobs that the filter means still, and that it can be done
// to, counts them, and notes it in the changelog: one that has changed its state meanwhile
// is left alone.
func (q *Queues) Apply(ctx context.Context, a *Action, f Filter, jobs []throttle.JobID) (done int, err error) {
	if a == Cancel {
		if err := q.alone(ctx, jobs); err != nil {
			return 0, err
		}
	}
	done, err = q.do(ctx, a, f, jobs)
	if done == 0 {
		return 0, err
	}
	noted := throttle.Change{What: a.Done, Jobs: done, Job: throttle.JobID{Queue: f.Queue}}
	if len(jobs) == 1 {
		noted.Job = jobs[0]
	}
	return done, errors.Join(err, q.Limiter.Internals().Note(context.WithoutCancel(ctx), noted))
}

// alone refuses an id under which jobs of several queues run: asynq would stop them all.
func (q *Queues) alone(ctx context.Context, jobs []throttle.JobID) error {
	for _, job := range jobs {
		same, err := q.FindAllByID(ctx, job.ID, "")
		if err != nil {
			return err
		}
		var queues []string
		for _, job := range same {
			if job.State == "active" {
				queues = append(queues, job.Queue)
			}
		}
		if len(queues) > 1 {
			return fmt.Errorf("jobs %s run in the queues %s: both would be stopped, and neither was", job.ID, strings.Join(queues, " and "))
		}
	}
	return nil
}

// do is Do without its note. The limiter forgets the place of those that have ended.
func (q *Queues) do(ctx context.Context, a *Action, f Filter, jobs []throttle.JobID) (done int, err error) {
	for some := range slices.Chunk(jobs, pageSize) {
		var ended []throttle.JobID
		for _, id := range some {
			var did bool
			if did, err = q.doTo(ctx, a, f, id); err != nil {
				break
			}
			if did {
				done, ended = done+1, append(ended, id)
			}
		}
		if a.ends {
			_, forgot := q.Limiter.Forget(context.WithoutCancel(ctx), ended...)
			err = errors.Join(err, forgot)
		}
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

func (q *Queues) doTo(ctx context.Context, a *Action, f Filter, id throttle.JobID) (bool, error) {
	meant, err := q.meant(ctx, a, f, id)
	if !meant || err != nil {
		return false, err
	}
	if err = a.do(q.Inspector, id.Queue, id.ID); err == nil {
		return true, nil
	}
	if meant, looked := q.meant(ctx, a, f, id); !meant && looked == nil {
		return false, nil // that was why
	}
	return false, fmt.Errorf("job %s: %w", id.ID, err)
}

func (q *Queues) meant(ctx context.Context, a *Action, f Filter, id throttle.JobID) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	job, err := q.Job(ctx, id)
	if errors.Is(err, asynq.ErrTaskNotFound) || errors.Is(err, asynq.ErrQueueNotFound) {
		return false, nil
	}
	return err == nil && a.Excludes(job.State) == "" && f.Matches(job), err
}

// Costs says which jobs wait that a limit refuses for good once it is as next says; it
// is empty where there are none. Who waits does not say for which app, so those are
// counted all, and so are those of keys with a capacity of their own. What Set refuses
// spoils nothing, nor does a limit that gives as much at once as before.
func (q *Queues) LimitChangeImpact(ctx context.Context, was, next throttle.Limit) (says string, err error) {
	if next.Validate() != nil {
		return "", nil
	}
	if was.Kind == "" || next.MaxCost() < was.MaxCost() {
		n, err := q.Limiter.CountWaiting(ctx, next.Name, next.MaxCost()+1)
		if err != nil {
			return "", err
		}
		if n > 0 {
			return tooCostly(next.Name, n, next.MaxCost()), nil
		}
	}
	if !excludes(was.Apps, next.Apps) {
		return "", nil
	}
	n, err := q.Limiter.CountWaiting(ctx, next.Name, 0)
	if err != nil || n == 0 {
		return "", err
	}
	return fmt.Sprintf("limit %s has %s waiting, of which those of other apps than %s are then archived, or what on_no_limit says",
		next.Name, display.Count(n, "job"), strings.Join(next.Apps, ",")), nil
}

// KeyCosts is Costs for what one key of a limit is to count by.
func (q *Queues) KeyChangeImpact(ctx context.Context, limit, key string, o throttle.Override) (says string, err error) {
	l, now, err := q.Limiter.Internals().Key(ctx, limit, key)
	if errors.Is(err, throttle.ErrNoLimit) {
		return "", nil // which SetKey says
	}
	most := l.With(o).MaxCost()
	if err != nil || most >= l.With(now.Override).MaxCost() {
		return "", err
	}
	n, err := q.Limiter.CountWaitingForKey(ctx, limit, key, most+1)
	if err != nil || n == 0 {
		return "", err
	}
	return tooCostly(limit+" of "+key, n, most), nil
}

func tooCostly(limit string, jobs, most int) string {
	return fmt.Sprintf("limit %s has %s waiting for more permits at once than %d, which are then archived", limit, display.Count(jobs, "job"), most)
}

// excludes reports whether there are apps that a limit is for and then no more. No
// list means all apps.
func excludes(was, next []string) bool {
	return len(next) > 0 && (len(was) == 0 || slices.ContainsFunc(was, func(app string) bool { return !slices.Contains(next, app) }))
}
