package redistest

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"
)

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
