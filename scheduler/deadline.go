package scheduler

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// deadlines are those of the jobs that asynq has taken from their queues and
// that have one. A handler's context does not tell them from timeouts, and the two
// are not alike: a job that would wait past its deadline is told so at once, one
// with a timeout has all of it again when it comes back.
//
// queueRedis notes a deadline when asynq's Dequeue returns, and the handler takes it
// a moment later. The maps are safe for that, whatever goroutines they run in.
type deadlines struct {
	byJob  sync.Map
	passed sync.Map // those of the jobs that came too late, as unix seconds
}

// lateLife is the deadline that asynq is told of a job that came after its own.
const lateLife = time.Minute

// asDequeue recognises asynq's script Dequeue by its keys, and says of which queue.
// They are the pending, paused, active and lease keys of the queue; no other script
// that asynq's server runs has paused in the second place. ok is false for those.
func asDequeue(keys []string) (queue string, ok bool) {
	if len(keys) != 4 || !strings.HasSuffix(keys[1], "}:paused") {
		return "", false
	}
	queue, isPending := strings.CutSuffix(keys[0], "}:pending")
	queue, isQueue := strings.CutPrefix(queue, "asynq:{")
	return queue, isPending && isQueue
}

// note keeps the deadline of a job that asynq has just taken from a queue. An empty
// queue's answer, and one that cannot be read, are passed over: a job without a
// deadline here waits for as long as its rule lets it.
//
// A job whose deadline has passed asynq itself would fail without asking the handler,
// and bring back until its retries are used up, although it can never run. So asynq
// is told a later one: then the handler is asked, and archives it.
func (d *deadlines) note(queue string, dequeued *redis.Cmd) {
	msg, err := dequeued.Text()
	if err != nil {
		return
	}
	m, err := parseMessage([]byte(msg))
	if err != nil || m.deadline <= 0 {
		return
	}
	j, at := job{queue, m.id}, time.Unix(m.deadline, 0)
	d.byJob.Store(j, at)
	if now := time.Now(); !now.Before(at) {
		d.passed.Store(j, m.deadline)
		dequeued.SetVal(string(withDeadline([]byte(msg), now.Add(lateLife).Unix())))
	}
}

// of returns a job's deadline and forgets it. asynq fails a job that comes at its
// deadline without asking the handler; so that it is archived with the reason
// why it waited, it is said to be a second sooner.
func (d *deadlines) of(j job) time.Time {
	at, ok := d.byJob.LoadAndDelete(j)
	if !ok {
		return time.Time{}
	}
	return at.(time.Time).Add(-time.Second)
}

// late is why a job cannot run that came after its deadline, or nil.
func (d *deadlines) late(j job, action Action) error {
	at, ok := d.passed.Load(j)
	if !ok {
		return nil
	}
	err := fmt.Errorf("too late: it was to be done by %s", time.Unix(at.(int64), 0).UTC().Format(time.RFC3339))
	if action == Drop {
		d.passed.Delete(j)
		return fmt.Errorf("%w: %w", err, asynq.RevokeTask)
	}
	return finalError{err}
}

// restore returns the message of a job that asynq writes back, with the job's own
// deadline. Nothing is kept of it from then on, even if no handler asked: asynq fails
// a job by itself whose deadline passes just when it is taken.
func (d *deadlines) restore(j job, msg []byte) []byte {
	d.byJob.Delete(j)
	if at, ok := d.passed.LoadAndDelete(j); ok {
		return withDeadline(msg, at.(int64))
	}
	return msg
}
