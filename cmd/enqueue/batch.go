package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/headgate/headgate/cmd/internal/batch"
	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/internal/asynqdb"
)

// openBatches opens the batches of lines, each once.
func (e *enqueuer) openBatches(ctx context.Context, lines []line) error {
	for _, l := range lines {
		if l.Batch == "" || e.batches[l.Batch] {
			continue
		}
		if err := e.config.OpenBatch(ctx, e.client, l.Batch, l.Queue); err != nil {
			return err
		}
		e.batches[l.Batch] = true
	}
	return nil
}

// isInBatch reports whether a job is or was in its batch.
func (e *enqueuer) isInBatch(ctx context.Context, l line) bool {
	queue := l.Queue
	if l.Shard.Count > 0 {
		queue = l.Shard.Name()
	}
	return asynqdb.New(e.rdb).InBatch(ctx, l.Batch, queue, l.ID)
}

// closeBatches closes the batches after all of the input was read. err is the error that ends the
// command, or nil.
func (e *enqueuer) closeBatches(ctx context.Context, err error) error {
	for _, name := range slices.Sorted(maps.Keys(e.batches)) {
		if err != nil || e.inputErr != nil {
			fmt.Fprintf(e.stdio.Err, "%s: batch %s has not all of its jobs: run the same command again, with --batch %s\n", cli.Enqueue, name, name)
			continue
		}
		err = e.client.CloseBatch(ctx, name)
	}
	return err
}

// waitForBatch waits for the end of the batch of the defaults.
func (e *enqueuer) waitForBatch(ctx context.Context) error {
	if e.warn(); !e.json {
		if err := e.report(); err != nil {
			return err
		}
		fmt.Fprintf(e.stdio.Err, "%s: waiting for batch %s\n", cli.Enqueue, e.defaults.Batch)
	}
	wait := batch.Wait{Name: e.defaults.Batch, Config: e.config, Redis: e.rdb, Results: e.results, Command: cli.Enqueue, Quiet: e.json, IO: e.stdio}
	b, err := wait.Run(ctx)
	if !b.Ended.IsZero() {
		e.waited = &b
	}
	return err
}
