package scheduler

import (
	"context"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/script"
)

// redisClient is the Redis client of asynq's server. It fetches several jobs at once: see
// prefetcher. When asynq retries or archives a job that was denied, redisClient puts the job back
// instead. asynq's own scripts handle jobs that failed.
//
// redisClient sends scripts that it does not recognize to Redis unchanged. When a shutdown no longer
// waits for Redis, the contexts of all calls of asynq's end: see bound.
type redisClient struct {
	redis.UniversalClient
	s *Server
}

// recognize returns asynq's call, and the arguments to send.
func recognize(keys []string, args []any) (*asynqdb.Call, []any) {
	c := asynqdb.Recognize(keys, args)
	if c.IsHeartbeat {
		args = asynqdb.WithoutLargePayloads(args)
	}
	return c, args
}

// EvalSha implements redis.Scripter. For a script that ends a lease it returns a NOSCRIPT error, so
// that asynq sends the text with Eval.
func (q *redisClient) EvalSha(ctx context.Context, sha1 string, keys []string, args ...any) *redis.Cmd {
	ctx, cancel := q.bound(ctx)
	defer cancel()
	c, args := recognize(keys, args)
	if c.EndsLease {
		return redis.NewCmdResult(nil, redis.ErrNoScript)
	}
	return q.run(ctx, c, func() *redis.Cmd {
		return q.UniversalClient.EvalSha(ctx, sha1, script.WholeSlot(q.UniversalClient, keys), args...)
	})
}

// Eval implements redis.Scripter. A script that ends a lease is sent with a check of the lease.
func (q *redisClient) Eval(ctx context.Context, text string, keys []string, args ...any) *redis.Cmd {
	ctx, cancel := q.bound(ctx)
	defer cancel()
	c, args := recognize(keys, args)
	return q.run(ctx, c, func() *redis.Cmd {
		if c.EndsLease {
			return q.endLease(ctx, c, text)
		}
		return q.UniversalClient.Eval(ctx, text, script.WholeSlot(q.UniversalClient, keys), args...)
	})
}

// run sends asynq's script, or calls dequeue in place of asynq's script Dequeue. run also reports
// the call to the health monitor.
func (q *redisClient) run(ctx context.Context, c *asynqdb.Call, send func() *redis.Cmd) *redis.Cmd {
	if c.Script == asynqdb.ScriptDequeue {
		return q.dequeue(ctx, c)
	}
	if c.IsHeartbeat {
		defer q.heartbeat()()
	}
	call := q.s.scopeOf(c.Queue).queueHealth.Begin()
	cmd := send()
	call.Note(ctx, cmd.Err())
	if c.MayAddPending && cmd.Err() == nil && cmd.Val() != int64(0) { // 0 means that no job was added
		setMarker(ctx, q.UniversalClient, markerKey(c.Queue))
	}
	return cmd
}

// heartbeat notes that a call of asynq's heartbeat waits for Redis, until it calls the result. The
// heartbeat makes one call at a time.
func (q *redisClient) heartbeat() (ended func()) {
	q.s.inFlight.heartbeats.Add(1)
	return func() { q.s.inFlight.heartbeats.Add(1) }
}

// ZAddXX implements redis.SortedSetCmdable. asynq extends leases with it, even of jobs that another
// server has fetched since. This method extends only the leases of this server's attempts. If an
// attempt has lost its lease, this method cancels the attempt.
func (q *redisClient) ZAddXX(ctx context.Context, key string, members ...redis.Z) *redis.IntCmd {
	ctx, cancel := q.bound(ctx)
	defer cancel()
	queue, name := asynqdb.ParseKey(key)
	if name != asynqdb.Lease || len(members) == 0 {
		return q.UniversalClient.ZAddXX(ctx, key, members...)
	}
	defer q.heartbeat()()
	dequeues, attempts := map[string]string{}, map[string]*attempt{}
	for _, m := range members {
		id, _ := m.Member.(string)
		if a := q.s.inFlight.get(job{Queue: queue, ID: id}); a != nil {
			dequeues[id], attempts[id] = a.Dequeue, a
		}
	}
	call := q.s.scopeOf(queue).queueHealth.Begin()
	lost, err := q.s.db.ExtendLeases(ctx, queue, int64(members[0].Score), dequeues)
	call.Note(ctx, err)
	for _, id := range lost {
		q.s.cancelLost(attempts[id])
	}
	return redis.NewIntResult(int64(len(dequeues)-len(lost)), err)
}

// HSet implements redis.HashCmdable. asynq stores a job's result with it. This method returns
// ErrNotActive if this server no longer has the job.
func (q *redisClient) HSet(ctx context.Context, key string, values ...any) *redis.IntCmd {
	ctx, cancel := q.bound(ctx)
	defer cancel()
	queue, name := asynqdb.ParseKey(key)
	id, ok := strings.CutPrefix(name, asynqdb.HashPrefix)
	if !ok || len(values) != 2 || values[0] != "result" {
		return q.UniversalClient.HSet(ctx, key, values...)
	}
	err := asynqdb.ErrNotActive
	if a := q.s.inFlight.get(job{Queue: queue, ID: id}); a != nil {
		err = q.s.db.WriteResult(ctx, a.Job, values[1])
	}
	return redis.NewIntResult(0, err)
}

// dequeue returns a prefetched job in place of asynq's script Dequeue. If all queues are empty,
// dequeue waits until there may be a job. The job's message has the number of the attempt.
// Only the goroutine of asynq's processor calls it.
func (q *redisClient) dequeue(ctx context.Context, c *asynqdb.Call) *redis.Cmd {
	markers, msg := q.s.markers, ""
	a, err := q.s.prefetcher.dequeue(ctx, c.Queue, c.LeaseEnd)
	switch {
	case err == nil:
		msg = string(a.withoutTimer())
		markers.afterFetch(true, q.s.inFlight.occupiedSlots() >= q.s.prefetcher.slots)
		a.scope.slots.noteStart()
	case errors.Is(err, errAllDenied):
		markers.afterFetch(true, false)
		err = redis.Nil
	case errors.Is(err, redis.Nil):
		markers.waitUntil = q.s.prefetcher.nextNewAt
		markers.afterFetch(false, false)
	default:
		markers.afterError()
	}
	return redis.NewCmdResult(msg, err)
}
