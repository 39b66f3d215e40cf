package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/throttle"
)

type limitsCommand struct {
	List   limitsList   `cmd:"" help:"List all limits."`
	Show   limitsShow   `cmd:"" help:"Show one limit, how much waits for it by key, and when the last of that will run."`
	Set    limitsSet    `cmd:"" help:"Change a limit, or make a new one, at once and for everybody. It stays until the limit changes in the config file."`
	Delete limitsDelete `cmd:"" help:"Forget a limit. Jobs that need it are then archived, or what on_no_limit says."`
	Pause  limitsPause  `cmd:"" help:"Hand out no permits of a limit until it is resumed."`
	Resume limitsResume `cmd:"" help:"End a pause."`
	Reset  limitsReset  `cmd:"" help:"Make a limit's count for a key as if never used, and end its block."`
	Peek   limitsPeek   `cmd:"" help:"Say how many permits a limit has for a key, without taking any."`
}

// definition is a limit in JSON.
type definition struct {
	Name     string        `json:"name"`
	Kind     throttle.Kind `json:"kind"`
	Rate     string        `json:"rate,omitempty"`
	Capacity int           `json:"capacity,omitempty"`
	Margin   string        `json:"margin,omitempty"`
	Zone     string        `json:"zone,omitempty"`
	Apps     []string      `json:"apps,omitempty"`
	Lease    string        `json:"lease,omitempty"`
	Paused   bool          `json:"paused"`
}

func newDefinition(l throttle.Limit) definition {
	return definition{
		Name: l.Name, Kind: l.Kind, Rate: l.Rate.String(), Capacity: l.Capacity, Margin: text(l.Margin),
		Zone: l.Zone, Apps: l.Apps, Lease: text(l.Lease), Paused: l.Paused,
	}
}

func text(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

type limitsList struct {
	JSON bool `help:"Print a JSON array."`
}

// Run implements "worker limits list".
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
		d := newDefinition(l)
		state := ""
		if l.Paused {
			state = "paused"
		}
		definitions[i] = d
		rows = append(rows, []string{d.Name, string(d.Kind), d.Rate, number(d.Capacity), d.Margin, d.Zone, strings.Join(d.Apps, ","), state})
	}
	if c.JSON {
		return printJSON(stdio.Out, definitions)
	}
	return cli.Table(stdio.Out, []string{"NAME", "KIND", "RATE", "CAPACITY", "MARGIN", "ZONE", "APPS", "STATE"}, rows)
}

func number(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

type limitsShow struct {
	Name string `arg:"" help:"Name of the limit."`
	JSON bool   `help:"Print a JSON object."`
}

// backlog is what waits for one key, in JSON.
type backlog struct {
	Key     string  `json:"key"`
	Permits int     `json:"permits_wanted"`
	LastIn  float64 `json:"last_in_s"`
}

// Run implements "worker limits show".
func (c *limitsShow) Run(ctx context.Context, g *cli.Globals, stdio cli.IO) error {
	limiter, done, err := connect(ctx, g)
	if err != nil {
		return err
	}
	defer done()
	limit, found, err := find(ctx, limiter, c.Name)
	if err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("%w: %s", throttle.ErrNoLimit, c.Name)
	}
	backlogs, err := limiter.Backlogs(ctx, c.Name)
	if err != nil {
		return err
	}
	waiting := make([]backlog, len(backlogs))
	var rows [][]string
	for i, b := range backlogs {
		waiting[i] = backlog{b.Key, b.Permits, b.LastIn.Seconds()}
		rows = append(rows, []string{keyName(b.Key), fmt.Sprint(b.Permits), in(b.LastIn)})
	}
	if c.JSON {
		return printJSON(stdio.Out, struct {
			definition
			Waiting []backlog `json:"waiting"`
		}{newDefinition(limit), waiting})
	}
	fmt.Fprintf(stdio.Out, "%s  %s\n", limit.Name, limit)
	if len(rows) == 0 {
		fmt.Fprintln(stdio.Out, "nothing waits for it")
		return nil
	}
	return cli.Table(stdio.Out, []string{"KEY", "PERMITS WANTED", "LAST RUNS IN"}, rows)
}

// keyName is a key for people: the empty one is that of limits without keys.
func keyName(key string) string {
	if key == "" {
		return "(all)"
	}
	return key
}

// find looks a limit up by its name.
func find(ctx context.Context, limiter *throttle.Redis, name string) (throttle.Limit, bool, error) {
	limits, err := limiter.Limits(ctx)
	for _, l := range limits {
		if l.Name == name {
			return l, true, err
		}
	}
	return throttle.Limit{Name: name}, false, err
}

type limitsSet struct {
	Name     string         `arg:"" help:"Name of the limit."`
	Kind     *throttle.Kind `placeholder:"KIND" help:"funnel, token_bucket, fixed_window, sliding_log, sliding_window or concurrency."`
	Rate     *throttle.Rate `placeholder:"RATE" help:"Such as 10/s, 2000/day or 1/2s."`
	Capacity *int           `placeholder:"N" help:"The most permits at once."`
	Margin   *time.Duration `placeholder:"DURATION" help:"Room for the jitter of the way to the other side, such as 50ms."`
	Zone     *string        `placeholder:"ZONE" help:"Time zone whose calendar a fixed_window follows, such as Europe/London."`
	Apps     *[]string      `placeholder:"NAME,…" help:"The only apps that may use the limit."`
	Lease    *time.Duration `placeholder:"DURATION" help:"How long a permit of a concurrency limit outlives its worker."`
}

// Help is the manual of "worker limits set".
func (limitsSet) Help() string {
	return `Of a limit that exists, what no flag names stays as it is.`
}

// Run implements "worker limits set".
func (c *limitsSet) Run(ctx context.Context, g *cli.Globals, stdio cli.IO) error {
	limiter, done, err := connect(ctx, g)
	if err != nil {
		return err
	}
	defer done()
	limit, _, err := find(ctx, limiter, c.Name)
	if err != nil {
		return err
	}
	limit = c.change(limit)
	if err := limiter.Set(ctx, limit); err != nil {
		return badUnlessDown(err)
	}
	fmt.Fprintf(stdio.Out, "%s  %s\n", limit.Name, limit)
	return nil
}

// change is the limit with what the flags say. One that becomes another kind
// loses what only the old kind had.
func (c *limitsSet) change(l throttle.Limit) throttle.Limit {
	if c.Kind != nil && *c.Kind != l.Kind {
		l = throttle.Limit{Name: l.Name, Kind: *c.Kind, Rate: l.Rate, Margin: l.Margin, Apps: l.Apps, Paused: l.Paused}
	}
	assign(&l.Rate, c.Rate)
	assign(&l.Capacity, c.Capacity)
	assign(&l.Margin, c.Margin)
	assign(&l.Zone, c.Zone)
	assign(&l.Apps, c.Apps)
	assign(&l.Lease, c.Lease)
	return l
}

func assign[T any](to, value *T) {
	if value != nil {
		*to = *value
	}
}

type limitsPeek struct {
	Name string `arg:"" help:"Name of the limit."`
	Key  string `arg:"" optional:"" help:"The key, for a limit that counts by key."`
	JSON bool   `help:"Print a JSON object."`
}

// Run implements "worker limits peek".
func (c *limitsPeek) Run(ctx context.Context, g *cli.Globals, stdio cli.IO) error {
	limiter, done, err := connect(ctx, g)
	if err != nil {
		return err
	}
	defer done()
	d, err := limiter.Peek(ctx, c.Name, c.Key)
	if err != nil {
		return badUnlessDown(err)
	}
	if d.Outcome == throttle.NoLimit {
		return fmt.Errorf("%w: %s", throttle.ErrNoLimit, c.Name)
	}
	if c.JSON {
		return printJSON(stdio.Out, map[string]any{
			"limit": d.Limit, "key": d.Key, "capacity": d.Capacity, "remaining": d.Remaining,
			"retry_after_s": d.RetryAfter.Seconds(), "reset_after_s": d.ResetAfter.Seconds(),
		})
	}
	fmt.Fprintf(stdio.Out, "%d of %d left", d.Remaining, d.Capacity)
	if d.RetryAfter > 0 {
		fmt.Fprintf(stdio.Out, ", the next in %s", in(d.RetryAfter))
	}
	if d.ResetAfter > 0 {
		fmt.Fprintf(stdio.Out, ", all in %s", in(d.ResetAfter))
	}
	fmt.Fprintln(stdio.Out)
	return nil
}
