package worker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/scheduler"
)

// logJob logs a line for each attempt that ends. What becomes of a job that
// failed is for logFailure to say.
func (w *Worker) logJob(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		began := time.Now()
		err := next.ProcessTask(ctx, task)
		id, _ := asynq.GetTaskID(ctx)
		queue, _ := asynq.GetQueueName(ctx)
		retried, _ := asynq.GetRetryCount(ctx)
		d, _ := scheduler.GetDecision(ctx)
		w.log.LogAttrs(ctx, slog.LevelInfo, "job ended", slog.String("outcome", outcome(err)),
			slog.String("type", task.Type()), slog.String("id", id), slog.String("queue", queue), slog.Int("attempt", retried+1),
			slog.Time("started", began), slog.Duration("took", time.Since(began)),
			slog.Int("denials", d.Denials), slog.Duration("waited", d.Waited))
		return err
	})
}

func outcome(err error) string {
	switch {
	case err == nil:
		return "done"
	case errors.Is(err, asynq.RevokeTask):
		return "dropped"
	case scheduler.IsPutBack(err):
		return "put back"
	}
	return "failed"
}
