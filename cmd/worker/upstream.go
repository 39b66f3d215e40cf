package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/tasks"
)

// obeyUpstream has jobs wait whose call the other side refused for now: with 429, or
// with 503 or a used-up quota and when to come back. Where it says that with another
// answer the limits' keys are shut, and the job goes on as it would; and so it does
// after a 503 that does not say when, which limits that adapt hear of.
func (w *worker) obeyUpstream(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		err := next.ProcessTask(ctx, task)
		status, ok := errors.AsType[*tasks.StatusError](err)
		if !ok {
			return err
		}
		var until time.Time
		if status.RetryAfter > 0 {
			until = time.Now().Add(status.RetryAfter)
		}
		switch status.Status {
		case http.StatusTooManyRequests:
			return &refusedError{err, scheduler.Blocked(until)}
		case http.StatusServiceUnavailable, http.StatusForbidden:
			if !until.IsZero() {
				return &refusedError{err, scheduler.Blocked(until)}
			}
			if status.Status == http.StatusServiceUnavailable {
				w.slow(ctx)
			}
		}
		w.shut(ctx, until)
		return err
	})
}

// observe hears of every answer of the other side.
func (w *worker) observe(ctx context.Context, _ *asynq.Task, a tasks.Answer) {
	scheduler.Latency(ctx, a.Latency)
	if a.Status < 400 {
		w.shut(ctx, a.Upstream.Until)
	}
}

// shut shuts what a refusal would until a moment, if there is one.
func (w *worker) shut(ctx context.Context, until time.Time) {
	if until.IsZero() {
		return
	}
	if err := scheduler.Block(ctx, until); err != nil {
		w.log.Warn("could not shut a limit as the other side asks", "error", err)
	}
}

// slow has limits that adapt slow down.
func (w *worker) slow(ctx context.Context) {
	if err := scheduler.Overloaded(ctx); err != nil {
		w.log.Warn("could not slow a limit down for a side that is too busy", "error", err)
	}
}

// refusedError is a call's error that speaks of the moment.
type refusedError struct{ error, blocked error }

func (e *refusedError) Error() string   { return e.error.Error() }
func (e *refusedError) Unwrap() []error { return []error{e.error, e.blocked} }
