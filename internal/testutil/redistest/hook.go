package redistest

import (
	"context"
	"encoding"
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

// LateSending delays the first sending of a script. The client repeats it, and gets the reply to the
// repeat. Its Around is a [Hook].
type LateSending struct {
	Next func(cmd redis.Cmder) bool // whether to delay the first sending of a script; nil after one was delayed
	args []any
}

// Around sends a command. It keeps the first sending of a script that is to be late.
func (l *LateSending) Around(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	if l.Next == nil || !strings.HasPrefix(cmd.Name(), "eval") || !l.Next(cmd) {
		return next(ctx, cmd)
	}
	l.Next, l.args = nil, nil
	for _, arg := range cmd.Args() {
		if m, ok := arg.(encoding.BinaryMarshaler); ok {
			arg, _ = m.MarshalBinary()
		}
		l.args = append(l.args, arg)
	}
	return next(ctx, cmd)
}

// Arrive delivers the late sending. It reports whether there was one.
func (l *LateSending) Arrive(ctx context.Context, rdb redis.UniversalClient) bool {
	if l.args == nil {
		return false
	}
	_ = rdb.Do(ctx, l.args...).Err() // no caller reads the reply
	l.args = nil
	return true
}
