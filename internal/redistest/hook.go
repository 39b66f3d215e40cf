package redistest

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// A Hook is what happens around each command of a client, but for those in a pipeline: it
// carries the command out by next, or does not.
type Hook func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error

// DialHook implements redis.Hook.
func (Hook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (Hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// ProcessHook implements redis.Hook.
func (h Hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return h(ctx, cmd, next) }
}
