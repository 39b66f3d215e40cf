package scheduler

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
)

// bound returns a context that ends with ctx, and when a shutdown no longer waits for Redis. After
// that, a client of go-redis does not retry a call.
func (q *redisClient) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Done() == nil || q.s.calls.Err() != nil { // asynq uses context.Background for most calls
		return q.s.calls, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(q.s.calls, cancel)
	return ctx, func() { stop(); cancel() }
}

// Subscribe implements redis.UniversalClient. asynq subscribes to cancellations with it.
func (q *redisClient) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	return noSubscription.Subscribe(ctx, channels...)
}

// These are the other commands that asynq's server sends. Except for SAdd, asynq gives them contexts
// that do not end.

// Ping implements redis.UniversalClient.
func (q *redisClient) Ping(context.Context) *redis.StatusCmd {
	return q.UniversalClient.Ping(q.s.calls)
}

// SAdd implements redis.SetCmdable.
func (q *redisClient) SAdd(ctx context.Context, key string, members ...any) *redis.IntCmd {
	ctx, cancel := q.bound(ctx)
	defer cancel()
	return q.UniversalClient.SAdd(ctx, key, members...)
}

// SMembers implements redis.SetCmdable.
func (q *redisClient) SMembers(_ context.Context, key string) *redis.StringSliceCmd {
	return q.UniversalClient.SMembers(q.s.calls, key)
}

// ZAdd implements redis.SortedSetCmdable. asynq's heartbeat begins with it, and registers the server.
// ZAdd also notes that the server is one of headgate: see asynqdb.ForeignServers.
func (q *redisClient) ZAdd(_ context.Context, key string, members ...redis.Z) *redis.IntCmd {
	if asynqdb.IsHeartbeat(key) {
		defer q.heartbeat()()
	}
	if key == asynqdb.Servers {
		if err := asynqdb.NoteServer(q.s.calls, q.UniversalClient, members...); err != nil {
			return redis.NewIntResult(0, err)
		}
	}
	return q.UniversalClient.ZAdd(q.s.calls, key, members...)
}

// ZScore implements redis.SortedSetCmdable.
func (q *redisClient) ZScore(_ context.Context, key, member string) *redis.FloatCmd {
	return q.UniversalClient.ZScore(q.s.calls, key, member)
}

// ZRem implements redis.SortedSetCmdable.
func (q *redisClient) ZRem(_ context.Context, key string, members ...any) *redis.IntCmd {
	return q.UniversalClient.ZRem(q.s.calls, key, members...)
}
