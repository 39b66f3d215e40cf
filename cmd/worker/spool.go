package main

import (
	"context"
	"errors"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/embedded"
)

// takeSpool enqueues the jobs that were added while no worker was running.
func (s *store) takeSpool(ctx context.Context, rdb redis.UniversalClient, server *embedded.Server) error {
	lines, done := server.Spooled()
	client := asynq.NewClientFromRedisClient(rdb)
	for _, line := range lines {
		job, err := cli.ParseJob(line)
		if err == nil {
			_, err = client.EnqueueContext(ctx, job.Fill(cli.JobOptions{}, s.current.Load()).Task())
			if err != nil && !errors.Is(err, asynq.ErrTaskIDConflict) && !errors.Is(err, asynq.ErrDuplicateTask) {
				return err // the next worker takes all of them again
			}
		}
		if err != nil {
			s.log.Warn("a job that was enqueued while no worker was running is dropped", "job", string(line), "error", err)
		}
	}
	if len(lines) > 0 {
		s.log.Info("took the jobs that were enqueued while no worker was running", "jobs", len(lines))
	}
	return done()
}
