// Package batch waits for batches.
package batch

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/cmd/internal/results"
	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/internal/duration"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/redact"
	"github.com/headgate/headgate/scheduler"
)

// Wait waits for the end of a batch, and shows the progress on a terminal.
type Wait struct {
	Name    string // of the batch
	Config  *config.Config
	Redis   redis.UniversalClient
	Results string // the file for the results of the jobs, or ""
	Command string // the name of the command
	Quiet   bool   // the caller prints the counts
	IO      cli.IO

	first     scheduler.Batch // as the first call of show got it
	firstTime time.Time
}

// Run prints the final counts of the batch and returns them, with the exit code Failed if a job has failed
// for good.
func (w *Wait) Run(ctx context.Context) (scheduler.Batch, error) {
	var file *os.File
	if w.Results != "" {
		var err error
		if file, err = os.OpenFile(w.Results, os.O_CREATE|os.O_WRONLY, 0o644); err != nil {
			return scheduler.Batch{}, cli.Usagef("--results %w", err)
		}
		defer file.Close()
	}
	b, err := w.Config.NewClient(w.Redis).WaitBatch(ctx, w.Name, w.show)
	w.clearLine()
	switch {
	case ctx.Err() != nil:
		fmt.Fprintf(w.IO.Err, "%s: the jobs go on; this goes on waiting: %s wait --batch %s\n", w.Command, cli.Worker, w.Name)
		return b, ctx.Err()
	case err != nil:
		return b, err
	case !w.Quiet:
		_, err = fmt.Fprintf(w.IO.Out, "batch %s ended: %s, %d completed, %d failed, %d deleted\n", w.Name, display.Count(b.Jobs, "job"), b.Completed, b.Failed, b.Deleted)
	}
	if err == nil && file != nil {
		err = w.write(ctx, file)
	}
	if err == nil && b.Failed > 0 {
		err = cli.Failed
	}
	return b, err
}

// show shows the progress in one line of a terminal, which the next one replaces.
func (w *Wait) show(b scheduler.Batch) {
	if w.firstTime.IsZero() {
		w.first, w.firstTime = b, time.Now()
		w.explain(b)
	}
	if !cli.IsTerminal(w.IO.Err) {
		return
	}
	text := fmt.Sprintf("batch %s: %d of %d ended, %d failed", w.Name, b.Jobs-b.Unfinished, b.Jobs, b.Failed)
	if ended := w.first.Unfinished - b.Unfinished + b.Jobs - w.first.Jobs; ended > 0 && b.Unfinished > 0 {
		left := time.Since(w.firstTime) / time.Duration(ended) * time.Duration(b.Unfinished)
		text += ", about " + duration.Text(left.Round(time.Second)) + " left at this rate"
	}
	w.clearLine()
	fmt.Fprint(w.IO.Err, text)
}

// explain says why a batch cannot end at present.
func (w *Wait) explain(b scheduler.Batch) {
	if !b.Closed {
		fmt.Fprintf(w.IO.Err, "%s: batch %s is not closed, so it cannot end: its enqueue is still running, or was interrupted: then run the same enqueue again; if another program adds its jobs, %s wait --batch %s --close\n", w.Command, w.Name, cli.Worker, w.Name)
	}
	if servers, err := asynq.NewInspectorFromRedisClient(w.Redis).Servers(); b.Unfinished > 0 && err == nil && len(servers) == 0 {
		fmt.Fprintf(w.IO.Err, "%s: no worker is running: the jobs wait for one\n", w.Command)
	}
}

func (w *Wait) clearLine() {
	if cli.IsTerminal(w.IO.Err) {
		fmt.Fprint(w.IO.Err, "\r\x1b[K")
	}
}

// write writes the results of the batch's jobs that Redis still has.
func (w *Wait) write(ctx context.Context, file *os.File) error {
	secrets, err := redact.New(w.Config.Page.Redact)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	n := 0
	each := func(do func(results.Result) error) error {
		n = 0
		for job, err := range w.Config.Inspect(w.Redis).List(ctx, inspect.Filter{Batch: w.Name, States: []string{"completed", "archived"}}) {
			if err == nil {
				err = do(results.New(job, secrets))
			}
			if err != nil {
				return err
			}
			n++
		}
		return nil
	}
	if strings.EqualFold(filepath.Ext(w.Results), ".csv") {
		err = results.WriteCSV(&text, each)
	} else {
		err = each(func(r results.Result) error { return cli.JSONLine(&text, r) })
	}
	if err != nil {
		return err
	}
	if err := file.Truncate(0); err != nil {
		return err
	}
	if _, err := file.Write(text.Bytes()); err != nil {
		return err
	}
	fmt.Fprintf(w.IO.Err, "%s: wrote %s to %s\n", w.Command, display.Count(n, "result"), w.Results)
	return file.Close()
}
