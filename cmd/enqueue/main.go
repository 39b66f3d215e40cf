// Command enqueue adds jobs to their queues.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/alecthomas/kong"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/cmd/internal/jobspec"
)

func main() { cli.Process(execute) }

func execute(ctx context.Context, args []string, stdio cli.IO) int {
	if len(args) > 0 && args[0] == "crawl" {
		var c crawlCommand
		return cli.Main(ctx, "enqueue crawl", aboutCrawl, &c, &c.Globals, args[1:], stdio)
	}
	var c command
	return cli.Main(ctx, "enqueue", about, &c, &c.Globals, args, stdio)
}

type command struct {
	cli.Globals
	File    string `arg:"" optional:"" help:"File with one JSON job per line, or - for standard input."`
	Type    string `placeholder:"TYPE" help:"Type of the job, such as http:request, if there is no file."`
	Payload string `placeholder:"JSON" help:"Payload of the job."`
	ID      string `placeholder:"ID" help:"ID of the job. It must be unique in the queue."`
	jobspec.Options
	JSON   bool `help:"Print one JSON object with enqueued, there_already and bad_lines, and, for a job of --type, with its id. --ids adds the line and the ID of each added job. With --plan the object has planned, first and last instead."`
	IDs    bool `name:"ids" help:"Print the ID of each added job, one per line, after its line number in the file and a tab."`
	Strict bool `help:"Add no job if a line is bad."`
	Plan   bool `help:"Add no job. Print when the first and the last of the jobs would run if all jobs of the queues ran before them, and which limit is the slowest."`

	Version kong.VersionFlag `help:"Print the version."`
}

func (c *command) Run(ctx context.Context, stdio cli.IO) error {
	conf, err := c.Load()
	if err != nil {
		return err
	}
	input, err := c.open(ctx, stdio.In)
	if err != nil {
		return err
	}
	defer input.Close()
	source := &source{config: conf, defaults: c.Options, json: c.JSON, showIDs: c.IDs, stdio: stdio, input: input}
	if c.File == "" {
		source.given = []jobspec.Job{{Type: c.Type, Payload: []byte(c.Payload), ID: c.ID, Options: c.Options}}
	}
	if c.Plan {
		return printPlan(ctx, source)
	}
	return addJobs(ctx, source, c.Strict)
}

// Validate reports what is wrong with the flags. kong calls it.
func (c *command) Validate() error {
	switch {
	case c.File == "" && c.Type == "":
		return errors.New("nothing to add: want --type TYPE, or a FILE with one job a line (- for standard input)")
	case c.Plan && c.IDs:
		return errors.New("--plan and --ids: want one of them; a plan adds no job")
	case c.File != "" && (c.Type != "" || c.Payload != "" || c.ID != ""):
		return fmt.Errorf("--type, --payload and --id cannot be combined with a file: write them on the lines of %s", c.File)
	}
	return cli.FlagError(c.Options.Validate())
}

// open opens the input. When ctx ends, a read of a file or of standard input returns ctx's error, also
// if it blocks.
func (c *command) open(ctx context.Context, stdin io.Reader) (io.ReadCloser, error) {
	from := io.NopCloser(stdin)
	switch c.File {
	case "":
		return from, nil
	case "-":
	default:
		file, err := os.Open(c.File)
		if err != nil {
			return nil, cli.Usagef("%w", err)
		}
		from = file
	}
	input, lines := io.Pipe()
	context.AfterFunc(ctx, func() { lines.CloseWithError(ctx.Err()) })
	go func() {
		defer from.Close()
		_, err := io.Copy(lines, from)
		lines.CloseWithError(err)
	}()
	return input, nil
}
