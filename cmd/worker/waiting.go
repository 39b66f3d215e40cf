package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
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

func (c *waitingCommand) job(ctx context.Context, limiter *throttle.Lanes, stdio cli.IO) error {
	jobs, err := limiter.Find(ctx, c.Job)
	if err != nil {
		return err
	}
	places, err := limiter.Places(ctx, jobs...)
	if err != nil {
		return err
	}
	if len(places) == 0 {
		return fmt.Errorf("job %s does not wait for a permit", c.Job)
	}
	for i, job := range slices.SortedFunc(maps.Keys(places), func(a, b throttle.JobID) int { return strings.Compare(a.Queue, b.Queue) }) {
		if c.JSON {
			if err := printJSON(stdio.Out, placeJSON(job, places[job])); err != nil {
				return err
			}
			continue
		}
		if i > 0 {
			fmt.Fprintln(stdio.Out)
		}
		printPlace(stdio.Out, job, places[job])
	}
	return nil
}

// placeJSON leaves the expected time out where nobody knows it.
func placeJSON(job throttle.JobID, p throttle.Place) map[string]any {
	fields := map[string]any{
		"job": job.ID, "queue": job.Queue, "called": p.Called, "position": p.Position, "lane_length": p.Waiting,
		"lane": p.Lane, "binding": p.Binding, "since": p.Since.Format(time.RFC3339Nano),
	}
	if p.Known {
		fields["expected"], fields["expected_in_s"] = p.Expected.Format(time.RFC3339Nano), p.In.Seconds()
	}
	return fields
}

func printPlace(out io.Writer, job throttle.JobID, p throttle.Place) {
	var lane []string
	for _, m := range p.Lane {
		lane = append(lane, meterName(m))
	}
	position := fmt.Sprintf("%d of %d", p.Position, p.Waiting)
	if p.Called {
		position = "called: it is on its way"
	}
	expected := in(p.In)
	if !p.Known {
		expected = "nobody knows: a running job must end, or a limit be resumed"
	}
	fmt.Fprintf(out, "queue     %s\n", job.Queue)
	fmt.Fprintf(out, "lane      %s\n", strings.Join(lane, " + "))
	fmt.Fprintf(out, "position  %s\n", position)
	fmt.Fprintf(out, "binding   %s\n", meterName(p.Binding))
	fmt.Fprintf(out, "waits     %s\n", p.For.Round(time.Second))
	fmt.Fprintf(out, "expected  %s\n", expected)
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

func (c *waitingCommand) summary(ctx context.Context, limiter *throttle.Lanes, stdio cli.IO) error {
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
