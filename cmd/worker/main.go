// Command worker runs jobs within their limits, and manages limits, jobs and queues.
package main

import (
	"context"

	"github.com/alecthomas/kong"

	"github.com/headgate/headgate/cmd/internal/cli"
)

func main() { cli.Process(execute) }

const manual = `Runs jobs within their limits, and manages limits, jobs and queues.

The exit code is 2 for a mistake in the arguments or the config, and 1 for any other failure.`

type commands struct {
	cli.Globals
	Run       runCommand       `cmd:"" help:"Run jobs until a signal."`
	Limits    limitsCommand    `cmd:"" help:"List, show and change limits."`
	Waiting   waitingCommand   `cmd:"" help:"List the limits that jobs wait for."`
	Job       jobCommand       `cmd:"" help:"Show everything about one job: its state, position, last error and result."`
	Results   resultsCommand   `cmd:"" help:"List job results, write them to files, or follow them."`
	Jobs      jobsCommand      `cmd:"" help:"List jobs; run, cancel, archive and delete them."`
	Queues    queuesCommand    `cmd:"" help:"List, pause, resume and delete queues."`
	Crawls    crawlsCommand    `cmd:"" help:"Show the progress of crawls."`
	Schedules schedulesCommand `cmd:"" help:"List, run, pause and resume schedules."`
	Status    statusCommand    `cmd:"" help:"Show job counts, rates and the ETA of each queue, limit and worker."`
	Throttle  throttleCommand  `cmd:"" help:"Take permits of a limit given by the arguments, like redis-cell's CL.THROTTLE."`

	Health healthCommand `cmd:"" help:"Check a worker's health endpoint."`

	Version cli.VersionFlag `help:"Print the version."`
}

func execute(ctx context.Context, args []string, stdio cli.IO) int {
	c := commands{Jobs: newJobsCommand()}
	conn := &connection{globals: &c.Globals, stderr: stdio.Err}
	defer conn.close()
	return cli.Main(ctx, "worker", manual, &c, &c.Globals, args, stdio, kong.Bind(conn),
		kong.BindToProvider(conn.queues), kong.BindToProvider(conn.schedules))
}
