package redishealth

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// Hook returns a hook of the Monitor's client. It reports commands that fail while no outage is
// known, also those of parts that do not call Note, so that the outage is known before such a part
// logs its error. A failed call that Note reports as well is counted once.
func (m *Monitor) Hook() redis.Hook { return failureHook{m} }

type failureHook struct{ monitor *Monitor }

// WithoutHook returns a context for commands that may fail without an outage, such as those which
// need rights that a worker does not need.
func WithoutHook(ctx context.Context) context.Context {
	return context.WithValue(ctx, monitorKey{}, true)
}

func (h failureHook) note(ctx context.Context, began time.Time, err error) {
	if Unavailable(err) == nil || ctx.Value(monitorKey{}) != nil {
		return
	}
	if _, down := h.monitor.state(); down == nil {
		h.monitor.Note(ctx, began, err)
	}
}

func (failureHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h failureHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		began := time.Now()
		err := next(ctx, cmd)
		h.note(ctx, began, err)
		return err
	}
}

func (h failureHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		began := time.Now()
		err := next(ctx, cmds)
		h.note(ctx, began, err)
		return err
	}
}
