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
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/shard"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// ofLimit is embedded by commands that do one thing to a limit.
type ofLimit struct {
	Name string `arg:"" help:"Name of the limit."`
	confirming
}

// done prints what was done to the limit or to a key, or returns the error.
func (c ofLimit) done(stdio cli.IO, done, key string, err error) error {
	text := done + " " + c.Name
	if key != "" {
		text += " of " + key
	}
	return c.confirm(stdio.Out, confirmation{Done: done, Limit: c.Name, Key: key}, text, usageUnlessDown(err))
}

// usageUnlessDown turns the limiter's error about an argument into a usage error.
func usageUnlessDown(err error) error {
	if err == nil || errors.Is(err, throttle.ErrUnavailable) || errors.Is(err, throttle.ErrNoLimit) {
		return err
	}
	return cli.Usagef("%w", err)
}

type limitsPause struct{ ofLimit }

func (c *limitsPause) Run(ctx context.Context, q *inspect.Queues, stdio cli.IO) error {
	return c.done(stdio, "paused", "", q.EachPlace(c.Name, nil, func(l *waitdb.DB, _ shard.Shard) error { return l.Pause(ctx, c.Name) }))
}

type limitsResume struct{ ofLimit }

func (c *limitsResume) Run(ctx context.Context, q *inspect.Queues, stdio cli.IO) error {
	return c.done(stdio, "resumed", "", q.EachPlace(c.Name, nil, func(l *waitdb.DB, _ shard.Shard) error { return l.Resume(ctx, c.Name) }))
}

type limitsDelete struct {
	Yes bool `help:"Delete it even if jobs wait for it."`
	ofLimit
}

func (c *limitsDelete) Run(ctx context.Context, q *inspect.Queues, stdio cli.IO) error {
	n, err := q.CountWaiting(ctx, c.Name, func(shard.Shard) int { return 0 }, nil)
	if err == nil && n > 0 && !c.Yes {
		err = cli.Usagef("limit %s has %s waiting, which are then archived, or on_no_limit applies; add --yes to confirm", c.Name, display.Count(n, "job"))
	}
	if err == nil {
		err = q.EachPlace(c.Name, nil, func(l *waitdb.DB, _ shard.Shard) error { return l.Delete(ctx, c.Name) })
	}
	return c.done(stdio, "deleted", "", err)
}

type limitsReset struct {
	ofLimit
	keyFlag
}

func (c *limitsReset) Run(ctx context.Context, q *inspect.Queues, g *cli.Globals, stdio cli.IO) error {
	key, err := c.required(g, c.Name)
	if err == nil {
		err = q.EachPlace(c.Name, &key, func(l *waitdb.DB, _ shard.Shard) error { return l.Reset(ctx, c.Name, key) })
	}
	return c.done(stdio, "reset", key, err)
}

// canonicalKey returns a key in the form that the jobs of the limit use.
func canonicalKey(g *cli.Globals, limit, key string) (string, error) {
	conf, err := g.Load()
	if err != nil {
		return "", err
	}
	if key, err = conf.Tasks.Key(limit, key); err != nil {
		return "", cli.Usagef("%w", err)
	}
	return key, nil
}

type keyFlag struct {
	Key *string `placeholder:"KEY" help:"Key, if the limit counts by key."`
}

// required returns the key. It is an error if none is given and the limit counts by key, because no
// job uses the meter without a key then.
func (k keyFlag) required(g *cli.Globals, limit string) (string, error) {
	if k.Key != nil && *k.Key != "" {
		return canonicalKey(g, limit, *k.Key)
	}
	conf, err := g.Load()
	if err != nil {
		return "", err
	}
	keys := conf.Tasks.KeysOf(limit)
	if len(keys) == 0 || slices.Contains(keys, "") {
		return "", nil
	}
	slices.Sort(keys)
	return "", cli.Usagef("limit %s counts by key (%s): want --key KEY", limit, strings.Join(slices.Compact(keys), ", "))
}

type limitsUnset struct {
	Yes bool `help:"Confirm, if waiting jobs could then never run."`
	ofLimit
	keyFlag
}

func (limitsUnset) Help() string {
	return `An override of the config file is restored only when its entry in the file changes.`
}

func (c *limitsUnset) Run(ctx context.Context, q *inspect.Queues, g *cli.Globals, stdio cli.IO) error {
	if c.Key == nil {
		return cli.Usagef("no key of %s is given: want --key KEY", c.Name)
	}
	key, err := canonicalKey(g, c.Name, *c.Key)
	if err != nil {
		return err
	}
	if !c.Yes {
		if err := confirmed(q.KeyChangeImpact(ctx, c.Name, key, throttle.Override{})); err != nil {
			return err
		}
	}
	return c.done(stdio, "unset", key, q.EachPlace(c.Name, &key, func(l *waitdb.DB, _ shard.Shard) error { return l.UnsetKey(ctx, c.Name, key) }))
}

type limitsSet struct {
	Name     string         `arg:"" help:"Name of the limit."`
	Kind     throttle.Kind  `placeholder:"KIND" help:"funnel, token_bucket, fixed_window, sliding_log, sliding_window or concurrency."`
	Rate     throttle.Rate  `placeholder:"RATE" help:"Rate, such as 10/s, 2000/day or 1/2s."`
	Capacity *int           `placeholder:"N" help:"Largest number of permits at once."`
	Margin   *time.Duration `placeholder:"DURATION" help:"Allowance for network jitter, such as 50ms."`
	Zone     *string        `placeholder:"ZONE" help:"Time zone of the calendar of a fixed_window, such as Europe/London."`
	Apps     *[]string      `placeholder:"NAME,…" help:"The only apps that may use the limit."`
	Lease    *time.Duration `placeholder:"DURATION" help:"How long a permit of a concurrency limit outlives a crashed worker."`
	MaxBlock *time.Duration `placeholder:"DURATION" help:"Longest time that an upstream's answer can block a key, such as 1h (default: a day, or the period if that is longer)."`
	Key      *string        `placeholder:"KEY" help:"Change only this key: --rate, --capacity or both."`
	Yes      bool           `help:"Confirm, if waiting jobs could then never run."`
	confirming
}

func (limitsSet) Help() string {
	return `Settings without a flag keep their value, but a limit of another kind keeps only its apps and max_block. A definition in a config file replaces the change, with a warning, when a worker first reads the file or when the definition in the file changes.

--key overrides the rate or capacity of one key, at once, until "worker limits unset". Permits that were taken stay taken. For a fixed_window an override has another count in the same period.`
}

func (c *limitsSet) Run(ctx context.Context, q *inspect.Queues, g *cli.Globals, stdio cli.IO) error {
	if c.Capacity != nil && *c.Capacity < 1 {
		return cli.Usagef("--capacity %d: want at least 1; use \"worker limits pause %s\" to grant no permits", *c.Capacity, c.Name)
	}
	if c.Key != nil {
		key, err := canonicalKey(g, c.Name, *c.Key)
		if err != nil {
			return err
		}
		return c.setKey(ctx, q, key, stdio)
	}
	was, err := q.ReadLimit(ctx, c.Name)
	isNew := errors.Is(err, throttle.ErrNoLimit)
	if err != nil && !isNew {
		return err
	}
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
	did := confirmation{Done: "set", Limit: limit.Name, Definition: limit.String()}
	return c.confirm(stdio.Out, did, fmt.Sprintf("%s  %s", limit.Name, limit), usageUnlessDown(q.SetLimit(ctx, limit)))
}

func (c *limitsSet) setKey(ctx context.Context, q *inspect.Queues, key string, stdio cli.IO) error {
	if c.Kind != "" || c.Margin != nil || c.Zone != nil || c.Apps != nil || c.Lease != nil || c.MaxBlock != nil {
		return cli.Usagef("a key can override only the rate and the capacity: want --rate or --capacity with --key")
	}
	o := throttle.Override{Rate: c.Rate}
	assign(&o.Capacity, c.Capacity)
	if !c.Yes {
		if err := confirmed(q.KeyChangeImpact(ctx, c.Name, key, o)); err != nil {
			return err
		}
	}
	did := confirmation{Done: "set", Limit: c.Name, Key: key, Definition: o.String()}
	return c.confirm(stdio.Out, did, fmt.Sprintf("%s of %s  %s", c.Name, display.Key(key), o), usageUnlessDown(q.SetKey(ctx, c.Name, key, o)))
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
