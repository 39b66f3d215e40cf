// Command enqueue adds jobs to their queues.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/alecthomas/kong"
	"github.com/google/uuid"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/cmd/internal/jobspec"
)

func main() { cli.Process("enqueue", execute) }

func execute(ctx context.Context, args []string, stdio cli.IO) int {
	if len(args) > 0 && args[0] == "crawl" {
		var c crawlCommand
		return cli.Main(ctx, cli.Enqueue+" crawl", aboutCrawl, &c, &c.Globals, args[1:], stdio)
	}
	var c command
	return cli.Main(ctx, cli.Enqueue, about, &c, &c.Globals, args, stdio)
}

type command struct {
	cli.Globals
	File      string `arg:"" optional:"" help:"File with one JSON job per line, CSV file, or - for standard input."`
	CSV       bool   `name:"csv" help:"The file is CSV, as is a FILE whose name ends with .csv: each line after the first becomes a job of --type and --payload. ${row.NAME} in --payload and --id is the text of the column NAME."`
	Separator string `default:"," placeholder:"C" help:"Separator of the columns, such as ; in files of some spreadsheets, or \\t (default a comma)."`
	Type      string `placeholder:"TYPE" help:"Type of the job, such as http:request, if there is no file, or of the jobs of a CSV file."`
	Payload   string `placeholder:"JSON" help:"Payload of the job."`
	ID        string `placeholder:"ID" help:"ID of the job. It must be unique in the queue."`
	jobspec.Options
	JSON    bool   `help:"Print one JSON object with enqueued, there_already and bad_lines, and, for a job of --type, with its id. unsaved is true if some of the jobs were lost, because the embedded Redis could not save. --ids adds the line and the ID of each added job. With --plan the object has planned, first and last instead."`
	IDs     bool   `name:"ids" help:"Print the ID of each added job, one per line, after its line number in the file and a tab."`
	Wait    bool   `help:"Wait until the added jobs have ended, and show the progress on a terminal. The exit code is 1 if a job failed for good. The jobs are in the batch of --batch, or in one of a new name; if the wait is interrupted, \"worker wait --batch NAME\" goes on."`
	Results string `placeholder:"FILE" help:"With --wait: write the results of the jobs to this file at the end, as \"worker results --json\" prints them, or --csv if its name ends with .csv. Jobs without a retention get one of 7 days."`
	Strict  bool   `help:"Add no job if a line is bad."`
	Plan    bool   `help:"Add no job. Print when the first and the last of the jobs would run if all jobs of the queues ran before them, and which limit is the slowest."`

	Version kong.VersionFlag `help:"Print the version."`
}

func (c *command) Run(ctx context.Context, stdio cli.IO) error {
	conf, err := c.Load()
	if err != nil {
		return err
	}
	lines := given(jobspec.Job{Type: c.Type, Payload: []byte(c.Payload), ID: c.ID, Options: c.Options})
	if c.File != "" {
		if lines, err = c.read(ctx, stdio.In); err != nil {
			return err
		}
	}
	if c.Wait && c.Batch == "" {
		c.Batch = fmt.Sprintf("%s-%.8s", time.Now().Format("2006-01-02-150405"), uuid.NewString())
	}
	e := newEnqueuer(conf, c.Options, stdio)
	e.json, e.showIDs, e.single = c.JSON, c.IDs, c.File == ""
	e.wait, e.results = c.Wait, c.Results
	if c.Plan {
		return e.plan(ctx, lines)
	}
	return e.add(ctx, lines, c.Strict)
}

// Validate reports what is wrong with the flags. kong calls it.
func (c *command) Validate() error {
	switch {
	case c.File == "" && c.Type == "" && !c.CSV:
		return errors.New("nothing to add: want --type TYPE, or a FILE with one job a line (- for standard input)")
	case c.Plan && c.Wait:
		return errors.New("--plan and --wait: want one of them; a plan adds no job")
	case c.Results != "" && !c.Wait:
		return errors.New("--results is for --wait: want both")
	case c.Plan && c.IDs:
		return errors.New("--plan and --ids: want one of them; a plan adds no job")
	case c.isCSV():
		if err := c.checkCSV(); err != nil {
			return err
		}
	case c.Separator != ",":
		return errors.New("--separator: want a CSV file, or --csv")
	case c.File != "" && (c.Type != "" || c.Payload != "" || c.ID != ""):
		return fmt.Errorf("--type, --payload and --id cannot be combined with a file: write them on the lines of %s", c.File)
	}
	return cli.FlagError(c.Options.Validate())
}

// byteOrderMark is what Windows editors write before the text.
const byteOrderMark = "\ufeff"

// maxLine is the maximum length of a line in bytes. Redis itself takes values of at most 512 MB.
const maxLine = 64 << 20

// read returns the lines of the file or of standard input as they come. If reading fails, the last
// line has the error.
func (c *command) read(ctx context.Context, stdin io.Reader) (<-chan line, error) {
	input := io.NopCloser(stdin)
	if c.File != "-" {
		file, err := os.Open(c.File)
		if err != nil {
			return nil, cli.Usagef("%w", err)
		}
		input = file
	}
	var rows *table
	if c.isCSV() {
		var err error
		if rows, err = newTable(c, input); err != nil {
			input.Close()
			return nil, cli.Usagef("%w", err)
		}
	}
	lines := make(chan line, 2*batchSize)
	send := func(l line) {
		select {
		case lines <- l:
		case <-ctx.Done():
		}
	}
	go func() {
		defer close(lines)
		defer input.Close()
		if rows != nil {
			rows.each(ctx, send)
			return
		}
		scanner := bufio.NewScanner(input)
		scanner.Buffer(make([]byte, 64<<10), maxLine)
		number := 1
		for ; scanner.Scan() && ctx.Err() == nil; number++ {
			text := bytes.TrimSpace(scanner.Bytes())
			if number == 1 {
				text = bytes.TrimPrefix(text, []byte(byteOrderMark))
			}
			if len(text) > 0 {
				send(line{number: number, text: bytes.Clone(text)})
			}
		}
		err := scanner.Err()
		if errors.Is(err, bufio.ErrTooLong) {
			err = fmt.Errorf("line %d is longer than %d MB: want one job a line", number, maxLine>>20)
		}
		if err != nil {
			send(line{ended: err})
		}
	}()
	return lines, nil
}

// given returns jobs that flags gave.
func given(jobs ...jobspec.Job) <-chan line {
	lines := make(chan line, len(jobs))
	for _, job := range jobs {
		lines <- line{Checked: jobspec.Checked{Job: job}}
	}
	close(lines)
	return lines
}
