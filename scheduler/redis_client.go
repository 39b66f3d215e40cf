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

// redisClient is the Redis client that asynq's server gets. It passes all commands on, except for
// three of asynq's scripts. Two of them write a job back whose attempt has failed, to be retried or
// archived: a denied job has not failed, so redisClient puts the job back instead, as often as
// needed and whatever its options are. The third script fetches a job: redisClient fetches several
// at once, see prefetcher. It also hides a job's timeout and deadline from asynq, see jobTimeout.
//
// If a later asynq changes its scripts so that they are not recognized, they are passed on. Then
// jobs that are denied on their last attempt would be archived. It is safe for concurrent use.
type redisClient struct {
	redis.UniversalClient
	db              asynqdb.DB // the same
	inFlight        *inFlight
	forgivenCrashes int          // crashes of a job's worker
	canPromote      *atomic.Bool // whether jobs can be moved
	scopeOf         func(queue string) *scope
	rotations       map[string]*rotation // by asynq queue; of shards only
	markers         *markerWaiter
	prefetcher      *prefetcher
	guards          asynqdb.Guards
}

// EvalSha implements redis.Scripter. asynq calls it first, and Eval if Redis does not know the
// script. A script that ends a lease is sent with a guard in front, which needs the script's text:
// Eval brings the text the first time.
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

// run runs asynq's script by send, or one of ours in its place. A script that ends a lease means the
// lease under which this server has the job, which asynq itself does not name. Because asynq calls
// Redis all the time, run is also what notices first that the queues' Redis is away or back.
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
	if c.MayAddPending && cmd.Err() == nil && cmd.Val() != int64(0) { // if it counts jobs, there were some
		setMarker(ctx, q.UniversalClient, markerKey(c.Queue))
	}
	return cmd
}

// ZAddXX implements redis.SortedSetCmdable. asynq extends the leases of its jobs by it, whoever has
// the jobs by now.
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

// HSet implements redis.HashCmdable. asynq stores the result of a job by it.
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

// dequeue gives asynq a job in place of its script Dequeue. If the last of the queues is empty, it
// returns only when there may be a job again: asynq asks in one goroutine, and would poll.
func (q *redisClient) dequeue(ctx context.Context, c *asynqdb.Call) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	a, err := q.prefetcher.dequeue(ctx, q.shardToFetch(c.Queue), c.LeaseEnd, q.markers.wokenAt)
	switch {
	case err == nil:
		cmd.SetVal(a.jobTimeout.disableIn(a.msg))
		q.markers.afterFetch(true)
		q.scopeOf(a.Queue).slots.took()
	case errors.Is(err, errAllDenied):
		q.markers.afterFetch(true)
		err = redis.Nil
	case errors.Is(err, redis.Nil):
		q.markers.waitUntil = q.prefetcher.passAt
		q.markers.afterFetch(false)
	default:
		q.markers.afterError()
	}
	cmd.SetErr(err)
	return cmd
}

// rotation is the order in which the shards of a queue are fetched from.
type rotation struct {
	shards []string
	next   int
}

// shardToFetch returns the queue to fetch from if asynq asks for one. The shards of a queue take
// turns, because asynq would always look at the first one first with strict priority. But first is
// the shard whose marker has woken the server, because that is where a job is.
func (q *redisClient) shardToFetch(queue string) string {
	r := q.rotations[queue]
	if r == nil {
		return queue
	}
	if marked := q.markers.wokenBy; q.rotations[marked] == r {
		q.markers.wokenBy = ""
		return marked
	}
	queue = r.shards[r.next]
	r.next = (r.next + 1) % len(r.shards)
	return queue
}
