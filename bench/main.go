// Command bench measures headgate beside other systems on a redis-server of its own. go run ./bench -h
// lists what it measures. Each command prints a table, or with --json one array of objects.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

type commands struct {
	Limiter  limiterCommand  `cmd:"" help:"Decisions a second, bytes per key, and admissions beyond the guarantee, beside redis_rate."`
	Overhead overheadCommand `cmd:"" help:"Jobs a second under limits that never deny, beside bare asynq."`
	Backlog  backlogCommand  `cmd:"" help:"A backlog of jobs under a limit, beside other systems."`
	Shards   shardsCommand   `cmd:"" help:"The cost of a throttled job in a queue with 1, 4 and 16 shards, on one Redis and on a cluster."`
	Scripts  scriptsCommand  `cmd:"" help:"The cost of each script in Redis, in commands, instructions and time, beside asynq's and redis_rate's."`
	Idle     idleCommand     `cmd:"" help:"The cost of idle workers, beside asynq's."`
	Busy     busyCommand     `cmd:"" help:"The part of a funnel that is used while some queues have no free worker."`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		stop()
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 3 && args[0] == idleWorkerCommand {
		return idleWorker(args[1], args[2])
	}
	if len(args) == 3 && args[0] == busyWorkerCommand {
		return busyWorker(args[1], args[2])
	}
	parser, err := kong.New(&commands{}, kong.Name("bench"), kong.Writers(stdout, stderr),
		kong.Description("Measures headgate beside other systems on a redis-server of its own."))
	if err != nil {
		return err
	}
	command, err := parser.Parse(args)
	if err != nil {
		return err
	}
	return withBench(ctx, stdout, stderr, func(b *bench) error { return command.Run(b) })
}
