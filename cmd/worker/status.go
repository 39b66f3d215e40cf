package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/internal/duration"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/stats"
)

type statusCommand struct {
	Watch  bool   `short:"w" help:"Repeat each second until a signal."`
	Batch  string `placeholder:"NAME" help:"Show the counts of this batch instead."`
	Shards bool   `help:"Show each shard of a queue, and its part of limits."`
	JSON   bool   `help:"Print a JSON object; with --watch one a second, each on a line."`
}

func (statusCommand) Help() string {
	return `Queues: PENDING jobs are in the queue, WAITING jobs wait for permits, ACTIVE jobs run, RETRY jobs failed, or were put back by their handler. A job that was denied permits is WAITING until it gets them. If more than 20,000 jobs of a queue are WAITING or in RETRY, both numbers are estimates. SCHEDULED jobs start at a later time. DONE and FAILED ATTEMPTS count since the queue was created. ARCHIVED jobs failed for good and are kept. No worker takes jobs from a queue that is PAUSED. RATE is the number of jobs done per second in the last 10 seconds. Below the table is the ETA: when the last pending or waiting job starts if no more jobs come. It is "not before" a time if running jobs of unknown duration hold permits of a concurrency limit.

Limits: PERMITS are those that jobs took, without those that they gave back, per second in the last 10 seconds. ALLOWED and DENIED are how often the limit allowed or denied a job in that time. WAITING is the number of jobs that wait longer for this limit than for their other limits. KEYS is the number of keys that waiting jobs need. SINCE is how long the oldest job has waited that the limit holds back now. ETA is when the last job that needs the limit starts, if jobs settle their costs as in the last 5 minutes. STATE is one of these:

  paused             no permits until "worker limits resume"
  blocked            an upstream's answer blocks the limit
  exhausted          the next permit comes in more than a minute
  will be exhausted  its permits run out before all waiting jobs have run
  saturated          the limit has held a job back for 3 seconds or more: all
                     permits are used as soon as they come
  keys blocked       an upstream's answer blocks some keys of the limit
  flowing            jobs take permits, or wait for less than 3 seconds
  idle               no job needs permits

Workers: CONFIG is the config file with a checksum of its content, RUNNING is the number of jobs that run now, and CONCURRENCY the number that may run at once. LAST SEEN is the time of the last heartbeat; a heartbeat comes every 10 seconds. STATE is one of these:

  running   takes jobs
  draining  takes no new jobs, because of "worker drain"; some still run
  drained   takes no new jobs, and none runs
  stopping  takes no new jobs, and ends when the running ones have ended
  lost      stopped reporting within the last hour without a shutdown`
}

func (c *statusCommand) Run(ctx context.Context, conn *connection, stdio cli.IO) error {
	if c.Batch != "" {
		return c.showBatch(ctx, conn, stdio)
	}
	q, err := conn.queues(ctx)
	if err != nil {
		return err
	}
	warnOfLeft(ctx, conn.conf, stdio)
	scope := conn.conf.Scope
	if !c.Watch {
		return c.once(ctx, q, scope, stdio.Out, cli.JSON)
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		if cli.IsTerminal(stdio.Out) && !c.JSON {
			fmt.Fprint(stdio.Out, "\x1b[H\x1b[J") // clear the screen
		}
		if err := c.once(ctx, q, scope, stdio.Out, cli.JSONLine); err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (c *statusCommand) showBatch(ctx context.Context, conn *connection, stdio cli.IO) error {
	conf, rdb, err := conn.open(ctx)
	if err != nil {
		return err
	}
	b, err := conf.NewClient(rdb).Batch(ctx, c.Batch)
	if err != nil {
		return err
	}
	return cli.Print(stdio.Out, c.JSON, b)
}

// limitStatus is a limit in JSON and in the table. Rates are per second.
type limitStatus struct {
	Limit      string        `json:"name"`
	Definition string        `json:"definition"`
	State      inspect.State `json:"state"`
	Permits    float64       `json:"permits_a_second"`
	Allowed    float64       `json:"allowed_a_second"`
	Denied     float64       `json:"denied_a_second"`
	Waiting    int           `json:"waiting"` // number of jobs that wait longest for this limit
	Keys       int           `json:"keys"`    // number of keys that waiting jobs need
	Since      cli.Seconds   `json:"waiting_since_s"`
	ETA        cli.ETA       `json:"eta_s"`
}

func newLimitStatus(l inspect.Limit, now time.Time) limitStatus {
	return limitStatus{
		l.Name, l.String(), l.State, l.Permits, l.Allowed, l.Denied, l.Waiting, l.KeyCount, cli.Seconds(l.WaitedFor(now)), cli.ETA(l.ETA),
	}
}

func (c *statusCommand) once(ctx context.Context, q *inspect.Queues, scope string, out io.Writer, printJSON func(io.Writer, any) error) error {
	s, err := q.Status(ctx, c.Shards)
	if err != nil {
		return err
	}
	limits := make([]limitStatus, len(s.Limits))
	for i, l := range s.Limits {
		limits[i] = newLimitStatus(l, s.At)
	}
	if !c.JSON {
		return printStatus(out, scope, s, limits)
	}
	var notBefore time.Time
	if s.ETA.AtLeast {
		notBefore = s.At.Add(s.ETA.StartsIn)
	}
	return printJSON(out, struct {
		*inspect.Status
		Limits    []limitStatus `json:"limits"`
		ETA       cli.ETA       `json:"eta_s"`
		NotBefore time.Time     `json:"eta_not_before,omitzero"`
	}{s, limits, cli.ETA(s.ETA), notBefore})
}

func printStatus(out io.Writer, scope string, s *inspect.Status, limits []limitStatus) error {
	err := cli.List(out, false, s.Queues, "there are no queues and no jobs",
		"QUEUE", "PENDING", "WAITING", "RETRY", "SCHEDULED", "ACTIVE", "DONE", "FAILED ATTEMPTS", "ARCHIVED", "RATE", "PAUSED")
	if err != nil {
		return err
	}
	if s.Waiting+s.Pending > 0 {
		fmt.Fprintf(out, "ETA of the last job: %s\n", cli.ETA(s.ETA))
	}
	for _, q := range s.Queues {
		if q.ArchiveGrows() {
			fmt.Fprintf(out, "%s of queue %s were archived in the last hour: \"%s jobs list --queue %s --state archived\" says why\n",
				display.Count(q.ArchivedLately, "job"), q.Queue, cli.Worker, q.Queue)
		}
	}
	for _, f := range s.Foreign {
		fmt.Fprintf(out, "asynq server %s runs jobs of %s without permits: it does not use headgate\n", f, strings.Join(f.Queues, ", "))
	}
	for _, l := range s.Missing {
		fmt.Fprintf(out, "limit %s does not exist: %s for it; %s\n", l.Limit, display.CountVerb(l.Jobs, "job", "waits", "wait"), l.Hint)
	}
	for _, w := range s.Workers {
		for _, j := range w.Stuck {
			if !w.Lost {
				fmt.Fprintf(out, "job %s of type %s has not returned on worker %s:%d since its end %s ago: it keeps its slots of concurrency limits\n",
					cli.Line(j.ID), cli.Line(j.Type), w.Host, w.PID, duration.Text(s.At.Sub(j.Ended).Truncate(time.Second)))
			}
		}
	}
	if s.WithoutRule > 0 {
		fmt.Fprintf(out, "the ETA does not include %s without a known rule\n", display.Count(s.WithoutRule, "pending job"))
	}
	if len(s.Queues) > 0 && !slices.ContainsFunc(s.Workers, func(w stats.Process) bool { return w.State == stats.StateRunning }) {
		fmt.Fprintf(out, "no running worker of scope %s takes jobs; the ETA assumes that one starts now\n", scope)
	}
	if len(limits) > 0 {
		if err := cli.Table(out, limits, "LIMIT", "DEFINITION", "PERMITS", "ALLOWED", "DENIED", "WAITING", "KEYS", "SINCE", "ETA", "STATE"); err != nil {
			return err
		}
	}
	if len(s.Workers) == 0 {
		return nil
	}
	return cli.Table(out, s.Workers, "HOST", "PID", "VERSION", "CONFIG", "RUNNING", "CONCURRENCY", "STARTED", "LAST SEEN", "STATE")
}
