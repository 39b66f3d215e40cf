package scheduler

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/script"
)

// redisClient is the Redis client of asynq's server. Instead of one job it fetches several at once,
// see prefetcher. If asynq would retry or archive a job that was denied, it puts the job back
// instead, which uses no retry. asynq's own scripts handle jobs that failed.
//
// It sends scripts that it does not recognize to Redis unchanged. If a later asynq changed its
// scripts, asynq would archive jobs that are denied on their last attempt. It is safe for
// concurrent use.
type redisClient struct {
	redis.UniversalClient
	s      *Server
	guards asynqdb.Guards
}

// EvalSha implements redis.Scripter.
func (q *redisClient) EvalSha(ctx context.Context, sha1 string, keys []string, args ...any) *redis.Cmd {
	return q.run(ctx, sha1, "", keys, args)
}

// Eval implements redis.Scripter.
func (q *redisClient) Eval(ctx context.Context, text string, keys []string, args ...any) *redis.Cmd {
	return q.run(ctx, "", text, keys, args)
}

// run runs asynq's script, or replaces it. A script that ends a lease is sent with a guard in
// front, see asynqdb.Guards. While run does not know the text of such a script, it returns a
// NOSCRIPT error, so that asynq sends the text. Because asynq calls Redis all the time, run is also
// the first to notice the start and the end of an outage.
func (q *redisClient) run(ctx context.Context, sha1, text string, keys []string, args []any) *redis.Cmd {
	c := asynqdb.Recognize(keys, args)
	if c.Script == asynqdb.ScriptDequeue {
		return q.dequeue(ctx, c)
	}
	if c.EndsLease && text != "" {
		sha1 = q.guards.Add(text)
	} else if c.EndsLease && !q.guards.Known(sha1) {
		return reply(ctx, asynqdb.NoScript)
	}
	began := time.Now()
	var cmd *redis.Cmd
	switch {
	case c.EndsLease:
		cmd = q.endLease(ctx, c, func(lease asynqdb.LeaseID) *redis.Cmd {
			return q.guards.Run(ctx, q.UniversalClient, sha1, c, lease, keys, args)
		})
	case text != "":
		cmd = q.UniversalClient.Eval(ctx, text, script.WholeSlot(q.UniversalClient, keys), args...)
	default:
		cmd = q.UniversalClient.EvalSha(ctx, sha1, script.WholeSlot(q.UniversalClient, keys), args...)
	}
	q.s.scopeOf(c.Queue).queueHealth.Note(ctx, began, cmd.Err())
	if c.MayAddPending && cmd.Err() == nil && cmd.Val() != int64(0) { // 0 means that no job was added
		setMarker(ctx, q.UniversalClient, markerKey(c.Queue))
	}
	return cmd
}

// ZAddXX implements redis.SortedSetCmdable. asynq extends leases with it, even of jobs that another
// server has fetched since. This method extends only the leases of this server.
func (q *redisClient) ZAddXX(ctx context.Context, key string, members ...redis.Z) *redis.IntCmd {
	queue, name := asynqdb.ParseKey(key)
	if name != asynqdb.Lease || len(members) == 0 {
		return q.UniversalClient.ZAddXX(ctx, key, members...)
	}
	dequeues := map[string]string{}
	for _, m := range members {
		id, _ := m.Member.(string)
		if a, _ := q.s.inFlight.get(job{Queue: queue, ID: id}); a.lease.Dequeue != "" {
			dequeues[id] = a.lease.Dequeue
		}
	}
	began := time.Now()
	n, err := q.s.db.ExtendLeases(ctx, queue, int64(members[0].Score), dequeues)
	q.s.scopeOf(queue).queueHealth.Note(ctx, began, err)
	return intCmd(ctx, n, err)
}

// HSet implements redis.HashCmdable. asynq stores a job's result with it. This method stores the
// result only while this server has the job, and else returns ErrNotActive.
func (q *redisClient) HSet(ctx context.Context, key string, values ...any) *redis.IntCmd {
	queue, name := asynqdb.ParseKey(key)
	id, ok := strings.CutPrefix(name, asynqdb.HashPrefix)
	if !ok || len(values) != 2 || values[0] != "result" {
		return q.UniversalClient.HSet(ctx, key, values...)
	}
	n, err := int64(0), error(nil)
	if a, _ := q.s.inFlight.get(job{Queue: queue, ID: id}); a.lease.Dequeue != "" {
		n, err = q.s.db.WriteResult(ctx, queue, id, a.lease.Dequeue, values[1])
	}
	if err == nil && n == 0 {
		err = asynqdb.ErrNotActive
	}
	return intCmd(ctx, n, err)
}

func intCmd(ctx context.Context, n int64, err error) *redis.IntCmd {
	cmd := redis.NewIntCmd(ctx)
	cmd.SetVal(n)
	cmd.SetErr(err)
	return cmd
}

// reply returns what asynq gets as the reply of a script that was replaced: err, or OK if err is
// nil.
func reply(ctx context.Context, err error) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetVal("OK")
	cmd.SetErr(err)
	return cmd
}

// dequeue replaces asynq's script Dequeue and returns a prefetched job. If all queues are empty, it
// waits until there may be a job, because asynq itself would only poll. asynq gets the job without
// its timeout and deadline, see jobTimeout.
func (q *redisClient) dequeue(ctx context.Context, c *asynqdb.Call) *redis.Cmd {
	markers, cmd := q.s.markers, redis.NewCmd(ctx)
	a, err := q.s.prefetcher.dequeue(ctx, c.Queue, c.LeaseEnd)
	switch {
	case err == nil:
		cmd.SetVal(a.jobTimeout.disableIn(a.msg))
		markers.afterFetch(true, q.s.inFlight.busy() >= q.s.prefetcher.slots)
		a.scope.tookJob()
	case errors.Is(err, errAllDenied):
		markers.afterFetch(true, false)
		err = redis.Nil
	case errors.Is(err, redis.Nil):
		markers.waitUntil = q.s.prefetcher.passAt
		markers.afterFetch(false, false)
	default:
		markers.afterError()
	}
	cmd.SetErr(err)
	return cmd
}
