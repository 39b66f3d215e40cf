package redistest

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"
)

// A Hook is called for each command outside of a pipeline. It calls next to send the command.
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

// LostReplies loses replies of scripts, so that the client repeats them. Its Around is a [Hook].
type LostReplies struct {
	Next  bool   // lose the next reply
	Did   bool   // a reply was lost
	Later func() // called between the loss and the repeat, if not nil
}

// Around sends a command, twice if its reply is to be lost.
func (l *LostReplies) Around(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	if l.Next && strings.HasPrefix(cmd.Name(), "eval") && next(ctx, cmd) == nil {
		l.Next, l.Did = false, true
		if l.Later != nil {
			l.Later()
		}
	}
	return next(ctx, cmd)
}
