package main

import (
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
	Blocked  []blockView   `json:"blocked,omitempty"`
	Keys     []keyView     `json:"keys,omitempty"`
}

func newDefinition(l throttle.Limit, blocks []throttle.Blocked, keys []throttle.KeyState) definition {
	adapt := ""
	if l.Adapt != nil {
		adapt = l.Adapt.String()
	}
	return definition{
		Keys: newKeys(keys), Adapt: adapt,
		Name: l.Name, Kind: l.Kind, Rate: l.Rate.String(), Capacity: l.Capacity, Margin: text(l.Margin),
		Zone: l.Zone, Apps: l.Apps, Lease: text(l.Lease), MaxBlock: text(l.MaxBlock), Paused: l.Paused, Blocked: newBlocks(blocks),
	}
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
	var rows [][]string
	for i, l := range limits {
		d, err := readDefinition(ctx, q.Limiter, l)
		if err != nil {
			return err
		}
		definitions[i] = d
		rows = append(rows, []string{d.Name, string(d.Kind), d.Rate, number(d.Capacity), d.Margin, d.Zone, strings.Join(d.Apps, ","), d.state()})
	}
	const none = `there are no limits yet: "worker run" defines those of its config, "worker limits set" creates one`
	return printList(stdio.Out, c.JSON, definitions, []string{"NAME", "KIND", "RATE", "CAPACITY", "MARGIN", "ZONE", "APPS", "STATE"}, rows, none)
}

type limitsShow struct {
	Name string `arg:"" help:"Name of the limit."`
	JSON bool   `help:"Print a JSON object."`
}

type backlog struct {
	Key     cli.Text `json:"key"`
	Permits int      `json:"permits_wanted"`
	ETA     *float64 `json:"eta_s"`
	About   bool     `json:"eta_estimated,omitempty"`
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
	var rows [][]string
	for n, last := range forecast.Backlogs(c.Name) {
		waiting = append(waiting, backlog{cli.Text(n.Key), n.Cost, etaSeconds(last), last.Estimated})
		rows = append(rows, []string{display.Key(n.Key), fmt.Sprint(n.Cost), etaText(last)})
	}
	if c.JSON {
		return cli.JSON(stdio.Out, struct {
			definition
			Waiting []backlog `json:"waiting"`
		}{d, waiting})
	}
	fmt.Fprintf(stdio.Out, "%s  %s\n", limit.Name, limit)
	for _, b := range d.Blocked {
		fmt.Fprintf(stdio.Out, "blocked: %s\n", cli.Foreign(b.String()))
	}
	for _, k := range d.Keys {
		fmt.Fprintf(stdio.Out, "key %s\n", cli.Foreign(k.String()))
	}
	return printList(stdio.Out, false, nil, []string{"KEY", "PERMITS WANTED", "ETA"}, rows, "no job waits for it")
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
	fmt.Fprintf(stdio.Out, "%d of %d left", d.Remaining, d.Capacity)
	if i := slices.IndexFunc(blocks, func(b throttle.Blocked) bool { return b.Key == key }); i >= 0 {
		fmt.Fprintf(stdio.Out, ", blocked for %s\n", in(blocks[i].For))
		return nil
	}
	if limit.Paused {
		fmt.Fprintf(stdio.Out, ", more when the limit is resumed")
	} else if d.RetryAfter > 0 {
		fmt.Fprintf(stdio.Out, ", the next in %s", in(d.RetryAfter))
	}
	if d.ResetAfter > 0 {
		fmt.Fprintf(stdio.Out, ", all in %s", in(d.ResetAfter))
	}
	fmt.Fprintln(stdio.Out)
	return nil
}

type blockView struct {
	Key   cli.Text  `json:"key"`
	Until time.Time `json:"until"`
	rest  time.Duration
}

func newBlocks(from []throttle.Blocked) []blockView {
	blocks := make([]blockView, len(from))
	for i, b := range from {
		blocks[i] = blockView{cli.Text(b.Key), b.Until, b.For}
	}
	return blocks
}

func (b blockView) String() string {
	return fmt.Sprintf("%s for %s", display.Key(string(b.Key)), in(b.rest))
}

// state says in a few words why a limit grants less than it could.
func (d definition) state() string {
	switch {
	case d.Paused:
		return "paused"
	case len(d.Blocked) == 1:
		return "blocked: " + d.Blocked[0].String()
	case len(d.Blocked) > 1:
		return fmt.Sprintf("blocked: %d keys", len(d.Blocked))
	case len(d.Keys) == 1:
		return "key " + d.Keys[0].String()
	case len(d.Keys) > 1:
		return fmt.Sprintf("%d keys with overrides", len(d.Keys))
	}
	return ""
}

type keyView struct {
	Key      cli.Text   `json:"key"`
	Rate     string     `json:"rate,omitempty"`
	Capacity int        `json:"capacity,omitempty"`
	Source   string     `json:"source,omitempty"`
	Now      string     `json:"now,omitempty"`
	Why      string     `json:"why,omitempty"`
	Until    *time.Time `json:"until,omitempty"`
	rest     time.Duration
}

func newKeys(from []throttle.KeyState) []keyView {
	keys := make([]keyView, len(from))
	for i, k := range from {
		keys[i] = keyView{Key: cli.Text(k.Key), Rate: k.Rate.String(), Capacity: k.Capacity, Now: k.Pace, Why: why(k), rest: k.For}
		switch {
		case k.File:
			keys[i].Source = "file"
		case k.Override != throttle.Override{}:
			keys[i].Source = "set"
		}
		if !k.Until.IsZero() {
			keys[i].Until = &k.Until
		}
	}
	return keys
}

// why says why a key is slowed down.
func why(k throttle.KeyState) string {
	var reasons []string
	if k.RateLimited > 0 {
		reasons = append(reasons, fmt.Sprintf("rate limited %d times in a row", k.RateLimited))
	} else if k.Slowed {
		reasons = append(reasons, "was rate limited")
	}
	if k.Pace != "" && k.Latency > 0 {
		reasons = append(reasons, "latency "+duration.Text(k.Latency))
	}
	return strings.Join(reasons, ", ")
}

// String returns text such as "slow.example: 1/10s for 2h0m0s".
func (k keyView) String() string {
	text := throttle.Override{Capacity: k.Capacity}.String()
	text = strings.TrimSpace(k.Rate + " " + text)
	if k.rest > 0 {
		text += " for " + in(k.rest)
	}
	if k.Now != "" {
		text = strings.TrimSpace(text + " now " + k.Now)
	}
	if k.Why != "" {
		text = strings.TrimSpace(text + " (" + k.Why + ")")
	}
	return fmt.Sprintf("%s: %s", display.Key(string(k.Key)), text)
}

type waitingCommand struct {
	JSON bool `help:"Print a JSON array."`
}

func (waitingCommand) Help() string {
	return `ETA is when the last job that waits for the limit starts if no more jobs come.

"worker limits show NAME" shows the backlog of a limit by key, and "worker job ID" the position of one job.`
}

type summary struct {
	Limit   string   `json:"limit"`
	Keys    int      `json:"keys"`
	Permits int      `json:"permits_wanted"`
	ETA     *float64 `json:"eta_s"`
	About   bool     `json:"eta_estimated,omitempty"`
}

func (c *waitingCommand) Run(ctx context.Context, q *inspect.Queues, stdio cli.IO) error {
	wants, err := q.Limiter.Demands(ctx)
	if err != nil {
		return err
	}
	forecast, err := q.Forecast(ctx, forecast.Options{})
	if err != nil {
		return err
	}
	lasts := forecast.Limits()
	found := summaries(wants, lasts)
	var rows [][]string
	for _, s := range found {
		rows = append(rows, []string{s.Limit, fmt.Sprint(s.Keys), fmt.Sprint(s.Permits), etaText(lasts[s.Limit])})
	}
	return printList(stdio.Out, c.JSON, found, []string{"LIMIT", "KEYS", "PERMITS WANTED", "ETA"}, rows, "no job waits for a permit")
}

func summaries(wants []waitdb.Demand, lasts map[string]forecast.Estimate) []summary {
	found := []summary{}
	slices.SortFunc(wants, func(a, b waitdb.Demand) int { return strings.Compare(a.Limit, b.Limit) })
	for _, w := range wants {
		if len(found) == 0 || found[len(found)-1].Limit != w.Limit {
			last := lasts[w.Limit]
			found = append(found, summary{Limit: w.Limit, ETA: etaSeconds(last), About: last.Estimated})
		}
		s := &found[len(found)-1]
		s.Keys, s.Permits = s.Keys+1, s.Permits+w.Permits
	}
	return found
}
