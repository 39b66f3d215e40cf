package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/shard"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// usageUnlessDown turns the limiter's error about an argument into a usage error.
func usageUnlessDown(err error) error {
	if err == nil || errors.Is(err, throttle.ErrUnavailable) || errors.Is(err, throttle.ErrNoLimit) {
		return err
	}
	return cli.Usagef("%w", err)
}

// limitAction changes a limit in each of its shards.
type limitAction struct {
	Name string `arg:"" help:"Name of the limit."`

	done string // for the confirmation
	do   func(l *waitdb.DB, ctx context.Context, limit string) error
}

func (c *limitAction) Run(ctx context.Context, q *inspect.Queues, stdio cli.IO) error {
	err := q.EachPlace(c.Name, nil, func(l *waitdb.DB, _ shard.Shard) error { return c.do(l, ctx, c.Name) })
	return confirm(stdio, usageUnlessDown(err), "%s %s", c.done, c.Name)
}

type limitsDelete struct {
	Yes bool `help:"Delete it even if jobs wait for it."`
	limitAction
}

func (c *limitsDelete) Run(ctx context.Context, q *inspect.Queues, stdio cli.IO) error {
	n, err := q.CountWaiting(ctx, c.Name, func(shard.Shard) int { return 0 })
	if err == nil && n > 0 && !c.Yes {
		err = cli.Usagef("limit %s has %s waiting, which are then archived, or on_no_limit applies; add --yes to confirm", c.Name, display.Count(n, "job"))
	}
	if err != nil {
		return usageUnlessDown(err)
	}
	return c.limitAction.Run(ctx, q, stdio)
}

// limitKey is a key of a limit.
type limitKey struct {
	Name string  `arg:"" help:"Name of the limit."`
	Key  *string `placeholder:"KEY" help:"Key, if the limit counts by key."`
}

// normalized returns the key in the form that the jobs of the limit use. It is an error if none is
// given and the limit counts by key, because no job uses the meter without a key then.
func (c limitKey) normalized(conf *config.Config) (string, error) {
	if c.Key != nil && *c.Key != "" {
		key, err := conf.Tasks.Key(c.Name, *c.Key)
		return key, usageUnlessDown(err)
	}
	keys := conf.Tasks.KeysOf(c.Name)
	if len(keys) == 0 || slices.Contains(keys, "") {
		return "", nil
	}
	slices.Sort(keys)
	return "", cli.Usagef("limit %s counts by key (%s): want --key KEY", c.Name, strings.Join(slices.Compact(keys), ", "))
}

// each changes the key in each shard that counts it.
func (c limitKey) each(ctx context.Context, q *inspect.Queues, key string, do func(l *waitdb.DB, ctx context.Context, limit, key string) error) error {
	return usageUnlessDown(q.EachPlace(c.Name, &key, func(l *waitdb.DB, _ shard.Shard) error { return do(l, ctx, c.Name, key) }))
}

type limitsReset struct{ limitKey }

func (c *limitsReset) Run(ctx context.Context, conn *connection, q *inspect.Queues, stdio cli.IO) error {
	key, err := c.normalized(conn.conf)
	if err != nil {
		return err
	}
	text := c.Name
	if key != "" {
		text += " of " + key
	}
	return confirm(stdio, c.each(ctx, q, key, (*waitdb.DB).Reset), "reset %s", text)
}

type limitsUnset struct {
	Yes bool `help:"Confirm, if waiting jobs could then never run."`
	limitKey
}

func (limitsUnset) Help() string {
	return `An override of the config file is restored only when its entry in the file changes.`
}

func (c *limitsUnset) Run(ctx context.Context, conn *connection, q *inspect.Queues, stdio cli.IO) error {
	if c.Key == nil {
		return cli.Usagef("no key of %s is given: want --key KEY", c.Name)
	}
	key, err := c.normalized(conn.conf)
	if err == nil && !c.Yes {
		err = confirmed(q.KeyChangeImpact(ctx, c.Name, key, throttle.Override{}))
	}
	if err != nil {
		return err
	}
	return confirm(stdio, c.each(ctx, q, key, (*waitdb.DB).UnsetKey), "unset %s of %s", c.Name, key)
}

type limitsSet struct {
	limitKey
	Kind     throttle.Kind  `placeholder:"KIND" help:"funnel, token_bucket, fixed_window, sliding_log, sliding_window or concurrency."`
	Rate     throttle.Rate  `placeholder:"RATE" help:"Rate, such as 10/s, 2000/day or 1/2s."`
	Capacity *int           `placeholder:"N" help:"Largest number of permits at once."`
	Margin   *time.Duration `placeholder:"DURATION" help:"Allowance for network jitter, such as 50ms."`
	Zone     *string        `placeholder:"ZONE" help:"Time zone of the calendar of a fixed_window, such as Europe/London."`
	Apps     *[]string      `placeholder:"NAME,…" help:"The only apps that may use the limit."`
	Lease    *time.Duration `placeholder:"DURATION" help:"How long a permit of a concurrency limit outlives a crashed worker."`
	MaxBlock *time.Duration `placeholder:"DURATION" help:"Longest time that an upstream's answer can block a key, such as 1h (default: a day, or the period if that is longer)."`
	Yes      bool           `help:"Confirm, if waiting jobs could then never run."`
}

func (limitsSet) Help() string {
	return `Settings without a flag keep their value, but a limit of another kind keeps only its apps and max_block. A definition in a config file replaces the change, with a warning, when a worker first reads the file or when the definition in the file changes.

--key overrides the rate or capacity of one key, at once, until "worker limits unset". Permits that were taken stay taken. For a fixed_window an override has another count in the same period.`
}

func (c *limitsSet) Run(ctx context.Context, conn *connection, q *inspect.Queues, stdio cli.IO) error {
	switch {
	case c.Capacity != nil && *c.Capacity < 1:
		return cli.Usagef("--capacity %d: want at least 1; use \"worker limits pause %s\" to grant no permits", *c.Capacity, c.Name)
	case c.Key != nil:
		return c.setKey(ctx, conn.conf, q, stdio)
	}
	before, err := q.Definition(ctx, c.Name)
	isNew := errors.Is(err, throttle.ErrNoLimit)
	if err != nil && !isNew {
		return err
	}
	was := before.Limit
	was.Name = c.Name
	limit := c.change(was)
	if isNew && (limit.Kind == "" || limit.Rate == throttle.Rate{} && limit.Capacity == 0) {
		return cli.Usagef("there is no limit %s: a new limit needs --kind and --rate, or --kind concurrency and --capacity", c.Name)
	}
	if !c.Yes {
		if err := confirmed(q.LimitChangeImpact(ctx, was, limit)); err != nil {
			return err
		}
	}
	return confirm(stdio, usageUnlessDown(q.SetLimit(ctx, limit)), "%s  %s", limit.Name, limit)
}

func (c *limitsSet) setKey(ctx context.Context, conf *config.Config, q *inspect.Queues, stdio cli.IO) error {
	if c.Kind != "" || c.Margin != nil || c.Zone != nil || c.Apps != nil || c.Lease != nil || c.MaxBlock != nil {
		return cli.Usagef("a key can override only the rate and the capacity: want --rate or --capacity with --key")
	}
	o := throttle.Override{Rate: c.Rate}
	assign(&o.Capacity, c.Capacity)
	key, err := conf.Tasks.Key(c.Name, *c.Key)
	if err != nil {
		return usageUnlessDown(err)
	}
	if !c.Yes {
		if err := confirmed(q.KeyChangeImpact(ctx, c.Name, key, o)); err != nil {
			return err
		}
	}
	return confirm(stdio, usageUnlessDown(q.SetKey(ctx, c.Name, key, o)), "%s of %s  %s", c.Name, display.Key(key), o)
}

// confirmed returns an error if a change has an impact on waiting jobs: the user must add --yes.
func confirmed(impact string, err error) error {
	if err == nil && impact != "" {
		err = cli.Usagef("%s; add --yes to confirm", impact)
	}
	return err
}

// change applies the flags to l. If the kind changes, only apps and max_block of the old limit are
// kept.
func (c *limitsSet) change(l throttle.Limit) throttle.Limit {
	if c.Kind != "" && c.Kind != l.Kind {
		l = throttle.Limit{Name: l.Name, Kind: c.Kind, Apps: l.Apps, MaxBlock: l.MaxBlock}
	}
	l.Rate = cmp.Or(c.Rate, l.Rate)
	assign(&l.Capacity, c.Capacity)
	assign(&l.Margin, c.Margin)
	assign(&l.Zone, c.Zone)
	assign(&l.Apps, c.Apps)
	assign(&l.Lease, c.Lease)
	assign(&l.MaxBlock, c.MaxBlock)
	return l
}

func assign[T any](to, value *T) {
	if value != nil {
		*to = *value
	}
}
