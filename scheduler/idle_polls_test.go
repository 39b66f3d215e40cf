package scheduler

import (
	"context"
	"strings"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// idlePolls answers asynq's polls of keys that do not exist: nothing is there,
// which miniredis would find out by a whole new Lua machine, a hundred times a
// second. All others pass.
type idlePolls struct{ queues *miniredis.Miniredis }

func (i idlePolls) around(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	if poll, ok := cmd.(*redis.Cmd); ok && isPoll(poll) && !i.queues.Exists(poll.Args()[3].(string)) {
		poll.SetErr(redis.Nil)
		return redis.Nil
	}
	return next(ctx, cmd)
}

// isPoll reports whether a command is asynq's script Dequeue.
func isPoll(cmd *redis.Cmd) bool {
	args := cmd.Args()
	if cmd.Name() != "evalsha" || len(args) < 7 || args[2] != 4 {
		return false
	}
	pending, _ := args[3].(string)
	paused, _ := args[4].(string)
	return strings.HasSuffix(pending, "}:pending") && strings.HasSuffix(paused, "}:paused")
}
