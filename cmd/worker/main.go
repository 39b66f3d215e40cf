// Command worker runs jobs within their limits, and looks after the limits.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/headgate/headgate/internal/cli"
)

func main() {
	os.Exit(run(untilSignal(), os.Args[1:], cli.IO{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}

// untilSignal ends with the first signal. A second one ends the process at once,
// as it does by default, from before the context ends.
func untilSignal() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		signal.Stop(signals)
		cancel()
	}()
	return ctx
}

const about = `Runs jobs within their limits, and looks after the limits.

The exit code is 2 for a mistake in the arguments or in the config, and 1 if something else failed.`

// commands are the subcommands, one file each.
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
	return cli.Main(ctx, "worker", about, &c, &c.Globals, args, stdio)
}
