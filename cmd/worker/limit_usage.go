package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/internal/forecast"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/meter"
)

// usageView is how much of a key of a limit is used.
type usageView struct {
	Key           string      `json:"key,omitempty"`
	Used          int         `json:"used"`
	Remaining     int         `json:"remaining"`
	Capacity      int         `json:"capacity"`
	Owed          int         `json:"owed,omitempty"` // permits used beyond the free ones, as after Settle
	PermitsWanted int         `json:"permits_wanted,omitempty"`
	NextPermit    *cli.ETA    `json:"next_permit_in_s,omitempty"`      // only if none is free
	ForJobs       bool        `json:"free_for_waiting_jobs,omitempty"` // none remains, because waiting jobs need the free ones
	ResetAfter    cli.Seconds `json:"reset_after_s"`

	kind string
}

func newUsageView(key string, u inspect.Usage) usageView {
	v := usageView{
		Key: key, Used: u.Used(), Remaining: u.Remaining, Capacity: u.Capacity, Owed: u.Owed,
		PermitsWanted: u.Wanted, ResetAfter: cli.Seconds(u.ResetAfter), kind: u.Kind,
	}
	v.ForJobs = u.Remaining == 0 && u.NextIn == 0
	if u.Remaining == 0 && !v.ForJobs {
		v.NextPermit = new(cli.ETA(forecast.Estimate{Known: u.Known, StartsIn: u.NextIn}))
	}
	return v
}

// String describes the usage in a line of "limits show".
func (v usageView) String() string {
	noun := "permits used"
	if v.kind == meter.Concurrency {
		noun = "slots in use"
	}
	text := fmt.Sprintf("%s of %s %s", display.Number(v.Used), display.Number(v.Capacity), noun)
	if v.Key != "" {
		text = v.Key + ": " + text
	}
	if v.Owed > 0 {
		text += ", " + display.Count(v.Owed, "permit") + " owed"
	}
	if v.ForJobs {
		text += ", the free ones are for waiting jobs"
	}
	if v.NextPermit != nil {
		text += fmt.Sprintf(", the next is free %s", v.NextPermit)
	}
	if v.ResetAfter > 0 && v.kind != meter.Concurrency {
		text += ", all are free in " + cli.Until(time.Duration(v.ResetAfter))
	}
	return text
}

// maxUsageKeys is the maximum number of keys whose usage "limits show" prints.
const maxUsageKeys = 5

// readUsage reads the usage of the keys of a limit for which jobs wait, or of the limit itself if it
// has no keys.
func readUsage(ctx context.Context, conf *config.Config, q *inspect.Queues, limit limitView) (usage []usageView, err error) {
	var keys []string
	for _, b := range limit.Waiting[:min(len(limit.Waiting), maxUsageKeys)] {
		keys = append(keys, b.Key)
	}
	expressions := conf.Tasks.KeysOf(limit.Name)
	if len(keys) == 0 && (len(expressions) == 0 || slices.Contains(expressions, "")) {
		keys = []string{""}
	}
	for _, key := range keys {
		u, err := q.Peek(ctx, limit.Name, key)
		if err != nil {
			return nil, err
		}
		if u.Missing == "" {
			usage = append(usage, newUsageView(key, u))
		}
	}
	return usage, nil
}

type limitsPeek struct {
	limitKey
	JSON bool `help:"Print a JSON object."`
}

func (limitsPeek) Help() string {
	return `REMAINING permits can be taken now. If none remains, NEXT PERMIT is when one is free again. OWED permits were used beyond the free ones, because a call cost more than it had taken: they come back first. PERMITS WANTED is what waiting jobs need; they come before new calls, and if they need all free permits, none remains. RESET AFTER is the time until all permits are free. For a concurrency limit, USED is the number of slots in use.`
}

func (c *limitsPeek) Run(ctx context.Context, conn *connection, q *inspect.Queues, stdio cli.IO) error {
	key, err := c.normalized(conn.conf)
	if err != nil {
		return err
	}
	u, err := q.Peek(ctx, c.Name, key)
	if err != nil {
		return usageUnlessDown(err)
	}
	if u.Missing != "" {
		return errors.New(u.Missing)
	}
	limit, err := q.Definition(ctx, c.Name)
	if err != nil {
		return err
	}
	view := peekView{c.Name, newUsageView(key, u), limit.Paused, time.Time{}}
	for _, b := range limit.Blocks {
		if b.Key == key {
			view.BlockedUntil = b.Until
		}
	}
	return cli.Print(stdio.Out, c.JSON, view)
}

type peekView struct {
	Limit string `json:"limit"`
	usageView
	Paused       bool      `json:"paused,omitempty"`
	BlockedUntil time.Time `json:"blocked_until,omitzero"`
}
