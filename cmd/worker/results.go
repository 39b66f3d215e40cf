package main

import (
	"cmp"
	"context"
	"time"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/cmd/internal/results"
	"github.com/headgate/headgate/internal/duration"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/redact"
)

type resultsCommand struct {
	Type   string         `placeholder:"TYPE" help:"Only of jobs of this type."`
	Queue  string         `placeholder:"NAME" help:"Only of this queue."`
	Since  *time.Duration `placeholder:"DURATION" help:"Only of jobs that ended within this time, such as 1h."`
	Failed bool           `help:"The last answers of archived jobs instead of the results of completed jobs."`
	Out    string         `placeholder:"DIR" help:"Write the bodies to files DIR/QUEUE/ID."`
	Follow bool           `short:"f" help:"Keep printing new results, until a signal."`
	JSON   bool           `help:"Print JSON lines: one object a line."`
}

func (resultsCommand) Help() string {
	return `Lists the results of completed jobs, oldest first if all have the same retention. The result of an http:request is the status, the kept headers and the body of its answer. The result of any other type is what its handler wrote. Each line begins with the job's ID, type and payload, without secrets. "enqueue --ids" prints the IDs of the jobs that it enqueues.

A finished job is kept only for its retention: enqueue it with --retention, or set retention: 24h for its type in the config. A body is kept up to max_body. A body that the worker saved to a file is not part of the result.

--out DIR writes each kept body to a file. Characters of a file name other than letters, digits and _ . @ - are percent-encoded, and a long name ends with a hash. Files appear whole or not at all. Existing files are not replaced, so the command can be repeated; if one has other content, the exit code is 1. A job without a body, or whose worker saved it to a file, has no file.`
}

func (c *resultsCommand) Run(ctx context.Context, conn *connection, stdio cli.IO) error {
	switch {
	case c.JSON && c.Out != "":
		return cli.Usagef("--json and --out: want one of them")
	case c.Since != nil && *c.Since <= 0:
		return cli.Usagef("--since %s: want a time up to now, such as 1h", duration.Exact(*c.Since))
	}
	q, err := conn.queues(ctx)
	if err != nil {
		return err
	}
	if _, err := q.Names(ctx, c.Queue); err != nil && !c.Follow {
		return err
	}
	sink := results.Print(stdio.Out, c.JSON)
	if c.Out != "" {
		if sink, err = results.Create(c.Out, stdio); err != nil {
			return err
		}
	}
	secrets, err := redact.New(conn.conf.Page.Redact)
	if err != nil {
		return err
	}
	err = c.collect(ctx, inspect.NewEndedJobs(q, c.Queue, c.Failed), secrets, sink)
	if c.Follow && ctx.Err() != nil {
		err = nil // a signal ends --follow
	}
	return cmp.Or(err, sink.Close())
}

func (c *resultsCommand) collect(ctx context.Context, ended *inspect.EndedJobs, secrets redact.Redactor, to results.Sink) error {
	from := time.Time{}
	if c.Since != nil {
		from = time.Now().Add(-*c.Since)
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		for job, err := range ended.Next(ctx) {
			if err != nil {
				return err
			}
			r := results.New(job, secrets)
			if len(job.Result) == 0 && !c.Failed || c.Type != "" && job.Type != c.Type || r.Ended.Before(from) {
				continue
			}
			if err := to.Put(r); err != nil {
				return err
			}
		}
		if !c.Follow {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
