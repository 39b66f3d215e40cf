package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/cmd/internal/worker"
	"github.com/headgate/headgate/throttle"
)

type runCommand struct {
	Listen string `placeholder:"ADDR" help:"Serve the live page, /metrics, /healthz and /readyz at this address, instead of the config's listen. :9090 is for this machine only, 0.0.0.0:9090 is open to other machines."`
	pageFlags
	Check   bool `help:"Only check the config and the connection to Redis, and print what would run."`
	JSON    bool `help:"With --check: print a JSON object of what would run."`
	LogJobs bool `env:"HEADGATE_LOG_JOBS" help:"Log each finished attempt at level info: the job, its outcome, duration, denials and waiting time."`
	cli.LogFlags
}

func (runCommand) Help() string {
	return `SIGTERM or an interrupt stops the worker. No new jobs start. Running jobs have shutdown_timeout to finish, then they go back to their queue. A second signal ends the worker at once.

When the config file changes, and on SIGHUP, the worker reads limits, rules and schedules again. A file with errors, an empty file and a missing file change nothing.

An answer of 429, or 503 with Retry-After, blocks the job's limits that have a key (or all, if none has a key; or those under block_on_429) for all workers. The block ends at the time in the answer's Retry-After, RateLimit or X-RateLimit fields. Without such a time the block lasts for a second, twice as long for each 429 in a row, up to five minutes. The answer's time applies to limits whose key is host(payload.url), to limits under block_on_429, to all limits with "retry_after_scope: all", and never for longer than the limit's max_block. The job waits at the head of its lane, and spends no attempt.`
}

func (c *runCommand) Run(ctx context.Context, g *cli.Globals, stdio cli.IO) error {
	if c.Check || c.JSON {
		return c.start(ctx, g, c.Logger(stdio.Err), stdio)
	}
	log := c.Logger(stdio.Err)
	return c.Report(log, "the worker cannot continue", c.start(ctx, g, log, c.Lines("worker", stdio)))
}

func (c *runCommand) start(ctx context.Context, g *cli.Globals, log *slog.Logger, stdio cli.IO) error {
	text, _ := os.ReadFile(g.Path()) // load reports what is wrong with it
	conf, err := c.load(g)
	if err != nil {
		return err
	}
	if err := checkPage(conf.Listen, conf.Page); err != nil {
		return err
	}
	switch {
	case c.Check:
		return c.check(ctx, g, conf, stdio)
	case c.JSON:
		return cli.Usagef("--json: want --check as well; a running worker logs JSON with --log-format json")
	case c.AsJSON():
		log.Info("starting", "runs", newChecked(g, conf, absent(conf)...))
	default:
		describe(stdio.Out, g, conf)
	}
	w, err := worker.New(conf, worker.Options{
		File: g.Path(), Text: text, Load: func() (*config.Config, error) { return c.load(g) },
		Log: log, LogJobs: c.LogJobs, Notes: stdio.Err,
	})
	if err != nil {
		return err
	}
	err = w.Run(ctx)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil // stopped during the start
	}
	return err
}

// load reads the config and applies the flags.
func (c *runCommand) load(g *cli.Globals) (*config.Config, error) {
	conf, err := g.Load()
	if err != nil {
		return nil, err
	}
	if len(conf.MachineErrors) > 0 {
		return nil, conf.MachineErrors
	}
	conf.Listen, conf.Page = cmp.Or(c.Listen, conf.Listen), c.over(conf.Page)
	return conf, nil
}

// describe prints what the worker will do.
func describe(out io.Writer, g *cli.Globals, c *config.Config) {
	line := func(what, text string) {
		if text != "" {
			fmt.Fprintf(out, "%-11s%s\n", what, text)
		}
	}
	redis := "the embedded one, in " + c.Redis.Folder()
	if !c.Redis.IsZero() {
		redis = c.Redis.String()
	}
	if c.DefaultReason == "" {
		line("config", g.Path())
	} else {
		line("config", fmt.Sprintf("none: %s, so new jobs run without limits", c.DefaultReason))
	}
	line("redis", fmt.Sprintf("%s, scope %s", redis, c.Scope))
	line("queues", fmt.Sprintf("%s; %d jobs at once", weights(c.Queues), c.Concurrency))
	for _, l := range c.Limits {
		line("limit", l.Name+" "+l.String())
		for _, key := range fileKeys(l) {
			line("", "  "+cli.Line(key.Key+": "+key.Override.String()))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Tasks)) {
		line("task", name+" "+under(c.Tasks[name]))
	}
	if unkept := unkept(c.Tasks); len(unkept) > 0 {
		line("answers", fmt.Sprintf("of %s are not kept; set retention: 24h for the task to keep them for \"worker results\"", strings.Join(unkept, ", ")))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Commands)) {
		line("command", name+" "+c.Commands[name].String())
	}
	for _, name := range slices.Sorted(maps.Keys(c.Schedules)) {
		s := c.Schedules[name]
		line("schedule", fmt.Sprintf("%s %s at %s", name, s.Type, s.Cron))
	}
}

// fileKeys are the overrides of a limit in the config.
func fileKeys(l throttle.Limit) (keys []throttle.KeyState) {
	for _, key := range slices.Sorted(maps.Keys(l.Overrides)) {
		keys = append(keys, throttle.KeyState{Key: key, Override: l.Overrides[key], File: true, Share: 1})
	}
	return keys
}

func weights(queues map[string]int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(queues)) {
		parts = append(parts, fmt.Sprintf("%s (weight %d)", name, queues[name]))
	}
	return strings.Join(parts, ", ")
}

// unkept are the task types whose answers are not kept.
func unkept(tasks config.Tasks) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(tasks)), func(name string) bool { return !tasks.Unkept(name) })
}

func under(t config.Task) string {
	if len(t.Limits) == 0 {
		return "without limits"
	}
	var parts []string
	for _, n := range t.Limits {
		text := n.Limit
		if key := n.Key.String(); key != "" {
			text += " by " + key
		}
		if cost := n.Cost.String(); cost != "" {
			text += " at cost " + cost
		}
		parts = append(parts, text)
	}
	return "under " + strings.Join(parts, ", ")
}

func (c *runCommand) check(ctx context.Context, g *cli.Globals, conf *config.Config, stdio cli.IO) error {
	if !c.JSON {
		describe(stdio.Out, g, conf)
	}
	warnings, err := worker.Check(ctx, conf)
	if err != nil {
		return err
	}
	if c.JSON {
		return cli.JSON(stdio.Out, newChecked(g, conf, warnings...))
	}
	for _, warning := range warnings {
		fmt.Fprintln(stdio.Err, "worker: "+warning)
	}
	_, err = fmt.Fprintln(stdio.Out, "the config is valid")
	return err
}

// checked is what a worker would run. Redis is empty if the config names none.
type checked struct {
	Config      string                     `json:"config"`
	Redis       string                     `json:"redis"`
	Scope       string                     `json:"scope"`
	Queues      map[string]int             `json:"queues"`
	Concurrency int                        `json:"concurrency"`
	Limits      []definition               `json:"limits"`
	Tasks       map[string][]neededLimit   `json:"tasks"`
	Commands    map[string]string          `json:"commands"`
	Schedules   map[string]checkedSchedule `json:"schedules"`
	Unkept      []string                   `json:"answers_not_kept,omitempty"` // types of tasks
	Warnings    []string                   `json:"warnings,omitempty"`
}

type neededLimit struct {
	Limit string `json:"limit"`
	Key   string `json:"key,omitempty"`
	Cost  string `json:"cost,omitempty"`
}

func absent(conf *config.Config) []string {
	if conf.DefaultReason == "" {
		return nil
	}
	return []string{conf.DefaultReason}
}

type checkedSchedule struct {
	Cron string `json:"cron"`
	Zone string `json:"zone"`
	Task string `json:"task"`
}

func newChecked(g *cli.Globals, conf *config.Config, warnings ...string) checked {
	c := checked{
		Config: g.Path(), Scope: conf.Scope, Queues: conf.Queues, Concurrency: conf.Concurrency, Limits: []definition{},
		Tasks: map[string][]neededLimit{}, Commands: map[string]string{}, Schedules: map[string]checkedSchedule{},
		Warnings: warnings, Unkept: unkept(conf.Tasks),
	}
	if !conf.Redis.IsZero() {
		c.Redis = conf.Redis.String()
	}
	for _, l := range conf.Limits {
		c.Limits = append(c.Limits, newDefinition(l, nil, fileKeys(l)))
	}
	for name, task := range conf.Tasks {
		c.Tasks[name] = []neededLimit{}
		for _, n := range task.Limits {
			c.Tasks[name] = append(c.Tasks[name], neededLimit{n.Limit, n.Key.String(), n.Cost.String()})
		}
	}
	for name, command := range conf.Commands {
		c.Commands[name] = command.String()
	}
	for name, s := range conf.Schedules {
		c.Schedules[name] = checkedSchedule{s.Cron, zoneName(s.Zone), s.Type}
	}
	return c
}

// pageSecrets replace those of the config.
type pageSecrets struct {
	PageToken    string `env:"HEADGATE_PAGE_TOKEN" placeholder:"TEXT" help:"Token that opens the page to other machines, at least 8 characters. Prefer HEADGATE_PAGE_TOKEN or the config."`
	PageUser     string `env:"HEADGATE_PAGE_USER" placeholder:"NAME" help:"User of the page, with a password, instead of a token."`
	PagePassword string `env:"HEADGATE_PAGE_PASSWORD" placeholder:"TEXT" help:"The user's password, of at least 8 characters."`
}

type pageFlags struct {
	pageSecrets
	PageReadOnly bool   `help:"The page cannot change anything."`
	TLSCert      string `name:"tls-cert" placeholder:"FILE" help:"Certificate in PEM, with --tls-key: serve --listen over https. Changed files are reloaded."`
	TLSKey       string `name:"tls-key" placeholder:"FILE" help:"The certificate's key in PEM."`
}

func (f pageSecrets) over(p config.Page) config.Page {
	p.Token = cmp.Or(config.Secret(f.PageToken), p.Token)
	p.User = cmp.Or(f.PageUser, p.User)
	p.Password = cmp.Or(config.Secret(f.PagePassword), p.Password)
	return p
}

func (f pageFlags) over(p config.Page) config.Page {
	p = f.pageSecrets.over(p)
	p.TLSCert, p.TLSKey = cmp.Or(f.TLSCert, p.TLSCert), cmp.Or(f.TLSKey, p.TLSKey)
	p.ReadOnly = p.ReadOnly || f.PageReadOnly
	return p
}

var pageFlag = map[string]string{
	"token": "page-token", "user": "page-user", "password": "page-password", "tls_cert": "tls-cert", "tls_key": "tls-key",
}

// checkPage refuses to serve the page to other machines without authentication.
func checkPage(addr string, p config.Page) error {
	var wrong error
	p.Check(func(field, problem string) { // the config's have been checked: of the flags
		wrong = cmp.Or(wrong, error(cli.Usagef("--%s: %s", pageFlag[field], problem)))
	})
	if wrong != nil {
		return wrong
	}
	if p.TLSCert != "" {
		if _, err := worker.NewCertificate(p.TLSCert, p.TLSKey, nil); err != nil {
			return err
		}
	}
	address, err := config.ListenAddress(addr)
	if err != nil {
		return cli.Usagef("--listen %w", err)
	}
	if address == "" || p.Open() || worker.OfThisMachine(address) {
		return nil
	}
	return cli.Usagef("--listen %s: other machines can reach the page there: want a page.token (or HEADGATE_PAGE_TOKEN), a page.user and page.password, or an address such as localhost:8080", addr)
}
