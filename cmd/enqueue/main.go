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
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	code := run(ctx, os.Args[1:], cli.IO{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, stdio cli.IO) int {
	if len(args) > 0 && args[0] == "crawl" {
		var c crawlCommand
		return cli.Main(ctx, "enqueue crawl", aboutCrawl, &c, &c.Globals, args[1:], stdio)
	}
	var c command
	return cli.Main(ctx, "enqueue", about, &c, &c.Globals, args, stdio)
}
