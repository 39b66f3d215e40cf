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

// Action changes jobs.
type Action struct {
	Done   string   // past participle, for the changelog
	States []string // the action applies to jobs in these states
	apply  func(i *asynq.Inspector, queue, id string) error
	ends   bool              // the limiter must forget the jobs
	hints  map[string]string // by state: why the action does not apply, and what to do instead
}

// Validate returns a *throttle.FieldError if the action applies to none of the filter's jobs.
func (a *Action) Validate(f Filter) error {
	for _, state := range f.States {
		if why := a.Excludes(state); slices.Contains(States, state) && why != "" {
			return &throttle.FieldError{
				Field: "state", Value: state,
				Want: fmt.Sprintf("want %s; of a job that is %s: %s", strings.Join(a.States, ", "), state, why),
			}
		}
	}
	if why := a.Excludes(Waiting); f.Limit+f.Key != "" && why != "" {
		field, value := "limit", f.Limit
		if value == "" {
			field, value = "key", f.Key
		}
		return &throttle.FieldError{Field: field, Value: value, Want: "want another filter: of a job that waits: " + why}
	}
	return nil
}

// Excludes explains why the action does not apply to jobs in this state. It is empty if it applies.
func (a *Action) Excludes(state string) string {
	if slices.Contains(a.States, state) {
		return ""
	}
	return cmp.Or(a.hints[state], "it is "+state)
}

const notRunning = "it does not run: archive or delete it"

// The actions.
var (
	Run = &Action{
		Done: "run", States: []string{"retry", "scheduled", "archived"},
		apply: (*asynq.Inspector).RunTask,
		hints: map[string]string{
			"active": "it runs already", Granted: "it is on its way",
			Waiting:   "it runs as soon as its limits let it, and not before",
			"pending": "it is in its queue already", "completed": "it is done: enqueue it again",
		},
	}
	Cancel = &Action{
		Done: "canceled", States: []string{"active"},
		apply: func(i *asynq.Inspector, _, id string) error { return i.CancelProcessing(id) },
		hints: map[string]string{
			Granted: notRunning, Waiting: notRunning, "pending": notRunning, "retry": notRunning, "scheduled": notRunning,
			"archived": "it is archived already", "completed": "it is done",
		},
	}
	Archive = &Action{
		Done: "archived", States: []string{Granted, Waiting, "pending", "retry", "scheduled"}, ends: true,
		apply: (*asynq.Inspector).ArchiveTask,
		hints: map[string]string{
			"active":   "it runs: cancel it first",
			"archived": "it is in the archive already", "completed": "it is done",
		},
	}
	Delete = &Action{
		Done: "deleted", States: slices.DeleteFunc(slices.Clone(States), func(s string) bool { return s == "active" }), ends: true,
		apply: (*asynq.Inspector).DeleteTask,
		hints: map[string]string{"active": "it runs: cancel it first"},
	}
)

// Find returns the first jobs of a filter to which the action applies, at most limit of them.
func (q *Queues) Find(ctx context.Context, a *Action, f Filter, limit int) (jobs []throttle.JobID, err error) {
	if len(f.States) == 0 {
		f.States = a.States
	}
	for job, err := range q.List(ctx, f) {
		if err != nil {
			return nil, err
		}
		if len(jobs) == limit {
			break
		}
		jobs = append(jobs, job.JobID())
	}
	return jobs, nil
}

// Apply applies the action to the jobs, records it in the changelog, and returns the number of changed
// jobs. It skips jobs that no longer match the filter or whose state has changed.
func (q *Queues) Apply(ctx context.Context, a *Action, f Filter, jobs []throttle.JobID) (done int, err error) {
	if a == Cancel {
		if err := q.checkRunsOnce(ctx, jobs); err != nil {
			return 0, err
		}
	}
	done, err = q.applyAll(ctx, a, f, jobs)
	if done == 0 {
		return 0, err
	}
	change := throttle.Change{What: a.Done, Jobs: done, Job: throttle.JobID{Queue: f.Queue}}
	if len(jobs) == 1 {
		change.Job = jobs[0]
	}
	return done, errors.Join(err, q.note(ctx, change))
}

// checkRunsOnce fails if running jobs in several queues have the same ID: asynq would cancel all of
// them.
func (q *Queues) checkRunsOnce(ctx context.Context, jobs []throttle.JobID) error {
	for _, job := range jobs {
		same, err := q.FindByID(ctx, job.ID, "")
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
			return fmt.Errorf("jobs %s run in the queues %s: canceling one would cancel all, so none was canceled", job.ID, strings.Join(queues, " and "))
		}
	}
	return nil
}

func (q *Queues) applyAll(ctx context.Context, a *Action, f Filter, jobs []throttle.JobID) (done int, err error) {
	for chunk := range slices.Chunk(jobs, pageSize) {
		var ended []throttle.JobID
		for _, id := range chunk {
			var applied bool
			if applied, err = q.applyTo(ctx, a, f, id); err != nil {
				break
			}
			if applied {
				done, ended = done+1, append(ended, id)
			}
		}
		if a.ends {
			_, errForget := q.Limiter.Forget(context.WithoutCancel(ctx), ended...)
			err = errors.Join(err, errForget)
		}
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

func (q *Queues) applyTo(ctx context.Context, a *Action, f Filter, id throttle.JobID) (bool, error) {
	applicable, err := q.isApplicable(ctx, a, f, id)
	if !applicable || err != nil {
		return false, err
	}
	if err = a.apply(q.Inspector, id.Queue, id.ID); err == nil {
		return true, nil
	}
	if applicable, errRead := q.isApplicable(ctx, a, f, id); !applicable && errRead == nil {
		return false, nil // the job has changed its state
	}
	return false, fmt.Errorf("job %s: %w", id.ID, err)
}

func (q *Queues) isApplicable(ctx context.Context, a *Action, f Filter, id throttle.JobID) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	job, err := q.Job(ctx, id)
	if errors.Is(err, asynq.ErrTaskNotFound) || errors.Is(err, asynq.ErrQueueNotFound) {
		return false, nil
	}
	return err == nil && a.Excludes(job.State) == "" && f.Matches(job), err
}

// LimitChangeImpact describes the waiting jobs that could never run after a limit is changed to next.
// It is empty if there are none, or if Set would reject the change. It counts the jobs of all apps,
// and the jobs of keys that have their own capacity.
func (q *Queues) LimitChangeImpact(ctx context.Context, old, next throttle.Limit) (string, error) {
	if next.Validate() != nil {
		return "", nil
	}
	if old.Kind == "" || next.MaxCost() < old.MaxCost() {
		n, err := q.Limiter.CountWaiting(ctx, next.Name, next.MaxCost()+1)
		if err != nil {
			return "", err
		}
		if n > 0 {
			return tooCostly(next.Name, n, next.MaxCost()), nil
		}
	}
	if !excludesApps(old.Apps, next.Apps) {
		return "", nil
	}
	n, err := q.Limiter.CountWaiting(ctx, next.Name, 0)
	if err != nil || n == 0 {
		return "", err
	}
	return fmt.Sprintf("limit %s has %s waiting, of which those of other apps than %s are then archived, or what on_no_limit says",
		next.Name, display.Count(n, "job"), strings.Join(next.Apps, ",")), nil
}

// KeyChangeImpact is LimitChangeImpact for an override of one key.
func (q *Queues) KeyChangeImpact(ctx context.Context, limit, key string, o throttle.Override) (string, error) {
	l, now, err := q.Limiter.Internals().Key(ctx, limit, key)
	if errors.Is(err, throttle.ErrNoLimit) {
		return "", nil // SetKey reports it
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

// excludesApps reports whether an app may use the old limit and not the next. No list means all.
func excludesApps(old, next []string) bool {
	return len(next) > 0 && (len(old) == 0 || slices.ContainsFunc(old, func(app string) bool { return !slices.Contains(next, app) }))
}
