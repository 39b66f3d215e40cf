package scheduler

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
)

// IdempotencyKey returns a text by which others know the running job again: it is the
// same in all its attempts, also in one that repeats a finished one because its worker
// died before asynq knew, and no other job has it, not even a later one of the same ID.
// It is for the IDs of jobs that follow, and for APIs that take such a key.
//
// It is a random UUID, kept with the job in asynq's Redis, and takes a round trip. The
// error is that Redis's, or says that the job is gone or that ctx is not that of a
// Server's handler.
func IdempotencyKey(ctx context.Context) (string, error) {
	h, ok := runningJobOf(ctx)
	if !ok {
		return "", errors.New("idempotency key: want the context of a handler of a scheduler.Server")
	}
	key, err := h.server.db.Name(ctx, h.Queue, h.ID, uuid.NewString())
	if err != nil {
		return "", fmt.Errorf("idempotency key of job %s: %w", h.ID, err)
	}
	return key, nil
}
