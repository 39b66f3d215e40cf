package main

import (
	"context"
	"errors"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/cli"
)

// takeSpool enqueues the jobs that were added while no worker was running.
func (w *worker) takeSpool(ctx context.Context) error {
	if w.store.own == nil {
		return nil
	}
	lines, done, err := w.store.own.TakeSpool()
	if err != nil {
		return err
	}
	client := asynq.NewClientFromRedisClient(w.store)
	for _, line := range lines {
		job, err := cli.ParseJob(line)
		if err == nil {
			_, err = client.EnqueueContext(ctx, job.Fill(cli.JobOptions{}, w.config.Load()).Task())
			if err != nil && !errors.Is(err, asynq.ErrTaskIDConflict) && !errors.Is(err, asynq.ErrDuplicateTask) {
				return err // the next worker takes all of them again
			}
		}
		if err != nil {
			w.log.Warn("a job that was enqueued while no worker was running is dropped", "job", string(line), "error", err)
		}
	}
	if len(lines) > 0 {
		w.log.Info("took the jobs that were enqueued while no worker was running", "jobs", len(lines))
	}
	return done()
}
