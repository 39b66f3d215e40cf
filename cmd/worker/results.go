package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/cmd/internal/results"
	"github.com/headgate/headgate/internal/duration"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/redact"
)

type resultsCommand struct {
	Type   string         `placeholder:"TYPE" help:"Only of jobs of this type."`
	Queue  string         `placeholder:"NAME" help:"Only of this queue."`
	Batch  string         `placeholder:"NAME" help:"Only of jobs of this batch."`
	Since  *time.Duration `placeholder:"DURATION" help:"Only of jobs that ended within this time, such as 1h."`
	Failed bool           `help:"List archived jobs instead of completed jobs, each with its last result or its error."`
	Out    string         `placeholder:"DIR" help:"Write the bodies and results to files DIR/QUEUE/ID."`
	JSON   bool           `help:"Print JSON lines: one object a line."`
	CSV    bool           `name:"csv" help:"Print CSV, with the columns of the rows from which \"enqueue\" made the jobs."`
}

func (resultsCommand) Help() string {
	return `Lists the results of completed jobs, newest first. The result of an http:request is the status, the kept headers and the body of its answer. The result of any other type is what its handler wrote. Each line begins with the time at which the job ended, its ID, its type, and its payload with hidden secrets. "enqueue --ids" prints the IDs of the jobs that it enqueues.

A finished job is kept only for its retention: enqueue it with --retention, or set retention: 24h for its type in the config. A body is kept up to max_body. A body that the worker saved to a file is not part of the result.

--json has a payload, a result and a body that is a JSON object or list as such, and any other one as a string. --csv has the columns id, queue, type, state, ended, status, error, saved and body, and row.NAME for each column NAME of the CSV files from which "enqueue" made the jobs, of all files together; a job of another file, or of none, has no value there.

--out DIR writes each kept body, or the result of a job of another type, to a file. Characters of a file name other than letters, digits and _ . @ - are percent-encoded, and a long name ends with a hash. Files appear whole or not at all. Existing files are not replaced, so the command can be repeated; if one has other content, the exit code is 1. There is no file for an empty body, and for a body that the worker saved.`
}

func (c *resultsCommand) Run(ctx context.Context, conn *connection, q *inspect.Queues, stdio cli.IO) error {
	switch {
	case c.JSON && c.Out != "" || c.CSV && (c.JSON || c.Out != ""):
		return cli.Usagef("--json, --csv and --out: want one of them")
	case c.Since != nil && *c.Since <= 0:
		return cli.Usagef("--since %s: want a duration above 0, such as 1h", duration.Exact(*c.Since))
	}
	secrets, err := redact.New(conn.conf.Page.Redact)
	if err != nil {
		return err
	}
	if c.Out != "" {
		to, err := createFolder(c.Out, stdio)
		if err != nil {
			return err
		}
		return cmp.Or(c.each(ctx, q, secrets, to.put), to.close())
	}
	if c.CSV {
		return results.WriteCSV(stdio.Out, func(do func(results.Result) error) error { return c.each(ctx, q, secrets, do) })
	}
	found := false
	err = c.each(ctx, q, secrets, func(r results.Result) (err error) {
		found = true
		if c.JSON {
			return cli.JSONLine(stdio.Out, r)
		}
		_, err = fmt.Fprintln(stdio.Out, r.Line())
		return err
	})
	if err == nil && !found && !c.JSON {
		_, err = fmt.Fprintln(stdio.Out, "no result matches: a finished job is kept only with a retention, and has a result only if its handler writes one")
	}
	return err
}

// each calls do with each result, until the first error.
func (c *resultsCommand) each(ctx context.Context, q *inspect.Queues, secrets redact.Redactor, do func(results.Result) error) error {
	f := inspect.Filter{Queue: c.Queue, Type: c.Type, Batch: c.Batch, States: []string{"completed"}}
	if c.Failed {
		f.States = []string{"archived"}
	}
	for job, err := range q.List(ctx, f) {
		if err != nil {
			return err
		}
		if len(job.Result) == 0 && !c.Failed || c.Since != nil && time.Since(job.Since) > *c.Since {
			continue
		}
		if err := do(results.New(job, secrets)); err != nil {
			return err
		}
	}
	return nil
}

// folder writes each body to a file DIR/QUEUE/ID.
type folder struct {
	root                     *os.Root
	stdio                    cli.IO
	written, exist, differed int // numbers of bodies: new files, files with the same content, files with other content
}

// createFolder creates the folder if it is missing. Existing files in it are never replaced.
func createFolder(name string, stdio cli.IO) (*folder, error) {
	if err := os.MkdirAll(name, 0o755); err != nil {
		return nil, cli.Usagef("--out %w", err)
	}
	root, err := os.OpenRoot(name)
	return &folder{root: root, stdio: stdio}, err
}

func (f *folder) put(r results.Result) error {
	if len(r.Response.Body) == 0 || r.HTTPResult != nil && r.Saved != "" {
		return nil
	}
	queue := fileName(r.Queue)
	name, temp := filepath.Join(queue, fileName(r.ID)), filepath.Join(queue, ".headgate-"+uuid.NewString())
	if err := errors.Join(f.root.MkdirAll(queue, 0o755), f.root.WriteFile(temp, r.Response.Body, 0o644)); err != nil {
		return err
	}
	err := f.root.Link(temp, name) // Link replaces no file, unlike Rename
	err = errors.Join(err, f.root.Remove(temp))
	if errors.Is(err, fs.ErrExist) {
		if before, err := f.root.ReadFile(name); err == nil && bytes.Equal(before, r.Response.Body) {
			f.exist++
			return nil
		}
		f.differed++
		fmt.Fprintf(f.stdio.Err, "%s: %s exists with other content and is not replaced\n", cli.Worker, name)
		return nil
	}
	if err == nil {
		f.written++
	}
	return err
}

func (f *folder) close() error {
	fmt.Fprintf(f.stdio.Out, "wrote %d bodies below %s; %d exist already\n", f.written, f.root.Name(), f.exist+f.differed)
	if err := f.root.Close(); err != nil || f.differed == 0 {
		return err
	}
	return cli.Failed
}

// fileName returns a file name for a text. The name contains no folder, and different texts have
// different names.
func fileName(text string) string {
	var name strings.Builder
	for i := range len(text) {
		switch c := text[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '@', c == '-', c == '.' && i > 0:
			name.WriteByte(c)
		default:
			fmt.Fprintf(&name, "%%%02X", c)
		}
	}
	if name.Len() > 150 { // file systems allow about 255 bytes
		return fmt.Sprintf("%s~%x", name.String()[:100], sha256.Sum256([]byte(text)))
	}
	return name.String()
}
