package redistest

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// LostReplies loses replies of a client's calls, which the client repeats: its Around is
// for [Hook].
type LostReplies struct {
	Next bool // whether to lose the next reply
	Did  bool // whether the last was lost
}

// Around sends a command, and once more if its reply is to be lost.
func (l *LostReplies) Around(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	if l.Next && next(ctx, cmd) == nil {
		l.Next, l.Did = false, true
	}
	return next(ctx, cmd)
}
