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
	Since string `hidden:""` // what it told is in Prometheus
	Watch bool   `short:"w" help:"Say it again each second, until a signal."`
	JSON  bool   `help:"Print a JSON object; with --watch one a second, each on a line."`
}

func (statusCommand) Help() string {
	return `Counts the jobs of each queue: pending (in the queue), waiting (for a permit), retry (they failed, or were put back by their handler, and come again), scheduled, running, archived; and, since the scope began, those that are done and those that failed: FAILED counts each job once that failed for good (ARCHIVED are those of them that are still kept), FAILED ATTEMPTS each attempt, of jobs that run again as well. RATE is how many were done a second within the last 10 seconds. Below it says when the last job would run that waits or is pending if nothing else comes, as all their limits together let them run. It is "not before" a time if it is not known how long jobs hold slots of a concurrency limit.

Below stand the limits: what each let through and denied a second within the last 10 seconds; how many permits jobs wait for, as a worker counted them some seconds ago, for how many keys and since when; when the last of all that need it would run, whatever else that waits for; and how it stands: paused, blocked, used up, will be used up, saturated (it gives all it has to those who wait), keys blocked, flowing, idle. The page says the same.

Then come the workers: where each runs, which headgate it is and which config it has read, with a sum of what was in it; how many jobs it runs of how many at once; and when it was seen last, which is every 10 seconds. A "lost" worker ended within the last hour without stopping, or cannot reach Redis.`
}

func (c *statusCommand) Run(ctx context.Context, conn *connection, stdio cli.IO) error {
	if c.Since != "" {
		return cli.Usagef("--since %s: Redis keeps the last 16 minutes only; ask Prometheus, which reads the workers' /metrics, for what was before", c.Since)
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
			fmt.Fprint(stdio.Out, "\x1b[H\x1b[J") // to the top, and all below away
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
			LastIn    *float64    `json:"last_in_s"` // of all jobs; null where it is not known
			About     bool        `json:"last_about,omitempty"`
			NotBefore time.Time   `json:"last_not_before,omitzero"`
		}{s, limits, lastSeconds(s.ETA), s.ETA.Estimated, notBefore})
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
	if err := printList(out, false, nil, titles, rows, "there are no queues, and so no jobs"); err != nil {
		return err
	}
	if s.HasBacklog {
		fmt.Fprintf(out, "the last job runs: %s\n", endsIn(s.ETA))
	}
	if s.Uncounted > 0 {
		fmt.Fprintf(out, "%s not counted for LAST: no rule for them is at hand\n", display.Count(s.Uncounted, "pending job"))
	}
	here := func(w stats.Process) bool { return !w.Lost }
	if len(rows) > 0 && !slices.ContainsFunc(s.Workers, here) {
		fmt.Fprintln(out, "no worker is running: the times are those of one that starts now")
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
	Keys    int           `json:"keys"`    // that they wait for
	Since   float64       `json:"waiting_since_s"`
	LastIn  *float64      `json:"last_in_s"` // null where nobody knows
	About   bool          `json:"last_about,omitempty"`
}

func newLimitView(l inspect.Limit, now time.Time) limitView {
	return limitView{
		l.Name, l.String(), l.State, l.Allowed, l.Denied, l.Waiting, l.Keys, l.WaitedFor(now).Seconds(), lastSeconds(l.ETA), l.ETA.Estimated,
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
		if l.Waiting > 0 || !l.ETA.Known || l.ETA.StartsIn > 0 { // pending jobs may need it that have not asked
			last = endsIn(l.ETA)
		}
		rows = append(rows, []string{
			l.Name, l.String(), fmt.Sprintf("%.1f/s", l.Allowed), fmt.Sprintf("%.1f/s", l.Denied),
			fmt.Sprint(l.Waiting), fmt.Sprint(l.Keys), since, last, string(l.State),
		})
	}
	return cli.Table(out, []string{"LIMIT", "IS", "ALLOWED", "DENIED", "WAITING", "KEYS", "SINCE", "LAST", "STATE"}, rows)
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
