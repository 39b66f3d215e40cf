package main

import (
	"context"
	"errors"
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
	Failed bool           `help:"The last answers of archived jobs, instead of the results of completed ones."`
	Out    string         `placeholder:"DIR|FILE.jsonl" help:"Write the bodies to files DIR/QUEUE/ID, or the results as JSON lines to a file that ends in .jsonl."`
	Follow bool           `short:"f" help:"Go on with those that come, until a signal."`
	JSON   bool           `help:"Print JSON lines: one object a line."`
}

func (resultsCommand) Help() string {
	return `Lists the results of jobs that are done, the oldest first where all are kept for the same time: of an http:request the answer's status, kept headers and body, of any other type what its handler wrote. Each stands behind its job's id, type and payload, where secrets are hidden as on the page. "enqueue --ids" prints the id of each line, to match them.

A job that is done is kept for as long as its retention, and not at all without one: enqueue it with --retention, or write retention: 24h at its type in the config, and at a schedule. A body is kept up to max_body, one that was saved to a file by the worker is not in the result.

With --out DIR each body becomes a file, exactly as it was kept. In the names all but letters, digits and _ . @ - is percent-encoded, and a long name ends with a hash. They appear whole or not at all. A file that is there already with the same content counts as written, so that the command can be repeated; one with another content is left as it is, and then the exit code is 1. A FILE.jsonl must be new, and grows line by line.`
}

func (c *resultsCommand) Run(ctx context.Context, conn *connection, stdio cli.IO) error {
	switch {
	case c.JSON && c.Out != "":
		return cli.Usagef("--json and --out: want one of them; FILE.jsonl has what --json prints")
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
		if sink, err = results.To(c.Out, stdio); err != nil {
			return err
		}
	}
	secrets, err := redact.New(conn.conf.Page.Redact)
	if err != nil {
		return err
	}
	err = c.collect(ctx, inspect.NewEndedJobs(q, c.Queue, c.Failed), secrets, sink)
	if c.Follow && ctx.Err() != nil {
		err = nil // that is how it ends
	}
	return errors.Join(err, sink.Close(err == nil))
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
