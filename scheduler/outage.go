package scheduler

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// outageLog logs the start and the end of the time in which one Redis cannot be
// used, once each.
type outageLog struct {
	log  *slog.Logger
	what string

	mu    sync.Mutex
	down  bool
	since time.Time
}

func newOutageLog(log *slog.Logger, what string) *outageLog { return &outageLog{log: log, what: what} }

// note is told of each call: what ctx it had, when it began, and how it ended.
// A call that was given up by its own context says nothing of Redis, and one
// that began before the outage says nothing of its end.
func (o *outageLog) note(ctx context.Context, began time.Time, err error) {
	if err != nil && ctx.Err() != nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case err != nil && !o.down:
		o.down, o.since = true, time.Now()
		o.log.Error(o.what+" is unavailable; jobs wait", "error", err)
	case err == nil && o.down && began.After(o.since):
		o.down = false
		o.log.Info(o.what+" is available again; jobs go on", "after", time.Since(o.since).Round(time.Millisecond))
	}
}

// unreachable returns err if it means that Redis cannot be used, and nil if it
// answered, with whatever.
func unreachable(err error) error {
	if err == nil || errors.Is(err, redis.Nil) {
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
