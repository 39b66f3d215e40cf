package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/jobspec"
	"github.com/headgate/headgate/throttle"
)

type selection struct {
	IDs []string `arg:"" optional:"" name:"id" help:"Ids of the jobs, instead of a filter; with --queue those of this queue, and with --state only if they are in it."`
	filter
	All bool `help:"All jobs that it can be done to."`
	Yes bool `help:"Do it, although the filter selects more than one job."`
	confirming
}

type jobsRun struct{ selection }

// Help is the manual of "worker jobs run".
func (jobsRun) Help() string {
	return `The jobs go to the ends of their queues, and obey their limits as new ones do. A job that waits for a limit is not run past it: raise the limit instead.`
}

// Run implements "worker jobs run".
func (c *jobsRun) Run(ctx context.Context, g *cli.Globals, stdio cli.IO) error {
	return c.act(ctx, g, stdio, inspect.Run, func(jobs string) string { return "run " + jobs })
}

type jobsCancel struct{ selection }

// Help is the manual of "worker jobs cancel".
func (jobsCancel) Help() string {
	return `The workers are asked to end the contexts of the jobs. A job ends when its handler heeds that, which http:request, crawl:fetch and exec:NAME do; one that does not runs on. What the handler returns then counts as any failure: the job is tried again if it has attempts left. So "jobs delete" or "jobs archive" it then, if it is to be gone.

asynq knows what runs by its id alone: the same id in two queues is refused while both run.`
}

// Run implements "worker jobs cancel".
func (c *jobsCancel) Run(ctx context.Context, g *cli.Globals, stdio cli.IO) error {
	return c.act(ctx, g, stdio, inspect.Cancel, func(jobs string) string {
		return "asked " + jobs + " to stop, which is for the handler to heed"
	})
}

type jobsArchive struct{ selection }

// Run implements "worker jobs archive".
func (c *jobsArchive) Run(ctx context.Context, g *cli.Globals, stdio cli.IO) error {
	return c.act(ctx, g, stdio, inspect.Archive, func(jobs string) string { return "archived " + jobs })
}

type jobsDelete struct{ selection }

// Run implements "worker jobs delete".
func (c *jobsDelete) Run(ctx context.Context, g *cli.Globals, stdio cli.IO) error {
	return c.act(ctx, g, stdio, inspect.Delete, func(jobs string) string { return "deleted " + jobs })
}

func (s selection) act(ctx context.Context, g *cli.Globals, stdio cli.IO, a *inspect.Act, text func(jobs string) string) error {
	if err := s.check(a); err != nil {
		return err
	}
	q, err := openQueues(ctx, g)
	if err != nil {
		return err
	}
	defer q.Close()
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

func (s selection) do(ctx context.Context, q *inspect.Queues, stdio cli.IO, a *inspect.Act, f inspect.Filter, jobs []throttle.JobID, text func(jobs string) string) error {
	n, err := q.Do(ctx, a, f, jobs)
	if err != nil && n == 0 {
		return err
	}
	did := confirmation{Done: a.Done, Jobs: &n, Queue: cli.Text(s.Queue)}
	if len(jobs) == 1 {
		did.Queue, did.Job = cli.Text(jobs[0].Queue), cli.Text(jobs[0].ID)
	}
	said := text(jobspec.Count(n))
	if left := len(jobs) - n; left > 0 && err == nil {
		did.Left = left
		said = fmt.Sprintf("%s; left %s alone, changed meanwhile", said, jobspec.Count(left))
	}
	return errors.Join(s.say(stdio.Out, did, said), err)
}

// check reports words that make no sense.
func (s selection) check(a *inspect.Act) error {
	only := filter{Queue: s.Queue, State: s.State}
	switch {
	case len(s.IDs) == 0 && reflect.ValueOf(s.filter).IsZero() && !s.All:
		return cli.Usagef("which jobs? want ids, a filter such as --queue NAME, or --all")
	case len(s.IDs) > 0 && (s.All || !reflect.DeepEqual(s.filter, only)):
		return cli.Usagef("ids go with no filter but --queue and --state")
	}
	return badFlag(a.Check(inspect.Filter{States: s.State, Limit: string(s.Limit), Key: string(s.Key)}))
}

func (s selection) find(ctx context.Context, q *inspect.Queues, a *inspect.Act, f inspect.Filter) ([]throttle.JobID, error) {
	if len(s.IDs) > 0 {
		return s.named(ctx, q, a, f)
	}
	jobs, err := q.Find(ctx, a, f, math.MaxInt)
	if err == nil && len(jobs) > 1 && !s.Yes {
		err = cli.Usagef("that is %s; add --yes if they are meant", jobspec.Count(len(jobs)))
	}
	return jobs, err
}

// named lists the jobs of the ids. Each is there, and it can be done to each.
func (s selection) named(ctx context.Context, q *inspect.Queues, a *inspect.Act, f inspect.Filter) (jobs []throttle.JobID, err error) {
	for _, id := range s.IDs {
		job, err := findJob(ctx, q, id, string(s.Queue))
		if err != nil {
			return nil, err
		}
		if not := a.Not(job.State); not != "" {
			return nil, fmt.Errorf("job %s is %s: %s", id, job.State, not)
		}
		if !f.Means(job) {
			return nil, fmt.Errorf("job %s is not %s but %s", id, strings.Join(f.States, " or "), job.State)
		}
		if !slices.Contains(jobs, job.JobID()) {
			jobs = append(jobs, job.JobID())
		}
	}
	return jobs, nil
}
