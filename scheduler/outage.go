package scheduler

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// outageLog logs the start and the end of each time in which one Redis cannot
// be used, once each. All calls of a process tell it how they went, so it needs no
// polls of its own, and nothing is logged a thousand times. It is safe for
// concurrent use, and changes nothing: whoever calls decides what to do without
// Redis.
type outageLog struct {
	log  *slog.Logger
	what string

	mu      sync.Mutex
	down    bool
	changed time.Time // when that became so
}

// newOutageLog logs what is away as `what`. It begins as available.
func newOutageLog(log *slog.Logger, what string) *outageLog { return &outageLog{log: log, what: what} }

// note is told of each call: what ctx it had, when it began, and how it ended.
// A call that was given up by its own context says nothing of Redis, and one
// that began before the last change says nothing of what is now: of many calls
// that hang together some end well after the outage was noted.
func (o *outageLog) note(ctx context.Context, began time.Time, err error) {
	if err != nil && ctx.Err() != nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if down := err != nil; down == o.down || began.Before(o.changed) {
		return
	}
	now := time.Now()
	if err != nil {
		o.log.Error(o.what+" is unavailable; jobs wait", "error", err)
	} else {
		o.log.Info(o.what+" is available again; jobs go on", "after", now.Sub(o.changed).Round(time.Millisecond))
	}
	o.down, o.changed = err != nil, now
}

// unreachable returns err if it means that Redis cannot be used, and nil if it
// answered, with whatever. That a Redis loads its data, takes no writes or has no
// memory left is an answer, too, but no use.
func unreachable(err error) error {
	if err == nil || errors.Is(err, redis.Nil) || errors.Is(err, errLayout) ||
		errors.Is(err, asynq.ErrQueueNotFound) || errors.Is(err, asynq.ErrTaskNotFound) {
		return nil
	}
	if _, answered := errors.AsType[redis.Error](err); !answered {
		return err
	}
	for _, unusable := range []func(error) bool{
		redis.IsLoadingError, redis.IsReadOnlyError, redis.IsClusterDownError, redis.IsMasterDownError,
		redis.IsMaxClientsError, redis.IsAuthError, redis.IsOOMError, redis.IsNoReplicasError,
	} {
		if unusable(err) {
			return err
		}
	}
	return nil
}

// A watch tells an outage of the calls of one goroutine, of which each begins
// after the one before has ended. So it need not be told when a call began: it takes
// the end of the one before, which is no later.
type watch struct {
	*outageLog
	before time.Time
}

// note tells the outage how a call ended, and returns err, so that it can stand
// around the call.
func (w *watch) note(ctx context.Context, err error) error {
	w.outageLog.note(ctx, w.before, unreachable(err))
	w.before = time.Now()
	return err
}
