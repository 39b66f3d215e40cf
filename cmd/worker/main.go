// Command worker runs jobs within their limits, and manages limits, jobs and queues.
package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/alecthomas/kong"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/cmd/internal/worker"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/scheduler/cron"
)

func main() { cli.Process("worker", execute) }

const manual = `Runs jobs within their limits, and manages limits, jobs and queues.

The exit code is 2 for a mistake in the arguments or the config, and 1 for any other failure.`

type commands struct {
	cli.Globals
	Run       runCommand       `cmd:"" help:"Run jobs until a signal."`
	Demo      demoCommand      `cmd:"" help:"Watch jobs obey a limit: 100 calls to an API that allows 20 a second."`
	Limits    limitsCommand    `cmd:"" help:"List, show and change limits."`
	Job       jobCommand       `cmd:"" help:"Show everything about one job: its state, position, last error and result."`
	Results   resultsCommand   `cmd:"" help:"List job results, or write them to files."`
	Jobs      jobsCommand      `cmd:"" help:"List jobs; run, cancel, archive and delete them."`
	Changes   changesCommand   `cmd:"" help:"List who changed limits, queues, schedules and jobs, and when."`
	Queues    queuesCommand    `cmd:"" help:"List, pause, resume and delete queues."`
	Drain     drainCommand     `cmd:"" help:"Stop workers from taking new jobs, and wait until their running jobs have ended."`
	Crawls    crawlsCommand    `cmd:"" help:"Show the progress of crawls."`
	Schedules schedulesCommand `cmd:"" help:"List, run, pause and resume schedules."`
	Status    statusCommand    `cmd:"" help:"Show job counts, rates and the ETA of each queue, limit and worker."`
	Wait      waitCommand      `cmd:"" help:"Wait until all jobs of a batch have ended."`
	Throttle  throttleCommand  `cmd:"" help:"Take permits of a limit given by the arguments, like redis-cell's CL.THROTTLE."`

	Health healthCommand `cmd:"" help:"Check a worker's health endpoint."`
	API    apiCommand    `cmd:"" help:"Serve a rate-limited API to try limits against. It answers 429 above its rate."`

	Version kong.VersionFlag `help:"Print the version."`
}

func execute(ctx context.Context, args []string, stdio cli.IO) int {
	c := commands{Jobs: newJobsCommand(), Limits: newLimitsCommand(), Queues: newQueuesCommand(), Schedules: newSchedulesCommand()}
	conn := &connection{globals: &c.Globals, stderr: stdio.Err}
	defer conn.close()
	return cli.Main(ctx, cli.Worker, manual, &c, &c.Globals, args, stdio, kong.Bind(conn),
		kong.BindToProvider(conn.queues), kong.BindToProvider(conn.schedules))
}

// confirm prints what a command did. If err is not nil, it prints nothing and returns err.
func confirm(stdio cli.IO, err error, did string, args ...any) error {
	if err == nil {
		_, err = fmt.Fprintln(stdio.Out, cli.Line(fmt.Sprintf(did, args...)))
	}
	return err
}

// nameAction is a command whose argument is the name of a limit, queue or schedule.
type nameAction[On any] struct {
	Name string `arg:"" help:"Name of the ${what}."`

	do func(on On, ctx context.Context, name string) (did string, err error)
}

func (c *nameAction[On]) Run(ctx context.Context, on On, stdio cli.IO) error {
	did, err := c.do(on, ctx, c.Name)
	return confirm(stdio, err, "%s", did)
}

// connection is a command's connection to Redis. A Run method opens it by a call of open. If Run
// has a parameter of type Queues or Runner, kong opens it by a call of queues or schedules.
type connection struct {
	globals *cli.Globals
	stderr  io.Writer
	conf    *config.Config // read once, because the file may be a pipe
	end     func() error   // closes the connection; nil until it is open
}

func (c *connection) load() (_ *config.Config, err error) {
	if c.conf == nil {
		c.conf, err = c.globals.Load()
	}
	return c.conf, err
}

// noticeAfter is the time without a connection after which a command prints that it waits.
const noticeAfter = 2 * time.Second

func (c *connection) open(ctx context.Context) (conf *config.Config, rdb redis.UniversalClient, err error) {
	if conf, err = c.load(); err != nil {
		return nil, nil, err
	}
	notice := time.AfterFunc(noticeAfter, func() { fmt.Fprintln(c.stderr, cli.Worker+": waiting for Redis, which has not answered yet") })
	defer notice.Stop()
	rdb, c.end, err = conf.Redis.Connect(ctx)
	return conf, rdb, err
}

func (c *connection) close() {
	if c.end != nil {
		_ = c.end()
	}
}

func (c *connection) queues(ctx context.Context) (*inspect.Queues, error) {
	conf, rdb, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	return conf.Inspect(rdb), nil
}

func (c *connection) schedules(ctx context.Context) (*cron.Runner, error) {
	conf, rdb, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	return worker.Schedules(rdb, conf, nil)
}
