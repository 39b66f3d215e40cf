package main

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/throttle"
)

type waitingCommand struct {
	JSON bool `help:"Print a JSON array."`
}

// Help is the manual of "worker waiting".
func (waitingCommand) Help() string {
	return `PERMITS IN is when the last of the permits would exist that jobs want of a limit. The jobs may wait longer for another limit: "worker status" says when the last would run.

"worker limits show NAME" lists what waits for a limit by key, and "worker job ID" says where one job stands.`
}

// summary is what waits for a limit, over all its keys.
type summary struct {
	Limit   string   `json:"limit"`
	Keys    int      `json:"keys"`
	Permits int      `json:"permits_wanted"`
	LastIn  *float64 `json:"last_in_s"`
	last    time.Duration
	unsure  bool
}

// Run implements "worker waiting".
func (c *waitingCommand) Run(ctx context.Context, g *cli.Globals, stdio cli.IO) error {
	limiter, done, err := connect(ctx, g)
	if err != nil {
		return err
	}
	defer done()
	limits, err := limiter.Limits(ctx)
	if err != nil {
		return err
	}
	found := []summary{}
	var rows [][]string
	for _, l := range limits {
		s, err := summarize(ctx, limiter, l.Name)
		if err != nil {
			return err
		}
		if s.Keys > 0 {
			found = append(found, s)
			rows = append(rows, []string{s.Limit, fmt.Sprint(s.Keys), fmt.Sprint(s.Permits), lastIn(s.last, s.unsure)})
		}
	}
	if c.JSON {
		return cli.JSON(stdio.Out, found)
	}
	if len(rows) == 0 {
		fmt.Fprintln(stdio.Out, "nothing waits for a permit")
		return nil
	}
	return cli.Table(stdio.Out, []string{"LIMIT", "KEYS", "PERMITS WANTED", "PERMITS IN"}, rows)
}

func summarize(ctx context.Context, limiter *throttle.Lanes, limit string) (summary, error) {
	backlogs, err := limiter.Backlogs(ctx, limit)
	s := summary{Limit: limit, Keys: len(backlogs)}
	for _, b := range backlogs {
		s.Permits += b.Permits
		s.last, s.unsure = max(s.last, b.LastIn), s.unsure || b.Unsure
	}
	s.LastIn = lastSeconds(s.last, s.unsure)
	return s, err
}

// lastIn says when the last permit would exist, if anybody knows.
func lastIn(d time.Duration, unsure bool) string {
	if unsure {
		return "unknown"
	}
	return in(d)
}

// lastSeconds is lastIn in JSON: null where nobody knows.
func lastSeconds(d time.Duration, unsure bool) *float64 {
	if unsure {
		return nil
	}
	s := d.Seconds()
	return &s
}
