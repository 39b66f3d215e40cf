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
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/throttle"
)

type jobsCommand struct {
	List    jobsList   `cmd:"" help:"List jobs of any state."`
	Run     jobsAction `cmd:"" help:"Run archived, scheduled and failed jobs now."`
	Cancel  jobsAction `cmd:"" help:"Stop running jobs."`
	Archive jobsAction `cmd:"" help:"Archive jobs that have not started. They can be run later."`
	Delete  jobsAction `cmd:"" help:"Delete jobs that are not running."`
}

func newJobsCommand() jobsCommand {
	return jobsCommand{
		Run: jobsAction{action: inspect.Run, text: "run %s", help: `The jobs go to the end of their queue and obey their limits like new jobs. A job that waits for a limit cannot be run past it: raise the limit instead.`},
		Cancel: jobsAction{action: inspect.Cancel, text: "canceled the context of %s; a handler stops when it reacts", help: `Cancels the contexts of the jobs. http:request, crawl:fetch and exec:NAME stop then; a handler that ignores its context continues. If the handler returns an error, the attempt counts as a failure, and the job is retried while it has retries left. Use "jobs delete" or "jobs archive" afterwards to remove it.

asynq finds a running job by its ID alone. If jobs with the same ID run in two queues, neither can be canceled.`},
		Archive: jobsAction{action: inspect.Archive, text: "archived %s"},
		Delete:  jobsAction{action: inspect.Delete, text: "deleted %s"},
	}
}

type filter struct {
	State   []string       `placeholder:"STATE" help:"Only in these states: active, granted, waiting, pending, retry, scheduled, archived or completed, with commas between them."`
	Queue   cli.SearchTerm `placeholder:"NAME" help:"Only in this queue."`
	Type    cli.SearchTerm `placeholder:"TYPE" help:"Only of this type."`
	Limit   cli.SearchTerm `placeholder:"NAME" help:"Only jobs that wait for this limit."`
	Key     cli.SearchTerm `placeholder:"KEY" help:"Only jobs that wait for this key of a limit."`
	Batch   cli.SearchTerm `placeholder:"NAME" help:"Only of this batch."`
	Older   time.Duration  `placeholder:"DURATION" help:"Only jobs that have been in their state for longer than this."`
	Payload cli.SearchTerm `placeholder:"TEXT" help:"Only jobs whose payload contains this text."`
	Error   cli.SearchTerm `placeholder:"TEXT" help:"Only jobs whose last error contains this text."`
}

// validated converts the flags to a filter, and checks that the limit and the states exist.
func (f filter) validated(ctx context.Context, q *inspect.Queues) (inspect.Filter, error) {
	all := inspect.Filter{
		States: f.State, Queue: string(f.Queue), Type: string(f.Type), Limit: string(f.Limit), Key: string(f.Key),
		Batch: string(f.Batch), OlderThan: f.Older, Payload: string(f.Payload), Error: string(f.Error),
	}
	if f.State != nil && len(f.State) == 0 {
		all.States = []string{""} // an empty --state, as of an unset shell variable, is an error and does not mean all states
	}
	return all, cli.FlagError(all.Validate(ctx, q))
}

type jobsList struct {
	filter
	Max  int  `placeholder:"N" default:"100" help:"List at most this many (default ${default}), and report if there are more."`
	JSON bool `help:"Print a JSON array with everything about each job."`
}

func (jobsList) Help() string {
	return `Lists first the jobs that may need you, of all queues: archived jobs, then those that failed and are retried, then waiting jobs; then pending, running, scheduled and completed ones. Archived and completed jobs come newest first, pending, scheduled and retried jobs in the order in which they will run, and waiting jobs in no order. SINCE is when a job came into its state, NEXT when a scheduled or retried job runs. WHY is the last error, or the limit that delays a waiting job most.

--older counts from when a job became pending, was first denied, started, last failed, was archived or completed.

"worker job ID" shows everything about one job.`
}

func (c *jobsList) Run(ctx context.Context, conn *connection, stdio cli.IO) error {
	if c.Max < 1 {
		return cli.Usagef("--max %d: want 1 at least", c.Max)
	}
	q, err := conn.queues(ctx)
	if err != nil {
		return err
	}
	f, err := c.validated(ctx, q)
	if err != nil {
		return err
	}
	var jobs []inspect.Job
	for job, err := range q.List(ctx, f) {
		if err != nil {
			return err
		}
		if jobs = append(jobs, job); len(jobs) > c.Max {
			break
		}
	}
	more := len(jobs) > c.Max
	jobs = jobs[:min(c.Max, len(jobs))]
	if err := q.AddEstimates(ctx, jobs); err != nil {
		return err
	}
	rows := make([]*jobView, len(jobs))
	for i, job := range jobs {
		rows[i] = newJobView(job)
	}
	if err := cli.List(stdio.Out, c.JSON, rows, "no jobs match", "ID", "QUEUE", "TYPE", "STATE", "SINCE", "NEXT", "WHY"); err != nil || !more {
		return err
	}
	const rest = "there are more jobs: use a filter, or a larger --max"
	if c.JSON { // standard output is one JSON array
		_, err = fmt.Fprintf(stdio.Err, "%s: %s\n", cli.Worker, rest)
	} else {
		_, err = fmt.Fprintln(stdio.Out, rest)
	}
	return err
}

// jobsAction does one thing to jobs.
type jobsAction struct {
	IDs []string `arg:"" optional:"" name:"id" help:"IDs of the jobs, instead of a filter. --queue and --state can narrow them down."`
	filter
	All bool `help:"All jobs in a suitable state."`
	Yes bool `help:"Confirm a filter that selects more than one job."`

	action *inspect.Action
	text   string // format of the confirmation, with %s for the number of jobs
	help   string
}

// Help returns the detailed help. kong calls it.
func (c jobsAction) Help() string { return c.help }

func (c *jobsAction) Run(ctx context.Context, conn *connection, stdio cli.IO) error {
	if err := c.check(); err != nil {
		return err
	}
	q, err := conn.queues(ctx)
	if err != nil {
		return err
	}
	f, err := c.validated(ctx, q)
	if err != nil {
		return err
	}
	jobs, err := c.find(ctx, q, f)
	if err != nil {
		return err
	}
	return c.apply(ctx, q, stdio, f, jobs)
}

func (c *jobsAction) apply(ctx context.Context, q *inspect.Queues, stdio cli.IO, f inspect.Filter, jobs []throttle.JobID) error {
	n, err := q.Apply(ctx, c.action, f, jobs)
	if err != nil && n == 0 {
		return err
	}
	text := fmt.Sprintf(c.text, display.Count(n, "job"))
	if skipped := len(jobs) - n; skipped > 0 && err == nil {
		text = fmt.Sprintf("%s; skipped %s that changed in the meantime", text, display.Count(skipped, "job"))
	}
	return errors.Join(confirm(stdio, nil, "%s", text), err)
}

// check rejects flags that select no jobs, do not go together or do not fit the action.
func (c *jobsAction) check() error {
	switch {
	case len(c.IDs) == 0 && reflect.ValueOf(c.filter).IsZero() && !c.All:
		return cli.Usagef("no jobs are selected: want IDs, a filter such as --queue NAME, or --all")
	case len(c.IDs) > 0 && (c.All || !reflect.DeepEqual(c.filter, filter{Queue: c.Queue, State: c.State})):
		return cli.Usagef("IDs can be combined with --queue and --state only")
	}
	return cli.FlagError(c.action.Validate(inspect.Filter{States: c.State, Limit: string(c.Limit), Key: string(c.Key)}))
}

func (c *jobsAction) find(ctx context.Context, q *inspect.Queues, f inspect.Filter) (jobs []throttle.JobID, err error) {
	if len(c.IDs) == 0 {
		jobs, err = q.Find(ctx, c.action, f, math.MaxInt)
		if err == nil && len(jobs) > 1 && !c.Yes {
			err = cli.Usagef("the filter selects %s; add --yes to confirm", display.Count(len(jobs), "job"))
		}
		return jobs, err
	}
	for _, id := range c.IDs {
		job, err := c.findJob(ctx, q, id, f)
		if err != nil && len(c.IDs) > 1 {
			err = fmt.Errorf("%w; no job was %s", err, c.action.Done)
		}
		if err != nil {
			return nil, err
		}
		if !slices.Contains(jobs, job) {
			jobs = append(jobs, job)
		}
	}
	return jobs, nil
}

// findJob returns the job with an ID. It returns an error if no job or several jobs have the ID, or
// if the action or the filter does not apply to the job.
func (c *jobsAction) findJob(ctx context.Context, q *inspect.Queues, id string, f inspect.Filter) (throttle.JobID, error) {
	jobs, err := findJobs(ctx, q, id, f.Queue)
	if err != nil {
		return throttle.JobID{}, err
	}
	job, queues := jobs[0], []string{}
	for _, job := range jobs {
		queues = append(queues, job.Queue)
	}
	switch reason := c.action.ExcludesJob(job); {
	case len(jobs) > 1:
		err = cli.Usagef("job %s is in the queues %s: choose one with --queue", id, strings.Join(queues, ", "))
	case reason != "":
		err = fmt.Errorf("job %s is %s: %s", id, job.State, reason)
	case !f.Matches(job):
		err = fmt.Errorf("job %s is not %s but %s", id, strings.Join(f.States, " or "), job.State)
	}
	return job.JobID(), err
}
