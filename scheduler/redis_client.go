package scheduler

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/script"
)

// redisClient is the Redis client of asynq's server. If asynq would retry or archive a job that was
// denied, it puts the job back instead, which uses no retry. asynq's own scripts handle jobs that
// failed. Instead of one job it fetches several at once, see prefetcher. It also hides a job's timeout
// and deadline from asynq, see jobTimeout.
//
// It passes scripts that it does not recognize on unchanged. If a later asynq changed its scripts,
// jobs that are denied on their last attempt would be archived. It is safe for concurrent use.
type redisClient struct {
	redis.UniversalClient
	db              asynqdb.DB // uses the same client
	inFlight        *inFlight
	forgivenCrashes int          // number of crashes per job that do not count as failures
	canPromote      *atomic.Bool // see Server.canPromote
	scopeOf         func(queue string) *scope
	rotations       map[string]*rotation // by asynq queue; only for queues with shards
	markers         *markerWaiter
	prefetcher      *prefetcher
	guards          asynqdb.Guards
}

// EvalSha implements redis.Scripter. A script that ends a lease is sent with a guard in front, see
// asynqdb.Guards. The first call of such a script gets a NOSCRIPT error, so that asynq sends its
// text.
func (q *redisClient) EvalSha(ctx context.Context, sha1 string, keys []string, args ...any) *redis.Cmd {
	c := asynqdb.Recognize(keys, args)
	if c.EndsLease && !q.guards.Known(sha1) {
		cmd := redis.NewCmd(ctx)
		cmd.SetErr(asynqdb.NoScript)
		return cmd
	}
	return q.run(ctx, c, func(lease asynqdb.LeaseID) *redis.Cmd {
		if c.EndsLease {
			return q.guards.Run(ctx, q.UniversalClient, sha1, c, lease, keys, args)
		}
		return q.UniversalClient.EvalSha(ctx, sha1, script.WholeSlot(q.UniversalClient, keys), args...)
	})
}

// Eval implements redis.Scripter.
func (q *redisClient) Eval(ctx context.Context, text string, keys []string, args ...any) *redis.Cmd {
	c := asynqdb.Recognize(keys, args)
	if c.EndsLease {
		return q.EvalSha(ctx, q.guards.Add(text), keys, args...)
	}
	return q.run(ctx, c, func(asynqdb.LeaseID) *redis.Cmd {
		return q.UniversalClient.Eval(ctx, text, script.WholeSlot(q.UniversalClient, keys), args...)
	})
}

// run runs asynq's script with send, or replaces it. If the script ends a lease, run passes the lease
// under which this server has the job to send. Because asynq calls Redis all the time, run is also
// the first to notice the start and the end of an outage.
func (q *redisClient) run(ctx context.Context, c *asynqdb.Call, send func(asynqdb.LeaseID) *redis.Cmd) *redis.Cmd {
	if c.Script == asynqdb.ScriptDequeue {
		return q.dequeue(ctx, c)
	}
	began := time.Now()
	var cmd *redis.Cmd
	if c.EndsLease {
		cmd = q.endLease(ctx, c, send)
	} else {
		cmd = send(asynqdb.LeaseID{})
	}
	q.scopeOf(c.Queue).queueHealth.Note(ctx, began, cmd.Err())
	if c.MayAddPending && cmd.Err() == nil && cmd.Val() != int64(0) { // 0 means that no job was added
		setMarker(ctx, q.UniversalClient, markerKey(c.Queue))
	}
	return cmd
}

// ZAddXX implements redis.SortedSetCmdable. asynq extends leases with it, even of jobs that another
// server has fetched since. This method extends only the leases of this server.
func (q *redisClient) ZAddXX(ctx context.Context, key string, members ...redis.Z) *redis.IntCmd {
	queue, ok := asynqdb.IsLeases(key)
	if !ok || len(members) == 0 {
		return q.UniversalClient.ZAddXX(ctx, key, members...)
	}
	dequeues := map[string]string{}
	for _, m := range members {
		id, _ := m.Member.(string)
		if a := q.inFlight.get(job{Queue: queue, ID: id}); a.lease.Dequeue != "" {
			dequeues[id] = a.lease.Dequeue
		}
	}
	began := time.Now()
	n, err := q.db.ExtendLeases(ctx, queue, int64(members[0].Score), dequeues)
	q.scopeOf(queue).queueHealth.Note(ctx, began, err)
	return intCmd(ctx, n, err)
}

// HSet implements redis.HashCmdable. asynq stores a job's result with it. The result is stored only
// while this server has the job.
func (q *redisClient) HSet(ctx context.Context, key string, values ...any) *redis.IntCmd {
	queue, id, ok := asynqdb.IsHash(key)
	if !ok || len(values) != 2 || values[0] != "result" {
		return q.UniversalClient.HSet(ctx, key, values...)
	}
	n, err := int64(0), error(nil)
	if a := q.inFlight.get(job{Queue: queue, ID: id}); a.lease.Dequeue != "" {
		n, err = q.db.WriteResult(ctx, queue, id, a.lease.Dequeue, values[1])
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

// dequeue replaces asynq's script Dequeue and returns a prefetched job. If all queues are empty, it
// waits until there may be a job, because asynq would poll.
func (q *redisClient) dequeue(ctx context.Context, c *asynqdb.Call) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	a, err := q.prefetcher.dequeue(ctx, c.LeaseEnd, func() source { return q.sourceOf(c.Queue) })
	switch {
	case err == nil:
		cmd.SetVal(a.jobTimeout.disableIn(a.msg))
		q.markers.afterFetch(true, q.inFlight.busy() >= q.prefetcher.slots)
		q.scopeOf(a.Queue).slots.took()
	case errors.Is(err, errAllDenied):
		q.markers.afterFetch(true, false)
		err = redis.Nil
	case errors.Is(err, redis.Nil):
		q.markers.waitUntil = q.prefetcher.passAt
		q.markers.afterFetch(false, false)
	default:
		q.markers.afterError()
	}
	cmd.SetErr(err)
	return cmd
}

// rotation is the order in which a server fetches from the shards of a queue.
type rotation struct {
	shards []string
	next   int
}

// sourceOf returns the queue to fetch from when asynq fetches from queue. A shard whose marker has
// come is next, because it has a job. Otherwise the shards of a queue take turns, because asynq with
// strict priority always begins with the same shard.
func (q *redisClient) sourceOf(queue string) source {
	queues := []string{queue}
	r := q.rotations[queue]
	if r != nil {
		queues = r.shards
	}
	marked, ok := q.markers.take(queues...)
	switch {
	case ok:
		queue = marked
	case r != nil:
		queue = r.shards[r.next]
		r.next = (r.next + 1) % len(r.shards)
	}
	return source{queue, q.markers.woken, len(queues), ok, q.markers.quiet()}
}
