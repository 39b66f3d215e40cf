// Command enqueue adds jobs to their queues.
package main

import (
	"context"

	"github.com/headgate/headgate/internal/cli"
)

func main() { cli.Process(run) }

func run(ctx context.Context, args []string, stdio cli.IO) int {
	if len(args) > 0 && args[0] == "crawl" {
		var c crawlCommand
		return cli.Main(ctx, "enqueue crawl", aboutCrawl, &c, &c.Globals, args[1:], stdio)
	}
	var c command
	return cli.Main(ctx, "enqueue", about, &c, &c.Globals, args, stdio)
}
