package main

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/tasks"
	"github.com/headgate/headgate/throttle"
)

// blockOnRetryAfter blocks the limits of a job whose call was answered with a
// Retry-After. It blocks only the keys that the call counts under; the limits
// without a key are shared with calls to others, unless all are like that.
func (w *worker) blockOnRetryAfter(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		err := next.ProcessTask(ctx, task)
		status, ok := errors.AsType[*tasks.StatusError](err)
		if !ok || status.RetryAfter == 0 {
			return err
		}
		if failed := w.block(ctx, status.RetryAfter); failed != nil {
			w.log.Warn("could not block a limit as Retry-After asks", "error", failed)
		}
		return err
	})
}

func (w *worker) block(ctx context.Context, wait time.Duration) error {
	rule, _ := scheduler.GetRule(ctx)
	if len(rule.Needs) == 0 {
		return nil
	}
	now, err := w.store.Time(ctx).Result() // the limiter goes by Redis's clock
	if err != nil {
		return err
	}
	ctx = throttle.As(ctx, "upstream")
	for _, n := range mostSpecific(rule.Needs) {
		if err := w.limiter.Block(ctx, n.Limit, n.Key, now.Add(wait)); err != nil {
			return err
		}
		w.log.Info("blocked as Retry-After asks", "limit", n.Limit, "key", n.Key, "for", wait)
	}
	return nil
}

// mostSpecific is the needs with a key, or all where none has one.
func mostSpecific(needs []throttle.Need) []throttle.Need {
	var keyed []throttle.Need
	for _, n := range needs {
		if n.Key != "" {
			keyed = append(keyed, n)
		}
	}
	if len(keyed) > 0 {
		return keyed
	}
	return needs
}
