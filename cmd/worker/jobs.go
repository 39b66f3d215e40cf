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
	Run     jobsRun     `cmd:"" help:"Run archived, scheduled and failed jobs now."`
	Cancel  jobsCancel  `cmd:"" help:"Stop running jobs."`
	Archive jobsArchive `cmd:"" help:"Archive jobs that have not started. They can be run later."`
	Delete  jobsDelete  `cmd:"" help:"Delete jobs that are not running."`
}

type filter struct {
	State   []string      `placeholder:"STATE" help:"Only in these states: active, granted, waiting, pending, retry, scheduled, archived or completed, with commas between them."`
	Queue   cli.Term      `placeholder:"NAME" help:"Only in this queue."`
	Type    cli.Term      `placeholder:"TYPE" help:"Only of this type."`
	Limit   cli.Term      `placeholder:"NAME" help:"Only jobs that wait for this limit."`
	Key     cli.Term      `placeholder:"KEY" help:"Only jobs that wait for this key of a limit."`
	Older   time.Duration `placeholder:"DURATION" help:"Only jobs that have been in their state for longer than this."`
	Payload cli.Term      `placeholder:"TEXT" help:"Only jobs whose payload contains this text."`
	Error   cli.Term      `placeholder:"TEXT" help:"Only jobs whose last error contains this text."`
}

func (f filter) of(ctx context.Context, limiter *waitdb.DB) (inspect.Filter, error) {
	all := inspect.Filter{
		States: f.State, Queue: string(f.Queue), Type: string(f.Type), Limit: string(f.Limit), Key: string(f.Key),
		OlderThan: f.Older, Payload: string(f.Payload), Error: string(f.Error),
	}
	if f.State != nil && len(f.State) == 0 {
		all.States = []string{""} // as of an unset shell variable: an error, and not all states
	}
	return all, cli.FlagError(all.Validate(ctx, limiter))
}

type jobsList struct {
	filter
	Max  int  `placeholder:"N" default:"100" help:"List at most this many (default ${default}), and print how many more there are."`
	JSON bool `help:"Print a JSON array with everything about each job."`
}

func (jobsList) Help() string {
	return `Lists jobs by queue and state: archived and completed jobs newest first, other jobs next first. WHEN is when a job came into its state, or when a scheduled or retried job runs. WHY is the last error, or the slowest limit of a waiting job.

--older counts from when a job became pending, was first denied, started, last failed, was archived or completed.

"worker job ID" shows everything about one job.`
}

// maxCounted bounds how many jobs are counted that are not listed.
const maxCounted = 10_000

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
		} else if more++; more == maxCounted {
			break
		}
	}
	if err := q.AddEstimates(ctx, jobs); err != nil {
		return err
	}
	if err := c.print(stdio, jobs); err != nil {
		return err
	}
	if more > 0 {
		atLeast := ""
		if more == maxCounted {
			atLeast = "at least "
		}
		fmt.Fprintf(stdio.Err, "worker: %s%d more: use a filter, or a larger --max\n", atLeast, more)
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
	return printList(stdio.Out, c.JSON, views, []string{"ID", "QUEUE", "TYPE", "STATE", "WHEN", "WHY"}, rows, "no jobs match")
}

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
	case job.State == inspect.Waiting:
		text := "waits for " + display.Meter(job.Position.Bottleneck)
		if job.Position.Known {
			text += ", runs in "
			if job.Position.Estimated {
				text += "about "
			}
			text += duration.Text(job.Position.StartsIn)
		}
		return text
	case job.State == "retry" || job.State == "archived":
		return strings.Join(strings.Fields(job.LastErr), " ")
	case job.IsOrphaned:
		return "its worker is gone: another worker will take it"
	}
	return ""
}

type selection struct {
	IDs []string `arg:"" optional:"" name:"id" help:"IDs of the jobs, instead of a filter. --queue and --state can narrow them down."`
	filter
	All bool `help:"All jobs in a suitable state."`
	Yes bool `help:"Confirm a filter that selects more than one job."`
	confirming
}

type jobsRun struct{ selection }

func (jobsRun) Help() string {
	return `The jobs go to the end of their queue and obey their limits like new jobs. A job that waits for a limit cannot be run past it: raise the limit instead.`
}

func (c *jobsRun) Run(ctx context.Context, conn *connection, stdio cli.IO) error {
	return c.act(ctx, conn, stdio, inspect.Run, "run %s")
}

type jobsCancel struct{ selection }

func (jobsCancel) Help() string {
	return `Cancels the contexts of the jobs. http:request, crawl:fetch and exec:NAME stop then; a handler that ignores its context runs on. The error that the handler returns counts as a failure, so the job is retried if it has attempts left. Use "jobs delete" or "jobs archive" afterwards to get rid of it.

asynq finds a running job by its ID alone. If jobs with the same ID run in two queues, neither can be canceled.`
}

func (c *jobsCancel) Run(ctx context.Context, conn *connection, stdio cli.IO) error {
	return c.act(ctx, conn, stdio, inspect.Cancel, "asked %s to stop; its handler decides when")
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
		said = fmt.Sprintf("%s; skipped %s that changed in the meantime", said, display.Count(left, "job"))
	}
	return errors.Join(s.say(stdio.Out, did, said), err)
}

// check rejects flags that select no jobs.
func (s selection) check(a *inspect.Action) error {
	only := filter{Queue: s.Queue, State: s.State}
	switch {
	case len(s.IDs) == 0 && reflect.ValueOf(s.filter).IsZero() && !s.All:
		return cli.Usagef("no jobs are selected: want IDs, a filter such as --queue NAME, or --all")
	case len(s.IDs) > 0 && (s.All || !reflect.DeepEqual(s.filter, only)):
		return cli.Usagef("IDs can be combined with --queue and --state only")
	}
	return cli.FlagError(a.Validate(inspect.Filter{States: s.State, Limit: string(s.Limit), Key: string(s.Key)}))
}

func (s selection) find(ctx context.Context, q *inspect.Queues, a *inspect.Action, f inspect.Filter) ([]throttle.JobID, error) {
	if len(s.IDs) > 0 {
		jobs, err := s.findByIDs(ctx, q, a, f)
		if err != nil && len(s.IDs) > 1 {
			err = fmt.Errorf("%w; no job was %s", err, a.Done)
		}
		return jobs, err
	}
	jobs, err := q.Find(ctx, a, f, math.MaxInt)
	if err == nil && len(jobs) > 1 && !s.Yes {
		err = cli.Usagef("the filter selects %s; add --yes to confirm", display.Count(len(jobs), "job"))
	}
	return jobs, err
}

// findByIDs returns the jobs with the IDs. It fails if a job does not exist or is not suitable.
func (s selection) findByIDs(ctx context.Context, q *inspect.Queues, a *inspect.Action, f inspect.Filter) (jobs []throttle.JobID, err error) {
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
		return inspect.Job{}, cli.Usagef("job %s is in the queues %s: choose one with --queue", id, strings.Join(names, ", "))
	}
	return jobs[0], nil
}
