package worker

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/cmd/internal/config"
)

// batchHandler runs the job that follows a batch. Its result has the counts of the batch; the config's
// on_done follows it.
type batchHandler struct{ *Worker }

// Check returns an error if the config says nothing about what follows.
func (h *batchHandler) Check(*asynq.Task) error {
	if h.config.Load().OnDone == nil {
		return fmt.Errorf("%s: the worker's config has no on_done: want the on_done with which enqueue was called: %w", config.TypeBatchDone, asynq.SkipRetry)
	}
	return nil
}

// ProcessTask implements asynq.Handler.
func (h *batchHandler) ProcessTask(ctx context.Context, task *asynq.Task) error {
	var payload struct{ Batch string }
	if err := json.Unmarshal(task.Payload(), &payload); err != nil {
		return fmt.Errorf("payload: %w: %w", err, asynq.SkipRetry)
	}
	batch, err := h.config.Load().NewClient(h.redis).Batch(ctx, payload.Batch)
	if err != nil {
		return err
	}
	result, err := json.Marshal(batch)
	if err == nil {
		_, err = task.ResultWriter().Write(result)
	}
	return err
}
