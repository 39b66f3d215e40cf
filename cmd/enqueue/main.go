// Command enqueue adds jobs to their queues.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/headgate/headgate/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], cli.IO{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	stop()
	os.Exit(code)
}

const about = `Adds jobs to their queues: one that the flags describe, or many, one JSON object a line, from a file or from standard input.

  enqueue --type http:request --payload '{"url":"https://example.com/"}'
  enqueue jobs.jsonl
  make-jobs | enqueue --in 1h -

The fields of a line are type, payload, id, queue, in, at, max_retry, retention, priority, timeout, deadline and unique; each means what the flag of that name does, and wins over it. Only type is required. Jobs of one queue keep the order of their lines.

A line with an error is reported with its number, and the others are added. The exit code is 2 if any line was bad, and 1 if Redis failed.`

func run(ctx context.Context, args []string, stdio cli.IO) int {
	var c command
	return cli.Main(ctx, "enqueue", about, &c, &c.Globals, args, stdio)
}
