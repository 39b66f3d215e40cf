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
	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/internal/forecast"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/shard"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

type limitsCommand struct {
	List   limitsList                  `cmd:"" help:"List all limits, and what jobs wait for."`
	Show   limitsShow                  `cmd:"" help:"Show one limit, its waiting jobs by key, and the ETA of each."`
	Set    limitsSet                   `cmd:"" help:"Change or create a limit for all workers at once. The change ends when the limit changes in the config file."`
	Unset  limitsUnset                 `cmd:"" help:"End a change of \"limits set\": restore the limit as the config has it, or remove the override of a key."`
	Delete limitsDelete                `cmd:"" help:"Delete a limit. Jobs that need it wait until it exists again, unless on_no_limit says otherwise. It exists again when it is set, or when a worker loads a config that has it."`
	Pause  nameAction[*inspect.Queues] `cmd:"" set:"what=limit" help:"Grant no permits of a limit until it is resumed."`
	Resume nameAction[*inspect.Queues] `cmd:"" set:"what=limit" help:"Resume a paused limit."`
	Reset  limitsReset                 `cmd:"" help:"Reset the count of a key, as if no permit had been taken, and end its block."`
	Peek   limitsPeek                  `cmd:"" help:"Show how many permits a new call could take of a key now, without taking any."`
}

func newLimitsCommand() (c limitsCommand) {
	c.Pause.do = changeLimit("paused", (*waitdb.DB).Pause)
	c.Resume.do = changeLimit("resumed", (*waitdb.DB).Resume)
	return c
}

// changeLimit returns a function that changes a limit in each of its shards.
func changeLimit(done string, change func(l *waitdb.DB, ctx context.Context, limit string) error) func(*inspect.Queues, context.Context, string) (string, error) {
	return func(q *inspect.Queues, ctx context.Context, name string) (string, error) {
		err := q.EachPlace(name, nil, func(l *waitdb.DB, _ shard.Shard) error { return change(l, ctx, name) })
		return done + " " + name, usageUnlessDown(err)
	}
}

// limitView is a limit with its waiting jobs, and its keys that differ from other keys.
type limitView struct {
	Name          string        `json:"name"`
	Definition    string        `json:"definition"`
	Config        string        `json:"config,omitempty"` // what the config says, if the limit was set at run time
	SetBy         string        `json:"set_by,omitempty"`
	SetAt         time.Time     `json:"set_at,omitzero"`
	Paused        bool          `json:"paused"`
	Keys          int           `json:"keys"`           // number of keys for which jobs wait
	PermitsWanted int           `json:"permits_wanted"` // permits that the waiting jobs need
	ETA           *cli.ETA      `json:"eta_s,omitempty"`
	Usage         []usageView   `json:"usage,omitempty"` // only in "limits show"
	Waiting       []backlogView `json:"waiting,omitempty"`
	Blocked       []keyView     `json:"blocked,omitempty"`
	Overrides     []keyView     `json:"overrides,omitempty"`
	Adapted       []keyView     `json:"adapted,omitempty"` // keys without an override whose rate follows the upstream's answers

	definition string // the column DEFINITION of the list
}

// addOrigin says who set the limit at run time, and what the config says.
func (v *limitView) addOrigin(o throttle.Origin) {
	v.definition = v.Definition
	if !o.Set {
		return
	}
	v.SetBy, v.SetAt = cmp.Or(o.By, "unknown"), o.At.UTC()
	config := "in no config"
	if o.Config != nil {
		v.Config = o.Config.String()
		config = "config: " + v.Config
	}
	v.definition += fmt.Sprintf(" (set by %s %s; %s)", v.SetBy, cli.DateTime(o.At), config)
}

// backlogView describes the jobs that wait for a key of a limit.
type backlogView struct {
	Key           string  `json:"key"`
	PermitsWanted int     `json:"permits_wanted"`
	ETA           cli.ETA `json:"eta_s"`
}

func (b backlogView) String() string {
	return fmt.Sprintf("%s: %s, the last job starts %s", display.Key(b.Key), display.Count(b.PermitsWanted, "permit"), b.ETA)
}

type keyView struct {
	Key   string    `json:"key"`
	Text  string    `json:"text,omitempty"` // rate and capacity, and why they differ; empty for a block
	Until time.Time `json:"until,omitzero"` // end of the block; zero for a key that is not blocked
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

func limitViews(ctx context.Context, q *inspect.Queues, byShard bool, limits ...inspect.Definition) ([]limitView, error) {
	status, err := q.Status(ctx, byShard)
	if err != nil {
		return nil, err
	}
	var views []limitView
	for _, l := range limits {
		v := limitView{Name: l.Name, Definition: l.String(), Paused: l.Paused}
		v.addOrigin(l.Origin)
		for _, d := range status.Demand[l.Name] {
			eta := status.KeyETA(l.Name, d.Key)
			if eta == nil {
				continue
			}
			if v.ETA == nil {
				v.ETA = (*cli.ETA)(eta)
			}
			v.ETA = new(cli.ETA(eta.OrLater(forecast.Estimate(*v.ETA))))
			v.Waiting = append(v.Waiting, backlogView{d.Key, d.Permits, cli.ETA(*eta)})
			v.Keys++
			v.PermitsWanted += d.Permits
		}
		for _, b := range l.Blocks {
			v.Blocked = append(v.Blocked, keyView{Key: b.Key, Until: b.Until})
		}
		for _, k := range l.Keys {
			list := &v.Overrides
			if k.Override == (throttle.Override{}) {
				list = &v.Adapted
			}
			*list = append(*list, keyView{Key: k.Key, Text: k.String()})
		}
		views = append(views, v)
	}
	return views, nil
}

type limitsList struct {
	Shards bool `help:"Show the part of each shard of a queue."`
	JSON   bool `help:"Print a JSON array."`
}

func (limitsList) Help() string {
	return `KEYS is the number of keys for which jobs wait. PERMITS WANTED is the number of permits that these jobs need. ETA is when the last of these jobs starts if no more jobs come. BLOCKED and OVERRIDES are numbers of keys. A limit that was set at run time has its author, and the definition in the config that a worker loaded last; "worker limits unset NAME" restores that.

"worker limits show NAME" shows this by key, and "worker job ID" the position of one job.`
}

func (c *limitsList) Run(ctx context.Context, q *inspect.Queues, stdio cli.IO) error {
	limits, err := q.Definitions(ctx, c.Shards)
	if err != nil {
		return err
	}
	views, err := limitViews(ctx, q, c.Shards, limits...)
	if err != nil {
		return err
	}
	const none = `there are no limits yet: "worker run" creates the limits of its config, and "worker limits set" creates one`
	return cli.List(stdio.Out, c.JSON, views, none, "NAME", "DEFINITION", "KEYS", "PERMITS WANTED", "ETA", "BLOCKED", "OVERRIDES")
}

type limitsShow struct {
	Name string `arg:"" help:"Name of the limit."`
	JSON bool   `help:"Print a JSON object."`
}

func (c *limitsShow) Run(ctx context.Context, conn *connection, q *inspect.Queues, stdio cli.IO) error {
	limit, err := q.Definition(ctx, c.Name)
	if err != nil {
		return err
	}
	views, err := limitViews(ctx, q, false, limit)
	if err == nil {
		views[0].Usage, err = readUsage(ctx, conn.conf, q, views[0])
	}
	if err != nil {
		return err
	}
	return cli.Print(stdio.Out, c.JSON, views[0])
}

// usageUnlessDown turns the limiter's error about an argument into a usage error. Other errors stay
// unchanged.
func usageUnlessDown(err error) error {
	if err == nil || errors.Is(err, throttle.ErrUnavailable) || errors.Is(err, throttle.ErrNoLimit) {
		return err
	}
	return cli.Usagef("%w", err)
}

type limitsDelete struct {
	Name string `arg:"" help:"Name of the limit."`
	Yes  bool   `help:"Delete it even if jobs wait for it."`
}

func (c *limitsDelete) Run(ctx context.Context, q *inspect.Queues, stdio cli.IO) error {
	n, err := q.CountWaiting(ctx, c.Name, func(shard.Shard) int { return 0 })
	if err == nil && n > 0 && !c.Yes {
		err = cli.Usagef("limit %s has %s waiting: without the limit they wait until it is defined again, unless on_no_limit says otherwise; add --yes to confirm", c.Name, display.Count(n, "job"))
	}
	if err != nil {
		return usageUnlessDown(err)
	}
	did, err := changeLimit("deleted", (*waitdb.DB).Delete)(q, ctx, c.Name)
	return confirm(stdio, err, "%s", did)
}

// limitKey has the arguments for a limit and one of its keys.
type limitKey struct {
	Name string  `arg:"" help:"Name of the limit."`
	Key  *string `placeholder:"KEY" help:"Key, if the limit counts by key."`
}

// normalized returns the key as the jobs of the limit use it, or "" if --key is missing. It fails
// if --key is missing and all tasks that use the limit give a key.
func (c limitKey) normalized(conf *config.Config) (string, error) {
	if c.Key != nil && *c.Key != "" {
		key, err := conf.Tasks.NormalizeKey(c.Name, *c.Key)
		return key, usageUnlessDown(err)
	}
	keys := conf.Tasks.KeysOf(c.Name)
	if len(keys) == 0 || slices.Contains(keys, "") {
		return "", nil
	}
	slices.Sort(keys)
	return "", cli.Usagef("limit %s counts by key (%s): want --key KEY", c.Name, strings.Join(slices.Compact(keys), ", "))
}

// change calls do for the limiter of each shard that counts the key, and confirms it.
func (c limitKey) change(ctx context.Context, q *inspect.Queues, stdio cli.IO, key, done string, do func(l *waitdb.DB, ctx context.Context, limit, key string) error) error {
	err := q.EachPlace(c.Name, &key, func(l *waitdb.DB, _ shard.Shard) error { return do(l, ctx, c.Name, key) })
	return confirm(stdio, usageUnlessDown(err), "%s %s", done, display.Meter(c.Name+"|"+key))
}

type limitsReset struct{ limitKey }

func (c *limitsReset) Run(ctx context.Context, conn *connection, q *inspect.Queues, stdio cli.IO) error {
	key, err := c.normalized(conn.conf)
	if err != nil {
		return err
	}
	return c.change(ctx, q, stdio, key, "reset", (*waitdb.DB).Reset)
}

type limitsUnset struct {
	Yes bool `help:"Change it even if waiting jobs could then never run."`
	limitKey
}

func (limitsUnset) Help() string {
	return `Without --key, the limit becomes what the config of the workers says: Redis has what a worker loaded last, so the command needs no config file. Overrides of keys stay. With --key, the key's override is removed. An override of the config file comes back when its entry in the file changes.`
}

func (c *limitsUnset) Run(ctx context.Context, conn *connection, q *inspect.Queues, stdio cli.IO) error {
	if c.Key == nil {
		return c.restore(ctx, q, stdio)
	}
	key, err := c.normalized(conn.conf)
	if err != nil {
		return err
	}
	limit, err := q.Definition(ctx, c.Name)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(limit.Keys, func(k throttle.KeyState) bool { return k.Key == key && k.Override != throttle.Override{} }) {
		return fmt.Errorf("%s has no override", display.Meter(c.Name+"|"+key))
	}
	if !c.Yes {
		err = confirmed(q.KeyChangeImpact(ctx, c.Name, key, throttle.Override{}))
	}
	if err != nil {
		return err
	}
	return c.change(ctx, q, stdio, key, "unset", (*waitdb.DB).UnsetKey)
}

// restore ends a change of the limit itself.
func (c *limitsUnset) restore(ctx context.Context, q *inspect.Queues, stdio cli.IO) error {
	limit, err := q.Definition(ctx, c.Name)
	switch {
	case err != nil:
		return err
	case limit.Origin.Config == nil:
		return fmt.Errorf("limit %s is in no config that a worker has loaded: \"worker limits set\" changes it, and \"worker limits delete\" deletes it", c.Name)
	case !limit.Origin.Set:
		return fmt.Errorf("limit %s is as the config says; for the override of a key, want --key KEY", c.Name)
	}
	if !c.Yes {
		if err := confirmed(q.LimitChangeImpact(ctx, limit.Limit, *limit.Origin.Config)); err != nil {
			return err
		}
	}
	err = q.EachPlace(c.Name, nil, func(l *waitdb.DB, _ shard.Shard) error { return l.Internals().Unset(ctx, c.Name) })
	return confirm(stdio, err, "%s  %s, as in the config", c.Name, limit.Origin.Config)
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
	Yes      bool           `help:"Change it even if waiting jobs could then never run."`
}

func (limitsSet) Help() string {
	return `Settings without a flag keep their values. If --kind changes the kind, only apps and max_block keep theirs. The change outlasts restarts. It ends by "worker limits unset NAME", when the limit changes in the config file, or when a worker first reads the limit there. The worker logs a warning.

With --key, the command overrides the rate or capacity of that key at once, until "worker limits unset". Permits that were taken stay taken. For a fixed_window, the override's rate must have the same period.`
}

func (c *limitsSet) Run(ctx context.Context, conn *connection, q *inspect.Queues, stdio cli.IO) error {
	switch {
	case c.Capacity != nil && *c.Capacity < 1:
		return cli.Usagef("--capacity %d: want at least 1; use \"worker limits pause %s\" to grant no permits", *c.Capacity, c.Name)
	case c.Lease != nil && *c.Lease == 0:
		return cli.Usagef("--lease 0s: want at least 1s")
	case c.MaxBlock != nil && *c.MaxBlock == 0:
		return cli.Usagef("--max-block 0s: want at least 1s")
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
	key, err := conf.Tasks.NormalizeKey(c.Name, *c.Key)
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

// confirmed returns err if it is not nil. If impact, the effect of a change on waiting jobs, is not
// empty, it returns an error that asks for --yes.
func confirmed(impact string, err error) error {
	if err == nil && impact != "" {
		err = cli.Usagef("%s; add --yes to confirm", impact)
	}
	return err
}

// change returns l with the flags applied. If they change the kind, the result keeps only the name,
// apps and max_block of l.
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
