package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/internal/duration"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/stats"
	"github.com/headgate/headgate/internal/words"
)

type statusCommand struct {
	Since string `hidden:""` // what it told is in Prometheus
	Watch bool   `short:"w" help:"Say it again each second, until a signal."`
	JSON  bool   `help:"Print a JSON object; with --watch one a second, each on a line."`
}

func (statusCommand) Help() string {
	return `Counts the jobs of each queue and type: pending (in the queue), waiting (for a permit), retry (they failed, or were put back by their handler, and come again), scheduled, running, archived; and, since the scope began, those that are done and those that failed: FAILED counts each job once that failed for good (ARCHIVED are those of them that are still kept), FAILED ATTEMPTS each attempt, of jobs that run again as well. Rate is how many were done a second within the last 10 seconds. END is when the last would be done if nothing else comes: as all their limits together let those run that wait or are pending, and the others at the present rate. It is "not before" a time if it is not known how long jobs hold slots of a concurrency limit.

Of more than 200 jobs of one state in a queue 200 are looked at, and the counts by type are estimates, written as ~1200; those of a whole queue are exact.

Below stand the limits: what each let through and denied a second within the last 10 seconds; how many permits jobs wait for, as a worker counted them some seconds ago, for how many keys and since when; when the last of all that need it would run, whatever else that waits for; and how it stands: paused, blocked, used up, will be used up, saturated (it gives all it has to those who wait), keys blocked, flowing, idle. The page says the same.

Then come the workers: where each runs, which headgate it is and which config it has read, with a sum of what was in it; how many jobs it runs of how many at once; and when it was heard of last, which is every 10 seconds. "gone" is one that ended within the last hour without a word, or does not reach Redis.`
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
		return asJSON(out, struct {
			inspect.Status
			Limits []limitView `json:"limits"`
		}{s, limits})
	}
	return printStatus(s, out, cli.IsTerminal(out))
}

// printStatus writes the status for people, with a bar for each task on a terminal.
func printStatus(s inspect.Status, out io.Writer, bars bool) error {
	titles := []string{"QUEUE", "TASK", "PENDING", "WAITING", "RETRY", "SCHEDULED", "RUNNING", "DONE", "FAILED", "FAILED ATTEMPTS", "ARCHIVED", "RATE", "END"}
	if bars {
		titles = append(titles, "PROGRESS")
	}
	var rows [][]string
	for _, q := range s.Queues {
		name := q.Queue
		if q.Paused {
			name += " (paused)"
		}
		for _, t := range q.Tasks {
			row := append([]string{name, t.Type}, taskCells(t, s.At)...)
			if bars {
				row = append(row, progress(t.Counts.Done+t.Counts.Archived, t.Counts.Left(), 20))
			}
			rows = append(rows, row)
		}
	}
	if err := printList(out, false, nil, titles, rows, "there are no queues, and so no jobs"); err != nil {
		return err
	}
	if s.Uncounted > 0 {
		fmt.Fprintf(out, "%s not counted for END: no rule for them is at hand\n", words.Count(s.Uncounted, "pending job"))
	}
	here := func(w stats.Process) bool { return !w.Gone }
	if len(rows) > 0 && !slices.ContainsFunc(s.Workers, here) {
		fmt.Fprintln(out, "no worker is running: the times are those of one that starts now")
	}
	if err := printLimits(out, s.Limits, s.At); err != nil {
		return err
	}
	return printWorkers(out, s)
}

func taskCells(t inspect.Task, now time.Time) []string {
	c, about := t.Counts, ""
	if t.Estimated {
		about = "~"
	}
	var cells []string
	for _, n := range []int{c.Pending, c.Waiting, c.Retry, c.Scheduled, c.Running} {
		if n == 0 {
			cells = append(cells, "0")
		} else {
			cells = append(cells, fmt.Sprint(about, n))
		}
	}
	cells = append(cells, fmt.Sprint(c.Done), fmt.Sprint(c.Failed), fmt.Sprint(c.FailedAttempts), fmt.Sprint(about, c.Archived), fmt.Sprintf("%.1f/s", t.Rate))
	if c.Left() == 0 {
		return append(cells, "-")
	}
	return append(cells, endsIn(t.Expected(now)))
}

func progress(done, left, width int) string {
	if done+left == 0 {
		return ""
	}
	share := float64(done) / float64(done+left)
	full := int(share * float64(width))
	return fmt.Sprintf("%s%s %d%%", strings.Repeat("█", full), strings.Repeat("░", width-full), int(100*share))
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
		l.Name, l.String(), l.State, l.Allowed, l.Denied, l.Waiting, l.Keys, l.WaitedFor(now).Seconds(), lastSeconds(l.Last), l.Last.About,
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
		if l.Waiting > 0 || !l.Last.Known || l.Last.In > 0 { // pending jobs may need it that have not asked
			last = endsIn(l.Last)
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
		state := "here"
		if w.Gone {
			state = "gone"
		}
		rows = append(rows, []string{
			w.Host, fmt.Sprint(w.PID), w.Version, w.Config, fmt.Sprintf("%d of %d", w.Running, w.Concurrency),
			w.Started.Local().Format("2006-01-02 15:04:05"), w.Seen.Local().Format("15:04:05"), state,
		})
	}
	return cli.Table(out, []string{"WORKER", "PID", "VERSION", "CONFIG", "RUNNING", "STARTED", "SEEN", "STATE"}, rows)
}
