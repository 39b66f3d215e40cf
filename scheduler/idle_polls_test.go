package scheduler

import (
	"context"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/lua"
)

// idlePolls answers dequeues of queues in which nothing is pending, unless Redis hangs: they
// find nothing, which costs miniredis a whole new Lua machine, a hundred times a second. All
// others pass. It is the last hook of a client, so that others hear of each poll.
type idlePolls struct {
	queues *miniredis.Miniredis
	hangs  func() bool
}

func (i idlePolls) around(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	if poll, ok := cmd.(*redis.Cmd); ok && isPoll(poll) && !i.queues.Exists(poll.Args()[3].(string)) && !i.hangs() {
		poll.SetErr(redis.Nil)
		return redis.Nil
	}
	return next(ctx, cmd)
}

// isPoll reports whether a command is a dequeue that is sent for the first time: a repeat finds
// what it took before.
func isPoll(cmd *redis.Cmd) bool {
	if cmd.Name() != "evalsha" || cmd.Args()[1] != lua.Dequeue.Hash() {
		return false
	}
	for _, arg := range cmd.Args() {
		if sent, ok := arg.(*lua.Sent); ok {
			return *sent == 0
		}
	}
	return false
}
