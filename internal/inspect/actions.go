package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/internal/shard"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// Action changes jobs.
type Action struct {
	Done   string   // past participle, for the changelog
	States []string // the action applies to jobs in these states
	apply  func(i *asynq.Inspector, queue, id string) error
	ends   bool              // the jobs never run afterwards, so the limiter deletes its records of them
	hints  map[string]string // by state: why the action does not apply, and what to do instead
}

// Validate returns a *throttle.FieldError if the action does not apply to a state of the filter. A
// filter by limit or key selects waiting jobs.
func (a *Action) Validate(f Filter) error {
	for _, state := range f.States {
		if why := a.Excludes(state); slices.Contains(States, state) && why != "" {
			want := fmt.Sprintf("want %s; this does not apply to a job that is %s: %s", strings.Join(a.States, ", "), state, why)
			return &throttle.FieldError{Field: "state", Value: state, Want: want}
		}
	}
	why := a.Excludes(Waiting)
	if f.Limit+f.Key == "" || why == "" {
		return nil
	}
	field := "limit"
	if f.Limit == "" {
		field = "key"
	}
	return &throttle.FieldError{Field: field, Value: cmp.Or(f.Limit, f.Key), Want: "a filter by limit or key selects waiting jobs, to which this does not apply: " + why}
}

// Excludes returns why the action does not apply to jobs in this state, or "" if it applies.
func (a *Action) Excludes(state string) string {
	if slices.Contains(a.States, state) {
		return ""
	}
	return cmp.Or(a.hints[state], "it is "+state)
}

// ExcludesJob is Excludes for a job. A job that a worker has taken counts as active, even if it has
// no permits yet: it may start before the action.
func (a *Action) ExcludesJob(job Job) string {
	if job.TaskInfo.State == asynq.TaskStateActive {
		return a.Excludes("active")
	}
	return a.Excludes(job.State)
}

const notRunning = "it is not running: archive or delete it instead"

// The actions.
var (
	Run = &Action{
		Done: "run", States: []string{"retry", "scheduled", "archived"},
		apply: (*asynq.Inspector).RunTask,
		hints: map[string]string{
			"active": "it runs already", Granted: "it has its permits and is about to start",
			Waiting:   "it waits for permits, and starts as soon as they are available",
			"pending": "it is in its queue already", "completed": "it is completed: enqueue a new job",
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

// Find returns up to `most` jobs that match the filter. If the filter has no states, Find uses
// those of the action.
func (q *Queues) Find(ctx context.Context, a *Action, f Filter, most int) (jobs []throttle.JobID, err error) {
	if len(f.States) == 0 {
		f.States = a.States
	}
	f.taken = a == Cancel
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

// Apply applies the action to the jobs, records it in the changelog, and returns the number of
// changed jobs. It skips jobs that no longer match the filter, or are now in a state to which the
// action does not apply.
func (q *Queues) Apply(ctx context.Context, a *Action, f Filter, jobs []throttle.JobID) (done int, err error) {
	if a == Cancel {
		if err := q.checkRunsOnce(ctx, jobs); err != nil {
			return 0, err
		}
	}
	for chunk := range slices.Chunk(jobs, pageSize) {
		var changed []throttle.JobID
		for i := 0; i < len(chunk) && err == nil; i++ {
			var applied bool
			if applied, err = q.applyTo(ctx, a, f, chunk[i]); applied {
				changed = append(changed, chunk[i])
			}
		}
		done += len(changed)
		if a.ends {
			err = errors.Join(err, q.forget(context.WithoutCancel(ctx), changed))
		}
		if err != nil {
			break
		}
	}
	if done == 0 {
		return 0, err
	}
	change := throttle.Change{What: a.Done, Jobs: done, Job: throttle.JobID{Queue: f.Queue}}
	if len(jobs) == 1 {
		change.Job = jobs[0]
	}
	return done, errors.Join(err, q.note(ctx, change))
}

func (q *Queues) forget(ctx context.Context, jobs []throttle.JobID) (err error) {
	parts := map[shard.Shard][]throttle.JobID{}
	for _, job := range jobs {
		part := q.Sharded.ShardNamed(job.Queue)
		parts[part] = append(parts[part], job)
	}
	for part, jobs := range parts {
		_, failed := q.In(part).Limiter.Forget(ctx, jobs...)
		err = errors.Join(err, failed)
	}
	return err
}

// checkRunsOnce fails if running jobs in several queues have the same ID: asynq cancels by the ID
// alone, and would cancel all of them.
func (q *Queues) checkRunsOnce(ctx context.Context, jobs []throttle.JobID) error {
	for _, id := range jobs {
		same, err := q.FindByID(ctx, id.ID, "")
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
			return fmt.Errorf("jobs %s run in the queues %s: canceling one would cancel all, so none was canceled", id.ID, strings.Join(queues, " and "))
		}
	}
	return nil
}

// applyTo applies the action to a job that still matches, and reports whether it did. If the action
// fails, applyTo reads the job again and retries once, because the job's state may have changed.
func (q *Queues) applyTo(ctx context.Context, a *Action, f Filter, id throttle.JobID) (bool, error) {
	f.taken = a == Cancel
	var failed error
	for range 2 {
		job, err := q.Job(ctx, id)
		if IsGone(err) {
			return false, nil
		}
		if err = cmp.Or(err, ctx.Err()); err != nil || a.ExcludesJob(job) != "" || !f.Matches(job) {
			return false, err
		}
		batch := asynqdb.JobHeader(id, job.Headers, asynqdb.HeaderBatch)
		if a == Run && job.State == "archived" && batch != "" {
			err = q.DB.RunAgain(ctx, batch, id)
		}
		if err == nil {
			err = a.apply(q.Inspector, id.Queue, id.ID)
		}
		if err == nil {
			return true, nil
		}
		failed = cmp.Or(failed, err)
	}
	return false, fmt.Errorf("job %s: %w", id.ID, failed)
}

// LimitChangeImpact describes the waiting jobs that could never run after a limit is changed from
// old to next; old is zero if there is no such limit yet. The text is empty if there are no such
// jobs, or if SetLimit would reject the change. The number of jobs can be too high: it includes
// jobs of all apps, and of keys with a capacity of their own.
func (q *Queues) LimitChangeImpact(ctx context.Context, old, next throttle.Limit) (string, error) {
	parts := map[shard.Shard]throttle.Limit{}
	for _, part := range q.Sharded.Places(next.Name, nil) {
		var err error
		if parts[part], err = q.partIn(part, next); err != nil || next.Validate() != nil {
			return "", nil
		}
	}
	if old.Kind == "" || next.MaxCost() < old.MaxCost() {
		n, err := q.CountWaiting(ctx, next.Name, func(part shard.Shard) int { return parts[part].MaxCost() + 1 })
		return tooCostly(next.Name, n, next.MaxCost()), err
	}
	wasAllowed := func(app string) bool { return !slices.Contains(next.Apps, app) }
	if len(next.Apps) == 0 || len(old.Apps) > 0 && !slices.ContainsFunc(old.Apps, wasAllowed) {
		return "", nil
	}
	n, err := q.CountWaiting(ctx, next.Name, func(shard.Shard) int { return 0 })
	if err != nil || n == 0 {
		return "", err
	}
	return fmt.Sprintf("after this change, %s waiting for limit %s will wait until it is for their app, unless on_no_limit says otherwise, except jobs of app %s",
		display.Count(n, "job"), next.Name, strings.Join(next.Apps, ",")), nil
}

// KeyChangeImpact is LimitChangeImpact for setting the override of one key to o.
func (q *Queues) KeyChangeImpact(ctx context.Context, limit, key string, o throttle.Override) (string, error) {
	jobs, least := 0, 0
	_, divided := q.Sharded.Home(limit)
	err := q.EachPlace(limit, &key, func(limiter *waitdb.DB, part shard.Shard) error {
		l, now, err := limiter.Internals().Key(ctx, limit, key)
		if errors.Is(err, throttle.ErrNoLimit) {
			return nil // SetKey reports it
		}
		own := o
		if divided {
			own, _ = part.DivideOverride(l.Kind, o) // SetKey reports the error
		}
		most := l.With(own).MaxCost()
		if err != nil || most >= l.With(now.Override).MaxCost() {
			return err
		}
		n, err := limiter.CountWaiting(ctx, limit, most+1, key)
		jobs, least = jobs+n, most
		return err
	})
	return tooCostly(limit+" of "+key, jobs, least), err
}

func tooCostly(limit string, jobs, most int) string {
	if jobs == 0 {
		return ""
	}
	return fmt.Sprintf("after this change, limit %s gives at most %s at once, too few for %s, which will be archived", limit, display.Count(most, "permit"), display.Count(jobs, "waiting job"))
}
