package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/internal/duration"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/stats"
)

type statusCommand struct {
	Since string `hidden:""` // gone, with an error that says where to look
	Watch bool   `short:"w" help:"Repeat each second until a signal."`
	JSON  bool   `help:"Print a JSON object; with --watch one a second, each on a line."`
}

func (statusCommand) Help() string {
	return `Queues: PENDING jobs are in the queue, WAITING jobs wait for permits, RETRY jobs failed or were put back by their handler. DONE and FAILED count since the scope was created: FAILED counts jobs that failed for good (ARCHIVED are those that are still kept), FAILED ATTEMPTS counts every attempt. RATE is the number of jobs done per second in the last 10 seconds. Below the table is the ETA: when the last pending or waiting job starts if no more jobs come. It is "not before" a time if jobs hold slots of a concurrency limit for an unknown time.

Limits: ALLOWED and DENIED are per second in the last 10 seconds. WAITING is the number of permits that jobs wait for, counted by a worker some seconds ago, KEYS for how many keys, and SINCE how long. ETA is when the last job that needs the limit starts. STATE is paused, blocked, exhausted, will be exhausted, saturated (waiting jobs use all of it), keys blocked, flowing or idle.

Workers: CONFIG is the config file with a checksum of its content, RUNNING how many jobs run of how many at once, SEEN the last heartbeat, which comes every 10 seconds. A worker is "lost" if it ended without a word within the last hour, or cannot reach Redis.`
}

func (c *statusCommand) Run(ctx context.Context, conn *connection, stdio cli.IO) error {
	if c.Since != "" {
		return cli.Usagef("--since %s: Redis keeps the last 16 minutes only; query Prometheus, which scrapes the workers' /metrics, for earlier data", c.Since)
	}
	q, err := conn.queues(ctx)
	if err != nil {
		return err
	}
	if !c.Watch {
		return c.once(ctx, q, stdio.Out, cli.JSON)
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		if cli.IsTerminal(stdio.Out) && !c.JSON {
			fmt.Fprint(stdio.Out, "\x1b[H\x1b[J") // clear the screen
		}
		if err := c.once(ctx, q, stdio.Out, cli.JSONLine); err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (c *statusCommand) once(ctx context.Context, q *inspect.Queues, out io.Writer, asJSON func(io.Writer, any) error) error {
	s, err := q.Status(ctx)
	if err != nil {
		return err
	}
	if c.JSON {
		limits := make([]limitView, len(s.Limits))
		for i, l := range s.Limits {
			limits[i] = newLimitView(l, s.At)
		}
		var notBefore time.Time
		if s.ETA.AtLeast {
			notBefore = s.At.Add(s.ETA.StartsIn)
		}
		return asJSON(out, struct {
			inspect.Status
			Limits    []limitView `json:"limits"`
			ETA       *float64    `json:"eta_s"` // null if unknown
			Estimated bool        `json:"eta_estimated,omitempty"`
			NotBefore time.Time   `json:"eta_not_before,omitzero"`
		}{s, limits, etaSeconds(s.ETA), s.ETA.Estimated, notBefore})
	}
	return printStatus(s, out)
}

func printStatus(s inspect.Status, out io.Writer) error {
	titles := []string{"QUEUE", "PENDING", "WAITING", "RETRY", "SCHEDULED", "RUNNING", "DONE", "FAILED", "FAILED ATTEMPTS", "ARCHIVED", "RATE"}
	var rows [][]string
	for _, q := range s.Queues {
		name := q.Queue
		if q.Paused {
			name += " (paused)"
		}
		counts := numbers(q.Pending, q.Waiting, q.Retry, q.Scheduled, q.Running, q.Done, q.Failed, q.FailedAttempts, q.Archived)
		rows = append(rows, slices.Concat([]string{name}, counts, []string{fmt.Sprintf("%.1f/s", q.Rate)}))
	}
	if err := printList(out, false, nil, titles, rows, "there are no queues and no jobs"); err != nil {
		return err
	}
	if s.HasBacklog {
		fmt.Fprintf(out, "ETA of the last job: %s\n", inETA(s.ETA))
	}
	if s.Uncounted > 0 {
		fmt.Fprintf(out, "the ETA does not include %s without a known rule\n", display.Count(s.Uncounted, "pending job"))
	}
	alive := func(w stats.Process) bool { return !w.Lost }
	if len(rows) > 0 && !slices.ContainsFunc(s.Workers, alive) {
		fmt.Fprintln(out, "no worker is running; the ETA assumes that one starts now")
	}
	if err := printLimits(out, s.Limits, s.At); err != nil {
		return err
	}
	return printWorkers(out, s)
}

type limitView struct {
	Name    string        `json:"name"`
	Rate    string        `json:"limit"`
	State   inspect.State `json:"state"`
	Allowed float64       `json:"allowed_a_second"`
	Denied  float64       `json:"denied_a_second"`
	Waiting int           `json:"waiting"` // permits
	Keys    int           `json:"keys"`    // of the waiting jobs
	Since   float64       `json:"waiting_since_s"`
	ETA     *float64      `json:"eta_s"` // null if unknown
	About   bool          `json:"eta_estimated,omitempty"`
}

func newLimitView(l inspect.Limit, now time.Time) limitView {
	return limitView{
		l.Name, l.String(), l.State, l.Allowed, l.Denied, l.Waiting, l.Keys, l.WaitedFor(now).Seconds(), etaSeconds(l.ETA), l.ETA.Estimated,
	}
}

func printLimits(out io.Writer, limits []inspect.Limit, now time.Time) error {
	if len(limits) == 0 {
		return nil
	}
	var rows [][]string
	for _, l := range limits {
		since, last := "-", "-"
		if l.Waiting > 0 {
			since = duration.Text(l.WaitedFor(now))
		}
		if l.Waiting > 0 || !l.ETA.Known || l.ETA.StartsIn > 0 { // pending jobs may need it, too
			last = inETA(l.ETA)
		}
		rows = append(rows, []string{
			l.Name, l.String(), fmt.Sprintf("%.1f/s", l.Allowed), fmt.Sprintf("%.1f/s", l.Denied),
			fmt.Sprint(l.Waiting), fmt.Sprint(l.Keys), since, last, string(l.State),
		})
	}
	return cli.Table(out, []string{"LIMIT", "IS", "ALLOWED", "DENIED", "WAITING", "KEYS", "SINCE", "ETA", "STATE"}, rows)
}

func printWorkers(out io.Writer, s inspect.Status) error {
	if len(s.Workers) == 0 {
		return nil
	}
	var rows [][]string
	for _, w := range s.Workers {
		state := "alive"
		if w.Lost {
			state = "lost"
		}
		rows = append(rows, []string{
			w.Host, fmt.Sprint(w.PID), w.Version, w.Config, fmt.Sprintf("%d of %d", w.Running, w.Concurrency),
			w.Started.Local().Format("2006-01-02 15:04:05"), w.LastSeen.Local().Format("15:04:05"), state,
		})
	}
	return cli.Table(out, []string{"WORKER", "PID", "VERSION", "CONFIG", "RUNNING", "STARTED", "SEEN", "STATE"}, rows)
}
