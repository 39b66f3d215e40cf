package main

import (
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/throttle"
)

type limitsCommand struct {
	List   limitsList   `cmd:"" help:"List all limits."`
	Show   limitsShow   `cmd:"" help:"Show one limit, its backlog by key, and the ETA of each."`
	Set    limitsSet    `cmd:"" help:"Change or create a limit for all workers at once, until the limit changes in the config file."`
	Unset  limitsUnset  `cmd:"" help:"Remove the override of a key."`
	Delete limitsDelete `cmd:"" help:"Delete a limit, until it is set again or a worker loads a config that has it. Jobs that need it are archived, or on_no_limit applies."`
	Pause  limitsPause  `cmd:"" help:"Grant no permits of a limit until it is resumed."`
	Resume limitsResume `cmd:"" help:"Resume a paused limit."`
	Reset  limitsReset  `cmd:"" help:"Reset the count of a key, as if no permit had been taken, and end its block."`
	Peek   limitsPeek   `cmd:"" help:"Show how many permits a key has left, without taking any."`
}

// limitView is a limit with its blocked keys and its overrides.
type limitView struct {
	Name       string    `json:"name"`
	Definition string    `json:"definition"`
	Paused     bool      `json:"paused"`
	Blocked    []keyView `json:"blocked,omitempty"`
	Overrides  []keyView `json:"overrides,omitempty"`

	blocked, overrides int // for the table
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

func newLimitView(l throttle.Limit, blocks []throttle.Blocked, keys []throttle.KeyState) limitView {
	v := limitView{Name: l.Name, Definition: l.String(), Paused: l.Paused, blocked: len(blocks), overrides: len(keys)}
	for _, b := range blocks {
		v.Blocked = append(v.Blocked, keyView{Key: b.Key, Until: b.Until})
	}
	for _, k := range keys {
		v.Overrides = append(v.Overrides, keyView{Key: k.Key, Text: k.String()})
	}
	return v
}

func readLimit(ctx context.Context, q *inspect.Queues, l throttle.Limit) (limitView, error) {
	blocks, keys, err := q.ReadKeys(ctx, l)
	return newLimitView(l, blocks, keys), err
}

type limitsList struct {
	JSON bool `help:"Print a JSON array."`
}

func (c *limitsList) Run(ctx context.Context, q *inspect.Queues, stdio cli.IO) error {
	limits, err := q.Limits(ctx)
	if err != nil {
		return err
	}
	rows := make([]limitView, len(limits))
	for i, l := range limits {
		if rows[i], err = readLimit(ctx, q, l); err != nil {
			return err
		}
	}
	const none = `there are no limits yet: "worker run" defines those of its config, "worker limits set" creates one`
	return cli.List(stdio.Out, c.JSON, rows, none, "NAME", "DEFINITION", "BLOCKED", "OVERRIDES")
}

type limitsShow struct {
	Name string `arg:"" help:"Name of the limit."`
	JSON bool   `help:"Print a JSON object."`
}

// backlog is the jobs that wait for a key of a limit.
type backlog struct {
	Key           string  `json:"key"`
	PermitsWanted int     `json:"permits_wanted"`
	ETA           cli.ETA `json:"eta_s"`
	key           string
}

func (c *limitsShow) Run(ctx context.Context, q *inspect.Queues, stdio cli.IO) error {
	limit, err := q.ReadLimit(ctx, c.Name)
	if err != nil {
		return err
	}
	backlogs, err := q.Backlogs(ctx)
	if err != nil {
		return err
	}
	view, err := readLimit(ctx, q, limit)
	if err != nil {
		return err
	}
	waiting := []backlog{}
	for _, b := range backlogs {
		if b.Limit == c.Name && b.Cost > 0 {
			waiting = append(waiting, backlog{b.Key, b.Cost, cli.ETA(b.Last), display.Key(b.Key)})
		}
	}
	if c.JSON {
		return cli.JSON(stdio.Out, struct {
			limitView
			Waiting []backlog `json:"waiting"`
		}{view, waiting})
	}
	if err := cli.Print(stdio.Out, false, view); err != nil {
		return err
	}
	return cli.List(stdio.Out, false, waiting, "no job waits for it", "KEY", "PERMITS WANTED", "ETA")
}

type limitsPeek struct {
	Name string `arg:"" help:"Name of the limit."`
	keyFlag
	JSON bool `help:"Print a JSON object."`
}

func (c *limitsPeek) Run(ctx context.Context, q *inspect.Queues, g *cli.Globals, stdio cli.IO) error {
	key, err := c.required(g, c.Name)
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
	limit, err := q.ReadLimit(ctx, c.Name)
	if err != nil {
		return err
	}
	blocks, _, err := q.ReadKeys(ctx, limit)
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
	for _, b := range blocks {
		if b.Key == key {
			view.BlockedUntil = b.Until
		}
	}
	return cli.Print(stdio.Out, c.JSON, view)
}

type waitingCommand struct {
	JSON bool `help:"Print a JSON array."`
}

func (waitingCommand) Help() string {
	return `ETA is when the last job that waits for the limit starts if no more jobs come.

"worker limits show NAME" shows the backlog of a limit by key, and "worker job ID" the position of one job.`
}

// limitBacklog is the jobs that wait for a limit.
type limitBacklog struct {
	Limit         string  `json:"limit"`
	Keys          int     `json:"keys"`
	PermitsWanted int     `json:"permits_wanted"`
	ETA           cli.ETA `json:"eta_s"`
}

func (c *waitingCommand) Run(ctx context.Context, q *inspect.Queues, stdio cli.IO) error {
	status, err := q.Status(ctx, false)
	if err != nil {
		return err
	}
	var rows []limitBacklog
	for _, l := range status.Limits {
		if l.KeyCount > 0 {
			rows = append(rows, limitBacklog{l.Name, l.KeyCount, l.Total, cli.ETA(l.ETA)})
		}
	}
	return cli.List(stdio.Out, c.JSON, rows, "no job waits for a permit", "LIMIT", "KEYS", "PERMITS WANTED", "ETA")
}
