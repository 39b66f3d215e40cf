package redistest

import (
	"context"
	"strings"

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

// LostReplies loses replies of a client's scripts, which the client repeats: its Around is
// for [Hook].
type LostReplies struct {
	Next bool // whether to lose the next reply
	Did  bool // whether the last was lost
	// Later, if it is set, is called before the repeat.
	Later func()
}

// Around sends a command, and once more if its reply is to be lost.
func (l *LostReplies) Around(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	if l.Next && strings.HasPrefix(cmd.Name(), "eval") && next(ctx, cmd) == nil {
		l.Next, l.Did = false, true
		if l.Later != nil {
			l.Later()
		}
	}
	return next(ctx, cmd)
}
