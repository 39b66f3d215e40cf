package scheduler

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/headgate/headgate/throttle"
)

// handlingKey is the context key of a handling.
type handlingKey struct{}

// handling is one attempt of which the handler runs. The handler finds it in its
// context, and tells it by way of Latency and Settle how the call went; judge takes
// that into account at the end. Goroutines of the handler may do so, too.
type handling struct {
	server *Server
	attempt
	began time.Time

	mu       sync.Mutex // for what follows: what the handler says
	decision throttle.Decision
	latency  time.Duration
}

// handlingOf is what a handler of a Server runs as; ok is false for any other
// context.
func handlingOf(ctx context.Context) (h *handling, ok bool) {
	h, ok = ctx.Value(handlingKey{}).(*handling)
	return h, ok
}

// Latency says how long the other side took for the running job's call, for limits
// that adapt to that: the last word counts. Without one it is as long as the
// handler ran. It does nothing outside of handlers of a Server.
func Latency(ctx context.Context, d time.Duration) {
	if h, ok := handlingOf(ctx); ok {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.latency = d
	}
}

// Settle says what the running job has truly cost of a limit, under each key that
// it has there, such as tokens that were estimated. More is charged at once, less is
// given back: see throttle.Limiter. Of a limit that the job took nothing of it does
// nothing. It may be said again: the last cost counts. It takes a round trip for
// each key. The error is the limiter's, or says that ctx is not that of a Server's
// handler.
func Settle(ctx context.Context, limit string, cost int) error {
	h, ok := handlingOf(ctx)
	if !ok {
		return errors.New("settle: want the context of a handler of a scheduler.Server")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.decision.Taken {
		if t.Limit != limit {
			continue
		}
		if err := h.server.limiter.Settle(ctx, h.decision, limit, t.Key, cost); err != nil {
			return err
		}
		h.server.history.Settled(t.Need, t.Cost-cost)
	}
	return nil
}

// tellTimeout bounds how long a job that has ended waits for the limiter to hear of
// it.
const tellTimeout = 5 * time.Second

// judge turns a handler's error into what asynq should make of it, and tells the
// limiter what it should hear: of a refusal always, of a success only where a limit
// learns from it, which saves all others the round trip. A failure of another kind
// says nothing about limits.
func (h *handling) judge(ctx context.Context, err error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	took := cmp.Or(h.latency, time.Since(h.began))
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
// cannot be told it learns of the next one. The job is done by then, so its context
// may be over: the call has a time of its own.
func (h *handling) accepted(ctx context.Context, took time.Duration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellTimeout)
	defer cancel()
	began := time.Now()
	h.server.noteLimiter(ctx, began, h.server.limiter.Accepted(ctx, h.decision, took))
}

// judge turns a handler's error into what asynq should make of it. Of an error that
// is several things PutBackAs counts first, then SkipRetry and RevokeTask, then
// RetryAfter: see IsPutBack. Blocked has been looked at before. A nil policy leaves
// the error as it is, for the program's own RetryDelayFunc. A policy's last retry
// ends with a finalError, since asynq knows only the job's own MaxRetry.
func (a attempt) judge(err error) error {
	if as, ok := errors.AsType[*putBackAs](err); ok {
		return &putBackError{error: err, at: time.Now(), as: as}
	}
	if err == nil || ends(err) {
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
