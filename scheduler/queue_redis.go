package scheduler

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// queueRedis is the Redis client that asynq's server gets. Everything passes it
// as it is, but for three of asynq's scripts. Two write a job back whose
// attempt has failed, to be retried or archived. Jobs that did not fail go back
// in another way; so a job of whatever producer, with whatever options, is
// denied as often as need be. The third takes a job from its queue: one of ours takes
// several at once, see ahead. And what a job says of its time is changed when it is
// taken, and back when it is written: see term.
//
// All of these are told from others by their keys: the text of a script,
// and so its SHA-1, is what asynq changes most easily. What is not recognised is
// passed on: of another asynq, jobs that are denied on their last attempt would be
// archived. It is safe for concurrent use.
type queueRedis struct {
	redis.UniversalClient
	putBacks *putBacks
	runs     remembered[handled] // attempts that failed, or came after one that did
	askings  *askings
	forgiven int          // crashes of a job's worker
	promotes *atomic.Bool // whether jobs can be moved
	scope    string       // the limiter's, as its keys begin
	outage   *outageLog
	bell     *bell
	ahead    *ahead
}

// EvalSha implements redis.Scripter. asynq calls it first, and Eval where Redis does
// not know the script; pass is asked both times, and answers the first itself where
// a script of ours is run.
func (q *queueRedis) EvalSha(ctx context.Context, sha1 string, keys []string, args ...any) *redis.Cmd {
	return q.pass(ctx, keys, args, func(args []any) *redis.Cmd {
		return q.UniversalClient.EvalSha(ctx, sha1, keys, args...)
	})
}

// Eval implements redis.Scripter.
func (q *queueRedis) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return q.pass(ctx, keys, args, func(args []any) *redis.Cmd {
		return q.UniversalClient.Eval(ctx, script, keys, args...)
	})
}

// pass runs asynq's script, or one of ours in its place. asynqs runs the former,
// with arguments that may have been changed: see crashed. Since asynq asks all the
// time, it is also what hears first that the queues' Redis is away or back.
func (q *queueRedis) pass(ctx context.Context, keys []string, args []any, asynqs func(args []any) *redis.Cmd) *redis.Cmd {
	if queue, ok := asDequeue(keys, args); ok {
		return q.dequeue(ctx, queue, keys, args)
	}
	began := time.Now()
	if i := messageAt(keys, args); i > 0 {
		args[i] = restore(args[i].([]byte))
	}
	cmd := q.instead(ctx, keys, args)
	if cmd == nil {
		if cmd = asynqs(args); cmd.Err() == nil {
			q.ended(ctx, keys, args)
		}
	}
	q.outage.note(ctx, began, unreachable(cmd.Err()))
	if queue, ok := filled(keys, cmd); ok && cmd.Err() == nil {
		ring(ctx, q.UniversalClient, bellKey(queue))
	}
	return cmd
}

// dequeue gives asynq a job in place of its script Dequeue. Where the last of the queues
// is found empty it returns only when there may be a job again: asynq asks in one
// goroutine, and would poll.
func (q *queueRedis) dequeue(ctx context.Context, queue string, keys []string, args []any) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	t, err := q.ahead.dequeue(ctx, queue, keys, args, q.bell.woken)
	switch {
	case err == nil:
		if t.asking != nil {
			q.askings.add(t.asking)
		}
		cmd.SetVal(afar(t.msg))
		q.bell.looked(true)
	case errors.Is(err, errAllWait):
		q.bell.looked(true)
		err = redis.Nil
	case errors.Is(err, redis.Nil):
		q.bell.looked(false)
	}
	cmd.SetErr(err)
	return cmd
}

// instead returns nil for what asynq is to do itself: all that is not a write-back,
// and failures. The message that asynq writes has the error's text in it, which is
// all that says here why the attempt ended.
func (q *queueRedis) instead(ctx context.Context, keys []string, args []any) *redis.Cmd {
	w, ok := asWriteBack(keys, args)
	if !ok {
		return nil
	}
	if a := q.askings.take(w.job); a != nil { // its handler was never called
		go q.ahead.jobs.waste(a)
	}
	q.ahead.hands.remove(w.job)
	m, err := parseMessage(w.msg)
	if err != nil {
		return nil
	}
	w.unique = m.unique
	if why, ok := q.putBacks.find(w.job, m.lastError); ok {
		return q.putBack(ctx, w, why, "")
	}
	if m.lastError == asynq.ErrLeaseExpired.Error() {
		return q.crashed(ctx, w, m, args)
	}
	return nil
}

// asDequeue recognises asynq's script Dequeue by its keys, and says of which queue.
// They are the pending, paused, active and lease keys of the queue; no other script
// that asynq's server runs has paused in the second place. ok is false for those.
func asDequeue(keys []string, args []any) (queue string, ok bool) {
	if len(keys) != 4 || len(args) != 2 || !strings.HasSuffix(keys[1], "}:paused") {
		return "", false
	}
	queue, isPending := strings.CutSuffix(keys[0], "}:pending")
	queue, isQueue := strings.CutPrefix(queue, "asynq:{")
	_, isTime := args[0].(int64)
	return queue, isPending && isQueue && isTime
}

// filled recognises a script of asynq's that has made jobs of a queue pending, such as
// Forward and Requeue: it has the queue's pending list among its keys. Where it counts
// them there were some.
func filled(keys []string, cmd *redis.Cmd) (queue string, ok bool) {
	for _, key := range keys {
		if prefix, is := strings.CutSuffix(key, "}:pending"); is {
			queue, ok = strings.CutPrefix(prefix, "asynq:{")
			return queue, ok && cmd.Val() != int64(0)
		}
	}
	return "", false
}

// messageAt is where a script's arguments have a job that was active as it is to be
// stored, or 0: in Retry and Archive, which have the active list for their second key,
// and in MarkAsComplete, whose third is the set of the completed.
func messageAt(keys []string, args []any) int {
	at := 0
	switch {
	case len(keys) >= 8 && strings.HasSuffix(keys[1], "}:active"):
		at = 1
	case len(keys) >= 6 && strings.HasSuffix(keys[2], "}:completed"):
		at = 3
	}
	if at >= len(args) {
		return 0
	}
	if _, ok := args[at].([]byte); !ok {
		return 0
	}
	return at
}

// writeBack is a call of asynq's script Retry or Archive. msg is the job as asynq
// would store it: with the error's text, and after a failure one more retry.
type writeBack struct {
	job
	msg                 []byte
	at                  time.Time // when asynq brings it back
	hash, active, lease string    // keys
	archive             bool
	unique              bool // whether it has a Unique lock
}

// asWriteBack recognises the two by their keys: the job's hash, the active list, the
// leases, and where the job is to go. The arguments begin with its ID and message.
// unique is left for the caller, who reads the message.
func asWriteBack(keys []string, args []any) (w writeBack, ok bool) {
	if len(keys) < 8 || len(args) < 6 {
		return w, false
	}
	queue, isActive := strings.CutSuffix(keys[1], "}:active")
	queue, isQueue := strings.CutPrefix(queue, "asynq:{")
	w.archive = strings.HasSuffix(keys[3], "}:archived")
	if !isActive || !isQueue || !w.archive && !strings.HasSuffix(keys[3], "}:retry") {
		return w, false
	}
	w.hash, w.active, w.lease, w.queue = keys[0], keys[1], keys[2], queue
	id, isID := args[0].(string)
	msg, isMsg := args[1].([]byte)
	at, _ := args[2].(int64)
	w.id, w.msg, w.at = id, msg, time.Unix(at, 0)
	return w, isID && isMsg
}

// keys are those of our own scripts that put a job back: asynq's, but that the job
// always goes to the retry set. All are in its queue's slot of a Redis Cluster.
func (w writeBack) keys() []string {
	return []string{w.hash, w.active, w.lease, queuePrefix(w.queue) + "retry"}
}

// queuePrefix is what the keys of an asynq queue begin with.
func queuePrefix(queue string) string { return "asynq:{" + queue + "}:" }
