package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/internal/duration"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

type jobsCommand struct {
	List    jobsList    `cmd:"" help:"List jobs of any state."`
	Run     jobsRun     `cmd:"" help:"Run jobs now that are archived, scheduled or wait for their next attempt."`
	Cancel  jobsCancel  `cmd:"" help:"Stop jobs that run."`
	Archive jobsArchive `cmd:"" help:"Give jobs up that do not run yet; they can be run later."`
	Delete  jobsDelete  `cmd:"" help:"Delete jobs that do not run."`
}

type filter struct {
	State   []string      `placeholder:"STATE" help:"Only in these states: active, granted, waiting, pending, retry, scheduled, archived or completed, with commas between them."`
	Queue   cli.Term      `placeholder:"NAME" help:"Only of this queue."`
	Type    cli.Term      `placeholder:"TYPE" help:"Only of this type."`
	Limit   cli.Term      `placeholder:"NAME" help:"Only those that wait for this limit."`
	Key     cli.Term      `placeholder:"KEY" help:"Only those that wait for this key of a limit."`
	Older   time.Duration `placeholder:"DURATION" help:"Only those that are in their state for longer than this."`
	Payload cli.Term      `placeholder:"TEXT" help:"Only those whose payload contains this text."`
	Error   cli.Term      `placeholder:"TEXT" help:"Only those whose last error contains this text."`
}

func (f filter) of(ctx context.Context, limiter *waitdb.DB) (inspect.Filter, error) {
	all := inspect.Filter{
		States: f.State, Queue: string(f.Queue), Type: string(f.Type), Limit: string(f.Limit), Key: string(f.Key),
		OlderThan: f.Older, Payload: string(f.Payload), Error: string(f.Error),
	}
	if f.State != nil && len(f.State) == 0 {
		all.States = []string{""} // said of a shell's variable that is not set, and no state
	}
	return all, cli.FlagError(all.Validate(ctx, limiter))
}

type jobsList struct {
	filter
	Max  int  `placeholder:"N" default:"100" help:"List so many at most (default ${default}), and say how many more there are."`
	JSON bool `help:"Print a JSON array, with all that is known of each job."`
}

func (jobsList) Help() string {
	return `Lists jobs by queue and state: those that are archived or completed from the newest on, the others from the next on. WHEN is since when a job is in its state, and of one that is scheduled or waits for its next attempt when it comes. WHY is the last error, or what a waiting job waits longest for.

--older goes by what is known: when a job became pending, was denied first, was started, failed last, was archived or done.

"worker job ID" says all about one job.`
}

// moreCounted is how many jobs are counted that are not listed.
const moreCounted = 10_000

func (c *jobsList) Run(ctx context.Context, conn *connection, stdio cli.IO) error {
	if c.Max < 1 {
		return cli.Usagef("--max %d: want 1 at least", c.Max)
	}
	q, err := conn.queues(ctx)
	if err != nil {
		return err
	}
	f, err := c.of(ctx, q.Limiter)
	if err != nil {
		return err
	}
	var jobs []inspect.Job
	more := 0
	for job, err := range q.List(ctx, f) {
		if err != nil {
			return err
		}
		if len(jobs) < c.Max {
			jobs = append(jobs, job)
		} else if more++; more == moreCounted {
			break
		}
	}
	if err := q.AddEstimates(ctx, jobs); err != nil {
		return err
	}
	if err := c.print(stdio, jobs); err != nil {
		return err
	}
	switch {
	case more == moreCounted:
		fmt.Fprintf(stdio.Err, "worker: and %d more at least: want a filter, or another --max\n", more)
	case more > 0:
		fmt.Fprintf(stdio.Err, "worker: and %d more: want a filter, or another --max\n", more)
	}
	return nil
}

func (c *jobsList) print(stdio cli.IO, jobs []inspect.Job) error {
	views := make([]*jobView, len(jobs))
	var rows [][]string
	for i, job := range jobs {
		views[i] = newJobView(job)
		rows = append(rows, []string{job.ID, job.Queue, job.Type, job.State, whenOf(job), whyOf(job)})
	}
	return printList(stdio.Out, c.JSON, views, []string{"ID", "QUEUE", "TYPE", "STATE", "WHEN", "WHY"}, rows, "no job matches")
}

// whenOf is since when a job is in its state, or when it comes.
func whenOf(job inspect.Job) string {
	switch {
	case job.State == "scheduled" || job.State == "retry":
		return "runs at " + dateTime(job.NextProcessAt)
	case job.Since.IsZero():
		return "-"
	case job.State == "completed":
		return "at " + dateTime(job.Since)
	}
	return "since " + dateTime(job.Since)
}

func whyOf(job inspect.Job) string {
	switch {
	case job.State == inspect.Waiting && job.Position.Known:
		about := ""
		if job.Position.Estimated {
			about = "about "
		}
		return fmt.Sprintf("waits for %s, runs in %s%s", display.Meter(job.Position.Bottleneck), about, duration.Text(job.Position.StartsIn))
	case job.State == inspect.Waiting:
		return "waits for " + display.Meter(job.Position.Bottleneck)
	case job.State == "retry" || job.State == "archived":
		return strings.Join(strings.Fields(job.LastErr), " ")
	case job.IsOrphaned:
		return "its worker is gone: another will take it"
	}
	return ""
}

type selection struct {
	IDs []string `arg:"" optional:"" name:"id" help:"Ids of the jobs, instead of a filter; with --queue those of this queue, and with --state only if they are in it."`
	filter
	All bool `help:"All jobs that it can be done to."`
	Yes bool `help:"Do it, although the filter selects more than one job."`
	confirming
}

type jobsRun struct{ selection }

func (jobsRun) Help() string {
	return `The jobs go to the ends of their queues, and obey their limits as new ones do. A job that waits for a limit is not run past it: raise the limit instead.`
}

func (c *jobsRun) Run(ctx context.Context, conn *connection, stdio cli.IO) error {
	return c.act(ctx, conn, stdio, inspect.Run, "run %s")
}

type jobsCancel struct{ selection }

func (jobsCancel) Help() string {
	return `The workers are asked to end the contexts of the jobs. A job ends when its handler heeds that, which http:request, crawl:fetch and exec:NAME do; one that does not runs on. What the handler returns then counts as any failure: the job is tried again if it has attempts left. So "jobs delete" or "jobs archive" it then, if it is to be gone.

asynq knows what runs by its id alone: the same id in two queues is refused while both run.`
}

func (c *jobsCancel) Run(ctx context.Context, conn *connection, stdio cli.IO) error {
	return c.act(ctx, conn, stdio, inspect.Cancel, "asked %s to stop, which is for the handler to heed")
}

type jobsArchive struct{ selection }

func (c *jobsArchive) Run(ctx context.Context, conn *connection, stdio cli.IO) error {
	return c.act(ctx, conn, stdio, inspect.Archive, "archived %s")
}

type jobsDelete struct{ selection }

func (c *jobsDelete) Run(ctx context.Context, conn *connection, stdio cli.IO) error {
	return c.act(ctx, conn, stdio, inspect.Delete, "deleted %s")
}

func (s selection) act(ctx context.Context, conn *connection, stdio cli.IO, a *inspect.Action, text string) error {
	if err := s.check(a); err != nil {
		return err
	}
	q, err := conn.queues(ctx)
	if err != nil {
		return err
	}
	f, err := s.of(ctx, q.Limiter)
	if err != nil {
		return err
	}
	jobs, err := s.find(ctx, q, a, f)
	if err != nil {
		return err
	}
	return s.do(ctx, q, stdio, a, f, jobs, text)
}

func (s selection) do(ctx context.Context, q *inspect.Queues, stdio cli.IO, a *inspect.Action, f inspect.Filter, jobs []throttle.JobID, text string) error {
	n, err := q.Apply(ctx, a, f, jobs)
	if err != nil && n == 0 {
		return err
	}
	did := confirmation{Done: a.Done, Jobs: &n, Queue: cli.Text(s.Queue)}
	if len(jobs) == 1 {
		did.Queue, did.Job = cli.Text(jobs[0].Queue), cli.Text(jobs[0].ID)
	}
	said := fmt.Sprintf(text, display.Count(n, "job"))
	if left := len(jobs) - n; left > 0 && err == nil {
		did.Left = left
		said = fmt.Sprintf("%s; left %s alone, changed meanwhile", said, display.Count(left, "job"))
	}
	return errors.Join(s.say(stdio.Out, did, said), err)
}

// check reports words that make no sense.
func (s selection) check(a *inspect.Action) error {
	only := filter{Queue: s.Queue, State: s.State}
	switch {
	case len(s.IDs) == 0 && reflect.ValueOf(s.filter).IsZero() && !s.All:
		return cli.Usagef("which jobs? want ids, a filter such as --queue NAME, or --all")
	case len(s.IDs) > 0 && (s.All || !reflect.DeepEqual(s.filter, only)):
		return cli.Usagef("ids go with no filter but --queue and --state")
	}
	return cli.FlagError(a.Validate(inspect.Filter{States: s.State, Limit: string(s.Limit), Key: string(s.Key)}))
}

func (s selection) find(ctx context.Context, q *inspect.Queues, a *inspect.Action, f inspect.Filter) ([]throttle.JobID, error) {
	if len(s.IDs) > 0 {
		jobs, err := s.named(ctx, q, a, f)
		if err != nil && len(s.IDs) > 1 {
			err = fmt.Errorf("%w; no job was %s", err, a.Done)
		}
		return jobs, err
	}
	jobs, err := q.Find(ctx, a, f, math.MaxInt)
	if err == nil && len(jobs) > 1 && !s.Yes {
		err = cli.Usagef("that is %s; add --yes if they are meant", display.Count(len(jobs), "job"))
	}
	return jobs, err
}

// named lists the jobs of the ids. Each is there, and it can be done to each.
func (s selection) named(ctx context.Context, q *inspect.Queues, a *inspect.Action, f inspect.Filter) (jobs []throttle.JobID, err error) {
	for _, id := range s.IDs {
		job, err := findJob(ctx, q, id, string(s.Queue))
		if err != nil {
			return nil, err
		}
		if not := a.Excludes(job.State); not != "" {
			return nil, fmt.Errorf("job %s is %s: %s", id, job.State, not)
		}
		if !f.Matches(job) {
			return nil, fmt.Errorf("job %s is not %s but %s", id, strings.Join(f.States, " or "), job.State)
		}
		if !slices.Contains(jobs, job.JobID()) {
			jobs = append(jobs, job.JobID())
		}
	}
	return jobs, nil
}

// findJobs returns the jobs with an ID, at least one.
func findJobs(ctx context.Context, q *inspect.Queues, id, queue string) ([]inspect.Job, error) {
	jobs, err := q.FindByID(ctx, id, queue)
	if err == nil && len(jobs) == 0 {
		where := ""
		if queue != "" {
			where = " in queue " + queue
		}
		err = fmt.Errorf("job %s not found%s: it may have finished without retention, or been deleted", id, where)
	}
	return jobs, err
}

func findJob(ctx context.Context, q *inspect.Queues, id, queue string) (inspect.Job, error) {
	jobs, err := findJobs(ctx, q, id, queue)
	if err != nil {
		return inspect.Job{}, err
	}
	if len(jobs) > 1 {
		var names []string
		for _, job := range jobs {
			names = append(names, job.Queue)
		}
		return inspect.Job{}, cli.Usagef("job %s is in the queues %s: name one with --queue", id, strings.Join(names, ", "))
	}
	return jobs[0], nil
}
