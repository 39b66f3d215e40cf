package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/throttle"
)

type waitingCommand struct {
	Job  string `arg:"" optional:"" help:"Id of a job. Without one, all limits that anything waits for."`
	JSON bool   `help:"Print JSON."`
}

// Run implements "worker waiting".
func (c *waitingCommand) Run(ctx context.Context, g *cli.Globals, stdio cli.IO) error {
	limiter, done, err := connect(ctx, g)
	if err != nil {
		return err
	}
	defer done()
	if c.Job == "" {
		return c.summary(ctx, limiter, stdio)
	}
	return c.job(ctx, limiter, stdio)
}

func (c *waitingCommand) job(ctx context.Context, limiter *throttle.Redis, stdio cli.IO) error {
	place, waits, err := limiter.Waiting(ctx, c.Job)
	if err != nil {
		return err
	}
	if !waits {
		return fmt.Errorf("job %s does not wait for a permit", c.Job)
	}
	if c.JSON {
		return printJSON(stdio.Out, map[string]any{
			"job": c.Job, "called": place.Called, "position": place.Position, "lane_length": place.Waiting,
			"lane": place.Lane, "binding": place.Binding,
			"expected": place.Expected.Format(time.RFC3339Nano), "expected_in_s": place.In.Seconds(),
		})
	}
	var lane []string
	for _, m := range place.Lane {
		lane = append(lane, meterName(m))
	}
	position := fmt.Sprintf("%d of %d", place.Position, place.Waiting)
	if place.Called {
		position = "called: its permits are kept for it"
	}
	fmt.Fprintf(stdio.Out, "lane      %s\n", strings.Join(lane, " + "))
	fmt.Fprintf(stdio.Out, "position  %s\n", position)
	fmt.Fprintf(stdio.Out, "binding   %s\n", meterName(place.Binding))
	fmt.Fprintf(stdio.Out, "expected  %s\n", in(place.In))
	return nil
}

// meterName is limit|key for people.
func meterName(meter string) string {
	limit, key, _ := strings.Cut(meter, "|")
	if key == "" {
		return limit
	}
	return limit + " of " + key
}

// summary is what waits for a limit, over all its keys.
type summary struct {
	Limit   string  `json:"limit"`
	Keys    int     `json:"keys"`
	Permits int     `json:"permits_wanted"`
	LastIn  float64 `json:"last_in_s"`
}

func (c *waitingCommand) summary(ctx context.Context, limiter *throttle.Redis, stdio cli.IO) error {
	limits, err := limiter.Limits(ctx)
	if err != nil {
		return err
	}
	found := []summary{}
	var rows [][]string
	for _, l := range limits {
		backlogs, err := limiter.Backlogs(ctx, l.Name)
		if err != nil {
			return err
		}
		if len(backlogs) == 0 {
			continue
		}
		s := summary{Limit: l.Name, Keys: len(backlogs)}
		var last time.Duration
		for _, b := range backlogs {
			s.Permits += b.Permits
			last = max(last, b.LastIn)
		}
		s.LastIn = last.Seconds()
		found = append(found, s)
		rows = append(rows, []string{s.Limit, fmt.Sprint(s.Keys), fmt.Sprint(s.Permits), in(last)})
	}
	if c.JSON {
		return printJSON(stdio.Out, found)
	}
	if len(rows) == 0 {
		fmt.Fprintln(stdio.Out, "nothing waits for a permit")
		return nil
	}
	return cli.Table(stdio.Out, []string{"LIMIT", "KEYS", "PERMITS WANTED", "LAST RUNS IN"}, rows)
}
