package worker

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/tasks"
	"github.com/headgate/headgate/throttle"
)

// obeyUpstream has jobs wait whose call the other side refused for now: with 429, or
// with 503 or a used-up quota and when to come back. Where it says that with another
// answer the limits' keys are shut, and the job goes on as it would; and so it does
// after a 503 that does not say when, which limits that adapt hear of.
//
// When to come back is told to limits that the config trusts the other side with. Else
// they are shut after a 429 alone, as if it told no time, and only the job waits.
func (w *Worker) obeyUpstream(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		err := next.ProcessTask(ctx, task)
		status, ok := errors.AsType[*tasks.StatusError](err)
		if !ok {
			return err
		}
		var told time.Time
		if !status.Until.IsZero() {
			told = w.told(task, status.Until)
			if told.IsZero() {
				w.log.Info("the other side says when to come back, and shuts no limit: the key of none is its host, and the config has no trust: all", "type", task.Type(), "in", status.RetryAfter)
			}
		}
		switch status.Status {
		case http.StatusTooManyRequests:
			return &refusedError{err, scheduler.Blocked(told)}
		case http.StatusServiceUnavailable, http.StatusForbidden:
			if !told.IsZero() {
				return &refusedError{err, scheduler.Blocked(told)}
			}
			if status.Status == http.StatusServiceUnavailable {
				w.slow(ctx)
			}
			if !status.Until.IsZero() {
				return &refusedError{err, scheduler.RetryAfter(min(max(0, time.Until(status.Until)), throttle.Day))}
			}
		}
		w.shut(ctx, told)
		return err
	})
}

// told is the moment until which an answer shuts the limits of a task, and zero where the
// config does not trust it with them. What is longer than a limit allows is cut.
func (w *Worker) told(task *asynq.Task, until time.Time) time.Time {
	c, wait := w.config.Load(), time.Until(until)
	if t := c.Tasks[task.Type()]; until.IsZero() || len(t.Limits) > 0 && !t.Trusts() {
		return time.Time{}
	}
	least, longest := c.MaxBlocks(task.Type())
	if least.Name != "" && wait > least.LongestBlock() {
		w.log.Warn("the other side wants to be left alone for longer than a limit allows: it is shut for its max_block", "type", task.Type(),
			"limit", least.Name, "max_block", least.LongestBlock(), "asked", wait.Round(time.Second))
	}
	return until.Add(min(0, longest-wait)) // each limit cuts the rest itself
}

// observe hears of every answer of the other side.
func (w *Worker) observe(ctx context.Context, task *asynq.Task, a tasks.Answer) {
	scheduler.Latency(ctx, a.Latency)
	if a.Status < 400 {
		w.shut(ctx, w.told(task, a.Upstream.Until))
	}
}

// shut shuts what a refusal would until a moment, if there is one.
func (w *Worker) shut(ctx context.Context, until time.Time) {
	if until.IsZero() {
		return
	}
	if err := scheduler.Block(ctx, until); err != nil {
		w.log.Warn("could not shut a limit as the other side asks", "error", err)
	}
}

// slow has limits that adapt slow down.
func (w *Worker) slow(ctx context.Context) {
	if err := scheduler.Overloaded(ctx); err != nil {
		w.log.Warn("could not slow a limit down for a side that is too busy", "error", err)
	}
}

// refusedError is a call's error that speaks of the moment.
type refusedError struct{ error, blocked error }

func (e *refusedError) Error() string   { return e.error.Error() }
func (e *refusedError) Unwrap() []error { return []error{e.error, e.blocked} }
