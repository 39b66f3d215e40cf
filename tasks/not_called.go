package tasks

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/throttle"
)

// ErrNotCalled is wrapped by the error of an attempt that made no call, which the upstream does not
// count. Examples are a malformed payload, an address that is not allowed, a missing secret and a
// refused connection. If a connection was made, the request counts as sent.
var ErrNotCalled = errors.New("no call was made")

// notCalled wraps an error. errors.Is(err, ErrNotCalled) is true for it.
type notCalled struct{ error }

// Unwrap returns the wrapped error.
func (e notCalled) Unwrap() error { return e.error }

// Is reports whether the target is ErrNotCalled.
func (notCalled) Is(target error) bool { return target == ErrNotCalled }

// malformed is the error of a payload that the handler cannot read. asynq archives the job.
func malformed(err error) error {
	return notCalled{fmt.Errorf("malformed payload: %w: %w", err, asynq.SkipRetry)}
}

// Check returns the error with which ProcessTask would archive the task before its call. It does no
// I/O, so a server's rules can call it before the job takes permits.
func (h *HTTPHandler) Check(task *asynq.Task) error {
	call, err := parse[HTTPRequest](task.Payload())
	if err != nil {
		return presentable(malformed(err))
	}
	return presentable(h.checkAddress(call.URL))
}

// Check returns the error with which ProcessTask would archive the task: see HTTPHandler.Check.
func (h *CrawlHandler) Check(task *asynq.Task) error {
	page, err := parse[CrawlFetch](task.Payload())
	if err != nil {
		return presentable(malformed(err))
	}
	if h.HTTP == nil {
		return nil
	}
	return presentable(h.HTTP.checkAddress(page.URL))
}

// Check returns the error with which ProcessTask would archive the task: see HTTPHandler.Check.
func (h *ExecHandler) Check(task *asynq.Task) error {
	_, _, err := h.command(task)
	return presentable(err)
}

// returnPermits returns the permits of a job that made no call. An archived job returns all
// permits. A job that will be retried keeps permits of a funnel, a token bucket and a concurrency
// limit, because a host that is down must not be called faster than allowed.
func (f *Feedback) returnPermits(ctx context.Context, err error) {
	archived := errors.Is(err, asynq.SkipRetry)
	limiter, ok := scheduler.GetLimiter(ctx)
	if !ok {
		return
	}
	d, _ := scheduler.GetDecision(ctx)
	given := map[string]bool{}
	for _, t := range d.Taken {
		if given[t.Limit] {
			continue
		}
		given[t.Limit] = true
		if !archived {
			l, _, err := limiter.Internals().Key(ctx, t.Limit, t.Key)
			if err == nil && slices.Contains([]throttle.Kind{throttle.Funnel, throttle.TokenBucket, throttle.Concurrency}, l.Kind) {
				continue
			}
		}
		if err := scheduler.Settle(ctx, t.Limit, 0); err != nil {
			f.log().Warn("cannot return the permits of a job that made no call", "limit", t.Limit, "error", err)
		}
	}
}
