package scheduler

import (
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// deadlines are those of the jobs that asynq has taken from their queues and
// that have one. A handler's context does not tell them from timeouts, and the two
// are not alike: a job that would wait past its deadline is told so at once, one
// with a timeout has all of it again when it comes back.
//
// queueRedis notes a deadline when asynq's Dequeue returns, and the handler takes it
// a moment later. The map is safe for that, whatever goroutines they run in.
type deadlines struct{ byJob sync.Map }

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
func (d *deadlines) note(queue string, dequeued *redis.Cmd) {
	msg, err := dequeued.Text()
	if err != nil {
		return
	}
	if m, err := parseMessage([]byte(msg)); err == nil && m.deadline > 0 {
		d.byJob.Store(job{queue, m.id}, time.Unix(m.deadline, 0))
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

// forget drops a deadline that nobody asked for: of a job that asynq failed without
// its handler.
func (d *deadlines) forget(j job) { d.byJob.Delete(j) }
