package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/internal/duration"
	"github.com/headgate/headgate/internal/forecast"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/waitdb"
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

// definition is a limit with its blocked keys and the keys that differ from it.
type definition struct {
	Name     string        `json:"name"`
	Kind     throttle.Kind `json:"kind"`
	Rate     string        `json:"rate,omitempty"`
	Capacity int           `json:"capacity,omitempty"`
	Margin   string        `json:"margin,omitempty"`
	Zone     string        `json:"zone,omitempty"`
	Apps     []string      `json:"apps,omitempty"`
	Lease    string        `json:"lease,omitempty"`
	MaxBlock string        `json:"max_block,omitempty"`
	Adapt    string        `json:"adapt,omitempty"`
	Paused   bool          `json:"paused"`
	Blocked  []blockedKey  `json:"blocked,omitempty"`
	Keys     []keyState    `json:"keys,omitempty"`

	text, state string
}

type blockedKey struct {
	Key   cli.Text  `json:"key"`
	Until time.Time `json:"until"`
	text  string
}

type keyState struct {
	Key      cli.Text  `json:"key"`
	Rate     string    `json:"rate,omitempty"`
	Capacity int       `json:"capacity,omitempty"`
	Source   string    `json:"source,omitempty"`
	Now      string    `json:"now,omitempty"`
	Why      string    `json:"why,omitempty"`
	Until    time.Time `json:"until,omitzero"`
	text     string
}

func newDefinition(l throttle.Limit, blocks []throttle.Blocked, keys []throttle.KeyState) definition {
	d := definition{
		Name: l.Name, Kind: l.Kind, Rate: l.Rate.String(), Capacity: l.Capacity, Margin: durationText(l.Margin), Zone: l.Zone,
		Apps: l.Apps, Lease: durationText(l.Lease), MaxBlock: durationText(l.MaxBlock), Paused: l.Paused, text: l.String(),
	}
	if l.Adapt != nil {
		d.Adapt = l.Adapt.String()
	}
	for _, b := range blocks {
		d.Blocked = append(d.Blocked, blockedKey{cli.Text(b.Key), b.Until, display.Key(b.Key) + " for " + untilText(b.For)})
	}
	for _, k := range keys {
		d.Keys = append(d.Keys, newKeyState(k))
	}
	switch {
	case d.Paused:
		d.state = "paused"
	case len(d.Blocked) == 1:
		d.state = "blocked: " + d.Blocked[0].text
	case len(d.Blocked) > 1:
		d.state = fmt.Sprintf("blocked: %d keys", len(d.Blocked))
	case len(d.Keys) == 1:
		d.state = "key " + d.Keys[0].text
	case len(d.Keys) > 1:
		d.state = fmt.Sprintf("%d keys with overrides", len(d.Keys))
	}
	return d
}

func newKeyState(k throttle.KeyState) keyState {
	v := keyState{Key: cli.Text(k.Key), Rate: k.Rate.String(), Capacity: k.Capacity, Now: k.Pace, Until: k.Until}
	switch {
	case k.File:
		v.Source = "file"
	case k.Override != throttle.Override{}:
		v.Source = "set"
	}
	var reasons []string // why the key is slowed down
	if k.RateLimited > 0 {
		reasons = append(reasons, fmt.Sprintf("rate limited %d times in a row", k.RateLimited))
	} else if k.Slowed {
		reasons = append(reasons, "was rate limited")
	}
	if k.Pace != "" && k.Latency > 0 {
		reasons = append(reasons, "latency "+duration.Text(k.Latency))
	}
	v.Why = strings.Join(reasons, ", ")

	parts := []string{display.Key(k.Key) + ":"}
	if text := (throttle.Override{Rate: k.Rate, Capacity: k.Capacity}).String(); text != "" {
		parts = append(parts, text)
	}
	if k.For > 0 {
		parts = append(parts, "for "+untilText(k.For))
	}
	if v.Now != "" {
		parts = append(parts, "now "+v.Now)
	}
	if v.Why != "" {
		parts = append(parts, "("+v.Why+")")
	}
	v.text = strings.Join(parts, " ")
	return v
}

// readDefinition returns a limit with its blocks and overrides.
func readDefinition(ctx context.Context, limiter *waitdb.DB, l throttle.Limit) (d definition, err error) {
	blocks, err := limiter.Blocks(ctx, l.Name)
	if err != nil {
		return d, err
	}
	keys, err := limiter.Keys(ctx, l.Name)
	return newDefinition(l, blocks, keys), err
}

type limitsList struct {
	JSON bool `help:"Print a JSON array."`
}

func (c *limitsList) Run(ctx context.Context, q *inspect.Queues, stdio cli.IO) error {
	limits, err := q.Limiter.Limits(ctx)
	if err != nil {
		return err
	}
	definitions := make([]definition, len(limits))
	for i, l := range limits {
		if definitions[i], err = readDefinition(ctx, q.Limiter, l); err != nil {
			return err
		}
	}
	const none = `there are no limits yet: "worker run" defines those of its config, "worker limits set" creates one`
	return cli.List(stdio.Out, c.JSON, definitions, none, "NAME", "KIND", "RATE", "CAPACITY", "MARGIN", "ZONE", "APPS", "STATE")
}

type limitsShow struct {
	Name string `arg:"" help:"Name of the limit."`
	JSON bool   `help:"Print a JSON object."`
}

// backlog is the jobs that wait for a key of a limit.
type backlog struct {
	Key           cli.Text `json:"key"`
	PermitsWanted int      `json:"permits_wanted"`
	etaView
	key string
}

func (c *limitsShow) Run(ctx context.Context, q *inspect.Queues, stdio cli.IO) error {
	limit, _, err := q.Limiter.Internals().Key(ctx, c.Name, "")
	if err != nil {
		return err
	}
	forecast, err := q.Forecast(ctx, forecast.Options{})
	if err != nil {
		return err
	}
	d, err := readDefinition(ctx, q.Limiter, limit)
	if err != nil {
		return err
	}
	waiting := []backlog{}
	for n, last := range forecast.Backlogs(c.Name) {
		waiting = append(waiting, backlog{cli.Text(n.Key), n.Cost, newETA(last), display.Key(n.Key)})
	}
	if c.JSON {
		return cli.JSON(stdio.Out, struct {
			definition
			Waiting []backlog `json:"waiting"`
		}{d, waiting})
	}
	fmt.Fprintf(stdio.Out, "%s  %s\n", d.Name, d.text)
	for _, b := range d.Blocked {
		fmt.Fprintln(stdio.Out, "blocked:", cli.Line(b.text))
	}
	for _, k := range d.Keys {
		fmt.Fprintln(stdio.Out, "key", cli.Line(k.text))
	}
	return cli.List(stdio.Out, false, waiting, "no job waits for it", "KEY", "PERMITS WANTED", "ETA")
}

type limitsPeek struct {
	Name string `arg:"" help:"Name of the limit."`
	keyOf
	JSON bool `help:"Print a JSON object."`
}

func (c *limitsPeek) Run(ctx context.Context, q *inspect.Queues, g *cli.Globals, stdio cli.IO) error {
	key, err := c.required(ctx, g, q.Limiter, c.Name)
	if err != nil {
		return err
	}
	d, err := q.Limiter.AllowN(ctx, c.Name, key, 0)
	if err != nil {
		return usageUnlessDown(err)
	}
	if d.Outcome == throttle.NoLimit {
		return errors.New(d.String())
	}
	if c.JSON {
		return cli.JSON(stdio.Out, map[string]any{
			"limit": c.Name, "key": cli.Text(key), "capacity": d.Capacity, "remaining": d.Remaining,
			"retry_after_s": d.RetryAfter.Seconds(), "reset_after_s": d.ResetAfter.Seconds(),
		})
	}
	limit, _, err := q.Limiter.Internals().Key(ctx, c.Name, "")
	if err != nil {
		return err
	}
	blocks, err := q.Limiter.Blocks(ctx, c.Name)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("%d of %d left", d.Remaining, d.Capacity)
	block := slices.IndexFunc(blocks, func(b throttle.Blocked) bool { return b.Key == key })
	switch {
	case block >= 0:
		text += ", blocked for " + untilText(blocks[block].For)
	case limit.Paused:
		text += ", more when the limit is resumed"
	case d.RetryAfter > 0:
		text += ", the next in " + untilText(d.RetryAfter)
	}
	if block < 0 && d.ResetAfter > 0 {
		text += ", all in " + untilText(d.ResetAfter)
	}
	_, err = fmt.Fprintln(stdio.Out, text)
	return err
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
	Limit         string `json:"limit"`
	Keys          int    `json:"keys"`
	PermitsWanted int    `json:"permits_wanted"`
	etaView
}

func (c *waitingCommand) Run(ctx context.Context, q *inspect.Queues, stdio cli.IO) error {
	demands, err := q.Limiter.Demands(ctx)
	if err != nil {
		return err
	}
	forecast, err := q.Forecast(ctx, forecast.Options{})
	if err != nil {
		return err
	}
	etas, byName := forecast.Limits(), map[string]*limitBacklog{}
	for _, d := range demands {
		if byName[d.Limit] == nil {
			byName[d.Limit] = &limitBacklog{Limit: d.Limit, etaView: newETA(etas[d.Limit])}
		}
		byName[d.Limit].Keys++
		byName[d.Limit].PermitsWanted += d.Permits
	}
	var rows []limitBacklog
	for _, row := range byName {
		rows = append(rows, *row)
	}
	slices.SortFunc(rows, func(a, b limitBacklog) int { return cmp.Compare(a.Limit, b.Limit) })
	return cli.List(stdio.Out, c.JSON, rows, "no job waits for a permit", "LIMIT", "KEYS", "PERMITS WANTED", "ETA")
}
