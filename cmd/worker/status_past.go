package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/inspect"
)

func (c *statusCommand) past(ctx context.Context, q *inspect.Queues, out io.Writer, asJSON func(io.Writer, any) error) error {
	p, err := q.Since(ctx, *c.Since)
	if err != nil {
		return err
	}
	if c.JSON {
		return asJSON(out, p)
	}
	var rows [][]string
	for _, s := range p.Slices {
		seconds := min(p.Step, max(1, p.At.Sub(s.From).Seconds()))
		rows = append(rows, []string{
			s.From.Local().Format("2006-01-02 15:04"), fmt.Sprint(s.Done), fmt.Sprint(s.Failed), fmt.Sprint(s.Archived),
			fmt.Sprintf("%.1f/s", float64(s.Done)/seconds), fmt.Sprint(s.Denied), waited(s.WaitP50), waited(s.WaitP99),
		})
	}
	return cli.Table(out, []string{"FROM", "DONE", "FAILED", "ARCHIVED", "RATE", "DENIED", "WAIT P50", "WAIT P99"}, rows)
}

func waited(seconds *float64) string {
	if seconds == nil {
		return "-"
	}
	d := duration(*seconds)
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Second).String()
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
