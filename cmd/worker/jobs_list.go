package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/inspect"
)

type jobsList struct {
	filter
	Max  int  `placeholder:"N" default:"100" help:"List so many at most (default ${default}), and say how many more there are."`
	JSON bool `help:"Print a JSON array, with all that is known of each job."`
}

// Help is the manual of "worker jobs list".
func (jobsList) Help() string {
	return `Lists jobs by queue and state: those that are archived or completed from the newest on, the others from the next on. WHEN is since when a job is in its state, and of one that is scheduled or waits for its next attempt when it comes. WHY is the last error, or what a waiting job waits longest for.

--older goes by what is known: when a job became pending, was denied first, was started, failed last, was archived or done.

"worker job ID" says all about one job.`
}

// moreCounted is how many jobs are counted that are not listed.
const moreCounted = 10_000

// Run implements "worker jobs list".
func (c *jobsList) Run(ctx context.Context, g *cli.Globals, stdio cli.IO) error {
	if c.Max < 1 {
		return cli.Usagef("--max %d: want 1 at least", c.Max)
	}
	q, err := openQueues(ctx, g)
	if err != nil {
		return err
	}
	defer q.Close()
	f, err := c.of(ctx, q.Limiter)
	if err != nil {
		return err
	}
	var jobs []inspect.Job
	more := 0
	for job, err := range q.Jobs(ctx, f) {
		if err != nil {
			return err
		}
		if len(jobs) < c.Max {
			jobs = append(jobs, job)
		} else if more++; more == moreCounted {
			break
		}
	}
	if err := q.Expect(ctx, jobs); err != nil {
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
	if c.JSON {
		views := make([]*jobView, len(jobs))
		for i, job := range jobs {
			views[i] = newJobView(job)
		}
		return cli.JSON(stdio.Out, views)
	}
	if len(jobs) == 0 {
		_, err := fmt.Fprintln(stdio.Out, "no job matches")
		return err
	}
	var rows [][]string
	for _, job := range jobs {
		rows = append(rows, []string{job.ID, job.Queue, job.Type, job.State, whenOf(job), whyOf(job)})
	}
	return cli.Table(stdio.Out, []string{"ID", "QUEUE", "TYPE", "STATE", "WHEN", "WHY"}, rows)
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
	case job.State == inspect.Waiting && job.Place.Known:
		about := ""
		if job.Place.About {
			about = "about "
		}
		return fmt.Sprintf("waits for %s, runs in %s%s", meterName(job.Place.Binding), about, job.Place.In.Round(time.Second))
	case job.State == inspect.Waiting:
		return "waits for " + meterName(job.Place.Binding)
	case job.State == "retry" || job.State == "archived":
		return strings.Join(strings.Fields(job.LastErr), " ")
	case job.IsOrphaned:
		return "its worker is gone: another will take it"
	}
	return ""
}
