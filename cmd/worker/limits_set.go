package main

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/spare"
	"github.com/headgate/headgate/throttle"
)

type limitsSet struct {
	Name     string         `arg:"" help:"Name of the limit."`
	Kind     *throttle.Kind `placeholder:"KIND" help:"funnel, token_bucket, fixed_window, sliding_log, sliding_window or concurrency."`
	Rate     *throttle.Rate `placeholder:"RATE" help:"Such as 10/s, 2000/day or 1/2s."`
	Capacity *int           `placeholder:"N" help:"The most permits at once."`
	Margin   *time.Duration `placeholder:"DURATION" help:"Room for jitter on the way to the other side, such as 50ms."`
	Zone     *string        `placeholder:"ZONE" help:"Time zone whose calendar a fixed_window follows, such as Europe/London."`
	Apps     *[]string      `placeholder:"NAME,…" help:"The only apps that may use the limit."`
	Lease    *time.Duration `placeholder:"DURATION" help:"How long a permit of a concurrency limit outlives its worker."`
	MaxBlock *time.Duration `placeholder:"DURATION" help:"The longest that an answer of the other side shuts a key, such as 1h; without it a day, or the period if that is longer."`
	Key      *string        `placeholder:"KEY" help:"Only for this key: --rate, --capacity or both."`
	For      *time.Duration `placeholder:"DURATION" help:"With --key: for how long, such as 2h. Without it until it is unset."`
	Yes      bool           `help:"Change it even if jobs wait that it then refuses."`
	confirming
}

func (limitsSet) Help() string {
	return `Of a limit that exists, what no flag names stays as it is. A config file that has the limit replaces it, with a warning, when a worker reads it for the first time and when it changes there.

With --key only that key counts otherwise, at once, until it ends or "worker limits unset"; what it owes in permits stays owed. A key of a fixed_window has another count for the same period.`
}

func (c *limitsSet) Run(ctx context.Context, g *cli.Globals, stdio cli.IO) error {
	limiter, done, err := connect(ctx, g)
	if err != nil {
		return err
	}
	defer done()
	if c.Key != nil {
		return c.setKey(ctx, limiter, stdio)
	}
	if c.For != nil {
		return cli.Usagef("--for is for a key of a limit: want --key beside it")
	}
	limit, found, err := find(ctx, limiter, c.Name)
	if err != nil {
		return err
	}
	was := limit
	if limit = c.change(limit); !found && (limit.Kind == "" || limit.Rate == throttle.Rate{} && limit.Capacity == 0) {
		return cli.Usagef("there is no limit %s yet: a new one needs --kind and --rate, or --kind concurrency and --capacity", c.Name)
	}
	if !c.Yes {
		if err := spared(spare.Check(ctx, limiter, was, limit)); err != nil {
			return err
		}
	}
	if err := limiter.Set(ctx, limit); err != nil {
		return badUnlessDown(err)
	}
	did := confirmation{Done: "set", Limit: limit.Name, Definition: limit.String()}
	return c.say(stdio.Out, did, fmt.Sprintf("%s  %s", limit.Name, limit))
}

// spared is an error where a change would hit jobs that wait, as package spare says.
func spared(hit string, err error) error {
	if err == nil && hit != "" {
		err = cli.Usagef("%s; add --yes if that is meant", hit)
	}
	return err
}

// change is the limit with what the flags say. One that becomes another kind
// loses what only the old kind had.
func (c *limitsSet) change(l throttle.Limit) throttle.Limit {
	if c.Kind != nil && *c.Kind != l.Kind {
		l = become(l, *c.Kind)
	}
	assign(&l.Rate, c.Rate)
	assign(&l.Capacity, c.Capacity)
	assign(&l.Margin, c.Margin)
	assign(&l.Zone, c.Zone)
	assign(&l.Apps, c.Apps)
	assign(&l.Lease, c.Lease)
	assign(&l.MaxBlock, c.MaxBlock)
	return l
}

func become(l throttle.Limit, kind throttle.Kind) throttle.Limit {
	isBucket := func(k throttle.Kind) bool { return k == throttle.Funnel || k == throttle.TokenBucket }
	if !isBucket(l.Kind) || !isBucket(kind) {
		l.Capacity = 0
	}
	l.Kind, l.Zone, l.Lease = kind, "", 0
	switch kind {
	case throttle.Concurrency:
		l.Rate, l.Margin, l.Adapt = throttle.Rate{}, 0, nil
	case throttle.FixedWindow:
		l.Adapt = nil
	}
	return l
}

func assign[T any](to, value *T) {
	if value != nil {
		*to = *value
	}
}
