package scheduler

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
)

const (
	// shortestWait is how soon queues are looked at again that had a job of which no mark
	// told: producers other than ours leave none.
	shortestWait = 10 * time.Millisecond
	// longestWait is how often queues are looked at where nobody rings: asynq's own
	// poll.
	longestWait = time.Second
)

// bellKey is where whoever makes a job of a queue pending leaves a mark, and the
// servers that have nothing to do wait for one: Redis wakes the one that has waited
// longest. One mark is enough for many jobs: whoever it wakes leaves another where it
// leaves jobs.
func bellKey(queue string) string { return asynqdb.Key(queue, asynqdb.Bell) }

// bell has the goroutine that takes a server's jobs wait until there may be one, in
// place of polls. All methods but stop are called by that goroutine.
type bell struct {
	rdb     redis.UniversalClient
	ropes   []*rope
	rang    chan struct{} // taken by wait alone
	woken   time.Time     // when the last wait used up a mark; zero if it did not
	stopped context.Context
	stop    context.CancelFunc
	longest time.Duration
	queues  int           // that the server takes jobs from
	empty   int           // of those, found so in a row
	pause   time.Duration // of the next wait, if nobody rings
	idle    func()        // hears that the queues are empty
	waits   atomic.Bool   // whether a wait goes on
	deaf    atomic.Bool   // whether Redis refuses to wait, as one behind a proxy may
}

// rope is one call of Redis that waits for marks: a client of a Cluster needs one for
// each queue.
type rope struct {
	keys    []string
	pulling atomic.Bool
}

// newBell waits for jobs of some queues, and looks at them after longest in any case.
func newBell(rdb redis.UniversalClient, queues []string, longest time.Duration) *bell {
	b := &bell{rdb: rdb, rang: make(chan struct{}), longest: longest, queues: len(queues), pause: min(shortestWait, longest)}
	b.stopped, b.stop = context.WithCancel(context.Background())
	_, cluster := rdb.(*redis.ClusterClient)
	for _, queue := range queues {
		if cluster || len(b.ropes) == 0 {
			b.ropes = append(b.ropes, &rope{})
		}
		last := b.ropes[len(b.ropes)-1]
		last.keys = append(last.keys, bellKey(queue))
	}
	return b
}

// looked is told whether a queue had a job. When all have been found empty it waits. Where
// marks tell of jobs no look in between is worth its cost.
func (b *bell) looked(found bool) {
	if found {
		b.empty = 0
		if b.woken.IsZero() {
			b.pause = min(shortestWait, b.longest)
		}
		return
	}
	if b.empty++; b.empty >= b.queues {
		b.empty = 0
		b.wait()
	}
}

// wait returns when somebody rings, when the server stops, or after the pause: the
// longer nothing was found, the longer that is.
func (b *bell) wait() {
	b.woken = time.Time{}
	if b.idle != nil {
		b.idle()
	}
	b.waits.Store(true)
	defer b.waits.Store(false)
	for _, r := range b.ropes {
		b.listen(r)
	}
	timer := time.NewTimer(b.pause)
	defer timer.Stop()
	select {
	case <-b.rang:
		b.woken = time.Now()
	case <-b.stopped.Done():
	case <-timer.C:
		if !b.deaf.Load() {
			b.pause = min(2*b.pause, b.longest)
		}
	}
}

// listen has a call wait for marks, if none does.
func (b *bell) listen(r *rope) {
	if r.pulling.CompareAndSwap(false, true) {
		go b.pull(r)
	}
}

// pull waits for a mark in Redis. If none comes in time another call does, as long as the server
// waits. A mark may come when the server has found a job otherwise, or stops: then it is another's.
func (b *bell) pull(r *rope) {
	mark, err := b.rdb.BZPopMin(context.Background(), longestWait, r.keys...).Result()
	b.deaf.Store(err != nil && !errors.Is(err, redis.Nil))
	r.pulling.Store(false)
	if errors.Is(err, redis.Nil) && b.waits.Load() {
		b.listen(r)
	}
	if err != nil {
		return
	}
	select {
	case b.rang <- struct{}{}:
	default:
		ring(context.Background(), b.rdb, mark.Key)
	}
}

// ring leaves a mark. One that gets lost costs a poll's time, so errors are nobody's
// concern: whoever made the job pending hears of an outage by that.
func ring(ctx context.Context, rdb redis.Cmdable, key string) {
	rdb.ZAdd(ctx, key, redis.Z{Member: "0"})
}
