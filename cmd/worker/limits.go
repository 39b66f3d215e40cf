package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/internal/forecast"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

type limitsCommand struct {
	List   limitsList   `cmd:"" help:"List all limits, and what jobs wait for."`
	Show   limitsShow   `cmd:"" help:"Show one limit, its waiting jobs by key, and the ETA of each."`
	Set    limitsSet    `cmd:"" help:"Change or create a limit for all workers at once, until the limit changes in the config file."`
	Unset  limitsUnset  `cmd:"" help:"Remove the override of a key."`
	Delete limitsDelete `cmd:"" help:"Delete a limit, until it is set again or a worker loads a config that has it. Jobs that need it are archived, or on_no_limit applies."`
	Pause  limitAction  `cmd:"" help:"Grant no permits of a limit until it is resumed."`
	Resume limitAction  `cmd:"" help:"Resume a paused limit."`
	Reset  limitsReset  `cmd:"" help:"Reset the count of a key, as if no permit had been taken, and end its block."`
	Peek   limitsPeek   `cmd:"" help:"Show how many permits a key has left, without taking any."`
}

func newLimitsCommand() limitsCommand {
	return limitsCommand{
		Pause:  limitAction{done: "paused", do: (*waitdb.DB).Pause},
		Resume: limitAction{done: "resumed", do: (*waitdb.DB).Resume},
		Delete: limitsDelete{limitAction: limitAction{done: "deleted", do: (*waitdb.DB).Delete}},
	}
}

// limitView is a limit with the jobs that wait for it, its blocked keys and its overrides.
type limitView struct {
	Name          string        `json:"name"`
	Definition    string        `json:"definition"`
	Paused        bool          `json:"paused"`
	Keys          int           `json:"keys"`           // for which jobs wait
	PermitsWanted int           `json:"permits_wanted"` // by these jobs
	ETA           *cli.ETA      `json:"eta_s,omitempty"`
	Waiting       []backlogView `json:"waiting,omitempty"`
	Blocked       []keyView     `json:"blocked,omitempty"`
	Overrides     []keyView     `json:"overrides,omitempty"`

	blocked, overrides int // for the table
}

// backlogView is the jobs that wait for a key of a limit.
type backlogView struct {
	Key           string  `json:"key"`
	PermitsWanted int     `json:"permits_wanted"`
	ETA           cli.ETA `json:"eta_s"`
}

func (b backlogView) String() string {
	return fmt.Sprintf("%s: %s, the last job starts in %s", display.Key(b.Key), display.Count(b.PermitsWanted, "permit"), b.ETA)
}

type keyView struct {
	Key   string    `json:"key"`
	Text  string    `json:"text,omitempty"` // how it differs from the limit, and why
	Until time.Time `json:"until,omitzero"`
}

func (k keyView) String() string {
	text := display.Key(k.Key)
	if k.Text != "" {
		text += ": " + k.Text
	}
	if !k.Until.IsZero() {
		text += " for " + cli.Until(time.Until(k.Until))
	}
	return text
}

// limitViews returns the views of limits.
func limitViews(status *inspect.Status, limits ...inspect.Definition) []limitView {
	views := make([]limitView, len(limits))
	for i, l := range limits {
		v := limitView{Name: l.Name, Definition: l.String(), Paused: l.Paused}
		var last *forecast.Estimate
		for _, d := range status.Demand[l.Name] {
			eta := status.KeyETA(l.Name, d.Key)
			if eta == nil {
				continue
			}
			if last == nil {
				last = new(*eta)
			}
			*last = eta.OrLater(*last)
			v.Waiting = append(v.Waiting, backlogView{d.Key, d.Permits, cli.ETA(*eta)})
			v.Keys++
			v.PermitsWanted += d.Permits
		}
		v.ETA = (*cli.ETA)(last)
		for _, b := range l.Blocks {
			v.Blocked = append(v.Blocked, keyView{Key: b.Key, Until: b.Until})
		}
		for _, k := range l.Keys {
			v.Overrides = append(v.Overrides, keyView{Key: k.Key, Text: k.String()})
		}
		v.blocked, v.overrides = len(l.Blocks), len(l.Keys)
		views[i] = v
	}
	return views
}

type limitsList struct {
	Shards bool `help:"Show the part of each shard of a queue."`
	JSON   bool `help:"Print a JSON array."`
}

func (limitsList) Help() string {
	return `KEYS is the number of keys for which jobs wait, PERMITS WANTED what these jobs need. ETA is when the last of them starts if no more jobs come.

"worker limits show NAME" shows this by key, and "worker job ID" the position of one job.`
}

func (c *limitsList) Run(ctx context.Context, q *inspect.Queues, stdio cli.IO) error {
	limits, err := q.Definitions(ctx, c.Shards)
	if err != nil {
		return err
	}
	status, err := q.Status(ctx, c.Shards)
	if err != nil {
		return err
	}
	const none = `there are no limits yet: "worker run" defines those of its config, "worker limits set" creates one`
	return cli.List(stdio.Out, c.JSON, limitViews(status, limits...), none, "NAME", "DEFINITION", "KEYS", "PERMITS WANTED", "ETA", "BLOCKED", "OVERRIDES")
}

type limitsShow struct {
	Name string `arg:"" help:"Name of the limit."`
	JSON bool   `help:"Print a JSON object."`
}

func (c *limitsShow) Run(ctx context.Context, q *inspect.Queues, stdio cli.IO) error {
	limit, err := q.Definition(ctx, c.Name)
	if err != nil {
		return err
	}
	status, err := q.Status(ctx, false)
	if err != nil {
		return err
	}
	return cli.Print(stdio.Out, c.JSON, limitViews(status, limit)[0])
}

type limitsPeek struct {
	limitKey
	JSON bool `help:"Print a JSON object."`
}

func (c *limitsPeek) Run(ctx context.Context, conn *connection, q *inspect.Queues, stdio cli.IO) error {
	key, err := c.normalized(conn.conf)
	if err != nil {
		return err
	}
	d, err := q.Peek(ctx, c.Name, key)
	if err != nil {
		return usageUnlessDown(err)
	}
	if d.Outcome == throttle.NoLimit {
		return errors.New(d.String())
	}
	limit, err := q.Definition(ctx, c.Name)
	if err != nil {
		return err
	}
	view := struct {
		Limit        string      `json:"limit"`
		Key          string      `json:"key,omitempty"`
		Remaining    int         `json:"remaining"`
		Capacity     int         `json:"capacity"`
		RetryAfter   cli.Seconds `json:"retry_after_s"`
		ResetAfter   cli.Seconds `json:"reset_after_s"`
		Paused       bool        `json:"paused,omitempty"`
		BlockedUntil time.Time   `json:"blocked_until,omitzero"`
	}{c.Name, key, d.Remaining, d.Capacity, cli.Seconds(d.RetryAfter), cli.Seconds(d.ResetAfter), limit.Paused, time.Time{}}
	for _, b := range limit.Blocks {
		if b.Key == key {
			view.BlockedUntil = b.Until
		}
	}
	return cli.Print(stdio.Out, c.JSON, view)
}
