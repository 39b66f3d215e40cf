package main

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/throttle"
)

type throttleCommand struct {
	Key      string `arg:"" help:"Key to count under."`
	MaxBurst int    `arg:"" help:"Number of calls that can pass at once after the first one."`
	Count    int    `arg:"" help:"Number of calls that can pass in a period."`
	Period   int    `arg:"" help:"The period, in seconds."`
	Quantity int    `arg:"" default:"1" help:"Number of permits to take; 0 takes none."`
	JSON     bool   `help:"Print a JSON object: limited, limit, remaining, retry_after_s, reset_after_s, and never, which is true if the quantity is above the burst."`
}

func (throttleCommand) Help() string {
	return `Prints redis-cell's five lines: 0 if allowed and 1 if limited, the largest burst (MAX-BURST + 1), the remaining permits, the seconds until a retry succeeds (-1 if allowed, or if it never can), and the seconds until the key is back to full. The exit code is 0 for both answers.`
}

func (c *throttleCommand) Run(ctx context.Context, q *inspect.Queues, stdio cli.IO) error {
	const longest = math.MaxInt64 / int(time.Second) // in seconds; a longer period would overflow time.Duration
	period := time.Duration(max(-longest, min(c.Period, longest))) * time.Second
	d, err := q.Limiter.Throttle(ctx, c.Key, c.MaxBurst, c.Count, period, c.Quantity)
	if err != nil {
		return usageUnlessDown(err)
	}
	retryAfter := -1.0 // redis-cell's value if the call is allowed, or no retry can succeed
	if d.Outcome == throttle.Denied {
		retryAfter = d.RetryAfter.Seconds()
	}
	if c.JSON {
		return cli.JSON(stdio.Out, map[string]any{
			"limited": !d.OK(), "limit": d.Capacity, "remaining": d.Remaining, "never": d.Outcome == throttle.Impossible,
			"retry_after_s": retryAfter, "reset_after_s": d.ResetAfter.Seconds(),
		})
	}
	limited := 0
	if !d.OK() {
		limited = 1
	}
	// Seconds are rounded up, so that a caller that waits for so long does not retry too early.
	fmt.Fprintf(stdio.Out, "%d\n%d\n%d\n%.0f\n%.0f\n", limited, d.Capacity, d.Remaining, math.Ceil(retryAfter), math.Ceil(d.ResetAfter.Seconds()))
	if d.Outcome == throttle.Impossible {
		fmt.Fprintf(stdio.Err, "%s: quantity %d is above %d, the most that can pass at once\n", cli.Worker, c.Quantity, d.Capacity)
	}
	return nil
}
