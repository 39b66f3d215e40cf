// Command worker runs jobs within their limits, and looks after the limits.
package main

import (
	"context"

	"github.com/alecthomas/kong"

	"github.com/headgate/headgate/cmd/internal/cli"
)

func main() { cli.Process(execute) }

const manual = `Runs jobs within their limits, and looks after the limits.

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

	Version cli.VersionCommand `cmd:"" help:"Say what this command was built from."`

	VersionFlag cli.VersionFlag    `name:"version" help:"Say what this command was built from."`
	Completion  cli.CompletionFlag `placeholder:"bash|zsh|fish" help:"Print code for your shell that completes commands and flags, such as source <(worker --completion bash)."`
}

func execute(ctx context.Context, args []string, stdio cli.IO) int {
	var c commands
	conn := &connection{globals: &c.Globals, stderr: stdio.Err}
	defer conn.close()
	return cli.Main(ctx, "worker", manual, &c, &c.Globals, args, stdio, kong.Bind(conn),
		kong.BindToProvider(conn.queues), kong.BindToProvider(conn.schedules))
}
