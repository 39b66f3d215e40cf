// Command worker runs jobs within their limits, and looks after the limits.
package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/alecthomas/kong"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/dial"
	"github.com/headgate/headgate/internal/embedded"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/words"
	"github.com/headgate/headgate/internal/worker"
	"github.com/headgate/headgate/scheduler/cron"
	"github.com/headgate/headgate/scheduler/lanes"
)

func main() { cli.Process(run) }

const about = `Runs jobs within their limits, and looks after the limits.

The exit code is 2 for a mistake in the arguments or in the config, and 1 if something else failed.`

// commands are the subcommands, by what they are about.
type commands struct {
	cli.Globals
	Run       runCommand       `cmd:"" help:"Run jobs, until a signal."`
	Demo      demoCommand      `cmd:"" help:"Watch jobs obey a limit: 200 calls of an API that allows 20 a second."`
	Limits    limitsCommand    `cmd:"" help:"List, show and change limits."`
	Waiting   waitingCommand   `cmd:"" help:"List the limits that jobs wait for."`
	Job       jobCommand       `cmd:"" help:"Say all about one job: its state, place, last error and result."`
	Results   resultsCommand   `cmd:"" help:"List what jobs brought home, write it to files, follow it."`
	Jobs      jobsCommand      `cmd:"" help:"List jobs; run, cancel, archive and delete them."`
	Queues    queuesCommand    `cmd:"" help:"List, pause, resume, purge and delete queues."`
	Crawls    crawlsCommand    `cmd:"" help:"Show how far crawls have come."`
	Schedules schedulesCommand `cmd:"" help:"List, run, pause and resume schedules."`
	Status    statusCommand    `cmd:"" help:"Count the jobs of each queue and type: pending, waiting, running, done, failed; how fast, and until when."`
	Throttle  throttleCommand  `cmd:"" help:"Take permits of a limit that the arguments describe, as redis-cell's CL.THROTTLE does."`

	Health healthCommand `cmd:"" help:"Ask a worker that listens whether it is well."`
	API    apiCommand    `cmd:"" help:"Serve an API to try limits against: it answers 429 beyond its rate, and says what it saw."`

	Version    cli.VersionCommand    `cmd:"" help:"Say what this command was built from."`
	Completion cli.CompletionCommand `cmd:"" help:"Print code for your shell that completes commands and flags."`
}

func run(ctx context.Context, args []string, stdio cli.IO) int {
	var c commands
	conn := &connection{globals: &c.Globals}
	defer conn.close()
	return cli.Main(ctx, "worker", about, &c, &c.Globals, args, stdio, kong.Bind(conn),
		kong.BindToProvider(conn.queues), kong.BindToProvider(conn.limiter), kong.BindToProvider(conn.schedules))
}

// connection is the one of a command to Redis, which is made when the command asks for what
// is there: kong gives it to each Run that has it, or what it opens, among its arguments.
type connection struct {
	globals *cli.Globals
	rdb     redis.UniversalClient // nil until then
}

func (c *connection) open(ctx context.Context) (conf *config.Config, rdb redis.UniversalClient, err error) {
	if conf, err = c.globals.Load(); err == nil {
		c.rdb, err = dial.Config(ctx, conf)
	}
	return conf, c.rdb, err
}

func (c *connection) close() {
	if c.rdb != nil {
		_ = c.rdb.Close()
	}
}

func (c *connection) limiter(ctx context.Context) (*lanes.Lanes, error) {
	conf, rdb, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	return dial.Limiter(rdb, conf), nil
}

func (c *connection) queues(ctx context.Context) (*inspect.Queues, error) {
	conf, rdb, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	return inspect.New(rdb, dial.Limiter(rdb, conf), conf.Scope), nil
}

func (c *connection) schedules(ctx context.Context) (*cron.Runner, error) {
	conf, rdb, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	return worker.Schedules(rdb, conf, nil)
}

// kept is for looking at what the next worker with a Redis of its own will find, and says
// what that is. The error is dial.ErrNoRedis if that is nothing.
func (c *connection) kept(ctx context.Context, stderr io.Writer) (*inspect.Queues, error) {
	conf, err := c.globals.Load()
	if err != nil {
		return nil, err
	}
	folder, err := embedded.Default()
	if err != nil {
		return nil, err
	}
	rest, err := folder.Look()
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf("worker: no worker is running: added for the next one: %s", words.Count(rest.Spooled, "job"))
	switch {
	case rest.Saved.IsZero() && rest.Spooled == 0:
		return nil, dial.ErrNoRedis
	case !rest.Saved.IsZero():
		text += fmt.Sprintf("; kept of the last one, as of %s:", rest.Saved.Format(time.DateTime))
	}
	fmt.Fprintln(stderr, text)
	if c.rdb, err = dial.Redis(ctx, config.EmbeddedRedis(rest.Dial)); err != nil {
		return nil, err
	}
	return inspect.New(c.rdb, dial.Limiter(c.rdb, conf), conf.Scope), nil
}
