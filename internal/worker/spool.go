package worker

import (
	"context"
	"errors"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/embedded"
	"github.com/headgate/headgate/internal/jobspec"
	"github.com/headgate/headgate/scheduler"
)

// takeSpool enqueues the jobs that were added while no worker was running. The
// spool is there for the next worker until taken is called.
func (s *store) takeSpool(ctx context.Context, rdb redis.UniversalClient, server *embedded.Server) (taken func(), err error) {
	lines, done := server.Spooled()
	client := scheduler.NewClient(rdb)
	for _, line := range lines {
		job, err := jobspec.Parse(line)
		if err == nil {
			_, err = client.EnqueueContext(ctx, job.Fill(jobspec.Options{}, s.current.Load()).Task())
			if err != nil && !errors.Is(err, asynq.ErrTaskIDConflict) && !errors.Is(err, asynq.ErrDuplicateTask) {
				return nil, err
			}
		}
		if err != nil {
			s.log.Warn("a job that was enqueued while no worker was running is dropped", "job", string(line), "error", err)
		}
	}
	return func() {
		if len(lines) > 0 {
			s.log.Info("took the jobs that were enqueued while no worker was running", "jobs", len(lines))
		}
		if err := done(); err != nil {
			s.log.Warn("the next worker takes jobs again that were enqueued while no worker was running", "error", err)
		}
	}, nil
}
