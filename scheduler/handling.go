package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/throttle"
)

// handlingKey is the context key of a handling.
type handlingKey struct{}

// handling is one attempt of which the handler runs.
type handling struct {
	server *Server
	attempt
	decision throttle.Decision
	began    time.Time
}

// tellTimeout bounds how long a job that has ended waits for the limiter to hear of
// it.
const tellTimeout = 5 * time.Second

// judge turns a handler's error into what asynq should make of it, and tells the
// limiter what it should hear.
func (h *handling) judge(ctx context.Context, err error) error {
	took := time.Since(h.began)
	if why, ok := errors.AsType[*blockedError](err); ok {
		if result := h.blocked(ctx, why, err); result != nil {
			return result
		}
	}
	if err == nil && h.decision.Heard {
		h.accepted(ctx, took)
	}
	return h.attempt.judge(err)
}

// accepted tells the limiter that the other side did what the call asked for. If it
// cannot be told it learns of the next one.
func (h *handling) accepted(ctx context.Context, took time.Duration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellTimeout)
	defer cancel()
	began := time.Now()
	h.server.noteLimiter(ctx, began, h.server.limiter.Accepted(ctx, h.decision, took))
}

// judge turns a handler's error into what asynq should make of it.
func (a attempt) judge(err error) error {
	if as, ok := errors.AsType[*putBackAs](err); ok {
		return &putBackError{error: err, at: time.Now(), as: as}
	}
	if err == nil || errors.Is(err, asynq.SkipRetry) || errors.Is(err, asynq.RevokeTask) {
		return err
	}
	if d, ok := errors.AsType[retryAfter](err); ok {
		return &putBackError{error: err, at: time.Now().Add(time.Duration(d))}
	}
	policy := a.rule.Retry
	if policy == nil {
		return err
	}
	if a.retried >= policy.maxRetry(a.maxRetry, err) {
		return finalError{err}
	}
	return spacedError{err, policy.Delay(a.retried, err)}
}
