package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/scheduler/lanes"
	"github.com/headgate/headgate/throttle"
)

type limitsCommand struct {
	List   limitsList   `cmd:"" help:"List all limits."`
	Show   limitsShow   `cmd:"" help:"Show one limit, how much waits for it by key, and when the last of those jobs would run."`
	Set    limitsSet    `cmd:"" help:"Change a limit, or make a new one, at once and for everybody. It stays until the limit changes in the config file."`
	Unset  limitsUnset  `cmd:"" help:"Have a key of a limit count as the limit says again."`
	Delete limitsDelete `cmd:"" help:"Forget a limit. It stays deleted until it is set again, or a worker that has it in its config starts or reads that again; jobs that need it meanwhile are archived, or what on_no_limit says."`
	Pause  limitsPause  `cmd:"" help:"Hand out no permits of a limit until it is resumed."`
	Resume limitsResume `cmd:"" help:"End a pause."`
	Reset  limitsReset  `cmd:"" help:"Reset what a limit has counted for a key, as if nothing had been taken, and end its block."`
	Peek   limitsPeek   `cmd:"" help:"Say how many permits a limit has for a key, without taking any."`
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
	Blocked  []block       `json:"blocked,omitempty"`
	Keys     []key         `json:"keys,omitempty"`
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

type limitsList struct {
	JSON bool `help:"Print a JSON array."`
}

func (c *limitsList) Run(ctx context.Context, g *cli.Globals, stdio cli.IO) error {
	limiter, done, err := connect(ctx, g)
	if err != nil {
		return err
	}
	defer done()
	limits, err := limiter.Limits(ctx)
	if err != nil {
		return err
	}
	definitions := make([]definition, len(limits))
	var rows [][]string
	for i, l := range limits {
		blocks, err := limiter.Blocks(ctx, l.Name)
		if err != nil {
			return err
		}
		keys, err := limiter.Keys(ctx, l.Name)
		if err != nil {
			return err
		}
		d := newDefinition(l, blocks, keys)
		definitions[i] = d
		rows = append(rows, []string{d.Name, string(d.Kind), d.Rate, number(d.Capacity), d.Margin, d.Zone, strings.Join(d.Apps, ","), d.state()})
	}
	if c.JSON {
		return cli.JSON(stdio.Out, definitions)
	}
	if len(rows) == 0 {
		fmt.Fprintln(stdio.Out, "there are no limits yet: \"worker run\" brings those of its config, and \"worker limits set\" makes one")
		return nil
	}
	return cli.Table(stdio.Out, []string{"NAME", "KIND", "RATE", "CAPACITY", "MARGIN", "ZONE", "APPS", "STATE"}, rows)
}

type limitsShow struct {
	Name string `arg:"" help:"Name of the limit."`
	JSON bool   `help:"Print a JSON object."`
}

type backlog struct {
	Key     cli.Text `json:"key"`
	Permits int      `json:"permits_wanted"`
	LastIn  *float64 `json:"last_in_s"`
	About   bool     `json:"about,omitempty"`
}

func (c *limitsShow) Run(ctx context.Context, g *cli.Globals, stdio cli.IO) error {
	q, err := openQueues(ctx, g)
	if err != nil {
		return err
	}
	defer q.Close()
	limiter := q.Limiter
	limit, found, err := find(ctx, limiter, c.Name)
	if err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("%w: %s", throttle.ErrNoLimit, c.Name)
	}
	forecast, err := q.Forecast(ctx, lanes.ForecastOptions{})
	if err != nil {
		return err
	}
	blocks, err := limiter.Blocks(ctx, c.Name)
	if err != nil {
		return err
	}
	waiting := []backlog{}
	var rows [][]string
	for n, last := range forecast.Backlogs(c.Name) {
		waiting = append(waiting, backlog{cli.Text(n.Key), n.Cost, lastSeconds(last), last.About})
		rows = append(rows, []string{keyName(n.Key), fmt.Sprint(n.Cost), lastIn(last)})
	}
	keys, err := limiter.Keys(ctx, c.Name)
	if err != nil {
		return err
	}
	d := newDefinition(limit, blocks, keys)
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
	if len(rows) == 0 {
		fmt.Fprintln(stdio.Out, "nothing waits for it")
		return nil
	}
	return cli.Table(stdio.Out, []string{"KEY", "PERMITS WANTED", "LAST RUNS IN"}, rows)
}
