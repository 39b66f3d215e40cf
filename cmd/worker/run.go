package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/cmd/internal/worker"
	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/internal/duration"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

type runCommand struct {
	Listen string `placeholder:"ADDR" help:"Serve the live page, /metrics, /healthz and /readyz at this address, instead of the config's listen. An address without a host, such as :9090, listens on localhost; 0.0.0.0:9090 is open to other machines."`
	pageToken
	Check   bool `help:"Only check the config and the connection to Redis, and print what would run."`
	LogJobs bool `env:"HEADGATE_LOG_JOBS" help:"Log each finished attempt at level info: the job, its outcome, duration, denials and waiting time."`
	cli.LogFlags
}

func (runCommand) Help() string {
	return `SIGTERM or an interrupt stops the worker. No new jobs start. Running jobs have shutdown_timeout to finish, then they go back to their queue. A second signal ends the worker at once.

When the config file changes, and on SIGHUP, the worker reads limits, rules and schedules again. A file with errors, an empty file and a missing file change nothing.

A 429 blocks limits of the job for all workers: those of block_on_429, or else those whose key is host(payload.url). The block ends at the time in the answer's Retry-After, RateLimit or X-RateLimit fields, and the limit's max_block bounds it. Without such a time it lasts for a second, and twice as long for each 429 in a row, up to five minutes. If the job has no such limit, its limits with a key are blocked, or all if none has a key; the answer's time counts for them only with "retry_after_scope: all". A 503 or 403 whose time counts blocks the same limits. The job waits first in line, and the attempt is not counted.`
}

func (c *runCommand) Run(ctx context.Context, g *cli.Globals, stdio cli.IO) error {
	if c.Check {
		return c.start(ctx, g, c.Logger(stdio.Err), stdio)
	}
	log := c.Logger(stdio.Err)
	slog.SetDefault(log) // for lines that no logger of the worker writes
	return c.Report(log, "the worker cannot continue", c.start(ctx, g, log, c.LogOutput(cli.Worker, stdio)))
}

func (c *runCommand) start(ctx context.Context, g *cli.Globals, log *slog.Logger, stdio cli.IO) error {
	text, _ := os.ReadFile(g.Path()) // c.load reports an error of reading
	conf, err := c.load(g)
	if err != nil {
		return err
	}
	if err := checkTokens(conf); err != nil {
		return err
	}
	if c.Check {
		return check(ctx, g, conf, stdio)
	}
	cli.AllowJobs(conf.ShutdownTimeout)
	out := stdio.Out
	if c.AsJSON() {
		out = stdio.Err // stdio.Err logs each line that is written to it
	}
	printSetup(out, g.Path(), conf)
	warnOfLeft(ctx, conf, stdio)
	w, err := worker.New(conf, worker.Options{
		File: g.Path(), Text: text, Load: func() (*config.Config, error) { return c.load(g) },
		Log: log, LogJobs: c.LogJobs, Notes: stdio.Err,
	})
	if err != nil {
		return err
	}
	err = w.Run(ctx)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil // a signal stopped the worker during its start
	}
	return err
}

// warnOfLeft warns of jobs and used permits in the embedded Redis if the config has another Redis.
func warnOfLeft(ctx context.Context, conf *config.Config, stdio cli.IO) {
	if text := conf.Redis.LeftBehind(ctx); text != "" {
		fmt.Fprintln(stdio.Err, cli.Worker+": "+text)
	}
}

// load reads the config and applies the flags. It fails on MachineErrors.
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

// printSetup prints what a worker with this config runs.
func printSetup(out io.Writer, path string, conf *config.Config) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(out, "%-11s%s\n", name, cli.Line(fmt.Sprintf(format, args...)))
	}
	if conf.DefaultReason == "" {
		line("config", "%s", path)
	} else {
		line("config", "none: %s, so new jobs run without limits", conf.DefaultReason)
	}
	name := "the embedded one, in " + conf.Redis.Folder()
	if !conf.Redis.IsZero() {
		name = conf.Redis.String()
	}
	line("redis", "%s, scope %s", name, conf.Scope)
	var queues []string
	for _, name := range slices.Sorted(maps.Keys(conf.Queues)) {
		text := fmt.Sprintf("%s (weight %d)", name, conf.Queues[name].Weight)
		if n := conf.Sharded.Count(name); n > 0 {
			text = fmt.Sprintf("%s (weight %d, %s)", name, conf.Queues[name].Weight, display.Count(n, "shard"))
		}
		queues = append(queues, text)
	}
	line("queues", "%s; %d jobs at once", strings.Join(queues, ", "), conf.Concurrency)
	for _, l := range conf.Limits {
		line("limit", "%s %s", l.Name, l)
		if text := startsText(l); text != "" {
			line("", "  %s", text)
		}
		for _, key := range slices.Sorted(maps.Keys(l.Overrides)) {
			line("", "  %s: %s", display.Key(key), l.Overrides[key])
		}
	}
	var unkept []string
	for _, name := range slices.Sorted(maps.Keys(conf.Tasks)) {
		text := "without limits"
		for i, n := range conf.Tasks[name].Limits {
			if i == 0 {
				text = "under " + needText(n)
			} else {
				text += ", " + needText(n)
			}
		}
		line("task", "%s %s", name, text)
		if conf.Tasks.LosesResponses(name) {
			unkept = append(unkept, name)
		}
	}
	if len(unkept) > 0 {
		line("answers", "of %s are not kept; set retention: 24h for the task to keep them for \"%s results\"", strings.Join(unkept, ", "), cli.Worker)
	}
	for _, name := range slices.Sorted(maps.Keys(conf.Commands)) {
		line("command", "%s %s", name, conf.Commands[name])
	}
	for _, s := range conf.Schedules.Entries() {
		line("schedule", "%s %s at %s, next %s", s.Name, s.Type, s.Cron, tick{s.Next(time.Now())})
	}
}

// startsText says how close an API sees the calls of two windows of a limit. It returns "" for a kind
// without windows.
func startsText(l throttle.Limit) string {
	if !slices.Contains([]throttle.Kind{throttle.FixedWindow, throttle.SlidingLog, throttle.SlidingWindow}, l.Kind) {
		return ""
	}
	if jitter := l.Margin - waitdb.MaxWindowAge; jitter >= 0 {
		return fmt.Sprintf("at most %d starts in each window, and %s are left for the network's jitter", l.Rate.N, duration.Exact(jitter))
	}
	return fmt.Sprintf("jobs start up to %s after their permits: for a strict API, set a margin of that plus the network's jitter",
		duration.Exact(waitdb.MaxWindowAge))
}

func needText(n config.Need) string {
	text := n.Limit
	if key := n.Key.String(); key != "" {
		text += " by " + key
	}
	if cost := n.Cost.String(); cost != "" {
		text += " at cost " + cost
	}
	return text
}

func check(ctx context.Context, g *cli.Globals, conf *config.Config, stdio cli.IO) error {
	printSetup(stdio.Out, g.Path(), conf)
	warnOfLeft(ctx, conf, stdio)
	if conf.DefaultReason != "" {
		return cli.Usagef("nothing to check: %s; write one, or use --config FILE", conf.DefaultReason)
	}
	warnings, err := worker.Check(ctx, conf)
	if err != nil {
		return err
	}
	for _, warning := range warnings {
		fmt.Fprintln(stdio.Err, cli.Worker+": "+warning)
	}
	_, err = fmt.Fprintln(stdio.Out, "the config is valid")
	return err
}

// pageToken is the flag of the page's token.
type pageToken struct {
	PageToken string `env:"HEADGATE_PAGE_TOKEN" placeholder:"TEXT" help:"Token that opens the page to other machines, at least 8 characters. Prefer HEADGATE_PAGE_TOKEN or the config."`
}

func (f pageToken) over(p config.Page) config.Page {
	p.Token = cmp.Or(config.Secret(f.PageToken), p.Token)
	return p
}

// checkTokens returns an error if other machines could open the page without a token, or with that of
// the API.
func checkTokens(conf *config.Config) error {
	listen, p := conf.Listen, conf.Page
	if err := p.Token.Validate(); err != nil { // the config has been checked, so the mistake is in the flag
		return cli.Usagef("--page-token or HEADGATE_PAGE_TOKEN: %w", err)
	}
	if p.Token != "" && p.Token == conf.API.Token {
		return cli.Usagef("api.token is the token of the page: want another one, which can only add jobs")
	}
	address, err := config.ListenAddress(listen)
	if err != nil {
		return cli.Usagef("--listen %w", err)
	}
	if address == "" || p.Token != "" || ofThisMachine(address) {
		return nil
	}
	return cli.Usagef("--listen %s: other machines can reach the page there: want a page.token (or HEADGATE_PAGE_TOKEN), or an address such as localhost:8080", listen)
}

// ofThisMachine reports whether only this machine can reach the address, which is HOST:PORT.
func ofThisMachine(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}
