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
	// shortestWait is how soon queues are read again after they had a job without a marker:
	// producers other than scheduler.Client set none.
	minPoll = 10 * time.Millisecond
	// longestWait is how often queues are read without any marker: asynq's own poll interval.
	maxPoll = time.Second
	// longestErrorPause bounds the pause after an error of a fetch.
	maxErrorPause = 250 * time.Millisecond
)

// markerKey is the key of a queue's marker. A call that makes a job pending sets the marker, and
// idle servers block on it: Redis wakes the server that has waited longest. One marker is enough
// for many jobs, because a server that it wakes sets it again if jobs are left.
func markerKey(queue string) string { return asynqdb.Key(queue, asynqdb.Marker) }

// markerWaiter makes the goroutine that fetches a server's jobs wait for a marker instead of
// polling. All methods but stop are called by that goroutine.
type markerWaiter struct {
	rdb                 redis.UniversalClient
	waits               []*markerWait
	marked              chan string // the queue; taken by wait alone
	wokenAt             time.Time   // when the last wait used up a mark; zero if it did not
	wokenBy             string      // the queue of that mark
	stopped             context.Context
	stop                context.CancelFunc
	maxPause            time.Duration
	queueCount          int           // that the server takes jobs from
	emptyInRow          int           // of those, found so in a row
	pause               time.Duration // of the next wait, if no marker is set
	waitUntil           time.Time     // when the next wait ends, whatever its pause is; zero leaves the pause
	errorPause          time.Duration // after the last fetch, which failed; 0 if it did not fail
	onIdle              func()        // hears that the queues are empty
	isWaiting           atomic.Bool   // whether a wait goes on
	blockingUnsupported atomic.Bool   // whether Redis refuses to wait, as one behind a proxy may
}

// markerWait is one blocking BZPOPMIN on the markers of queues. A Cluster needs one for each queue,
// because a blocking call can span one slot only.
type markerWait struct {
	keys       []string
	inProgress atomic.Bool
}

// newMarkerWaiter waits for the markers of queues. It returns after longest at the latest.
func newMarkerWaiter(rdb redis.UniversalClient, queues []string, longest time.Duration) *markerWaiter {
	b := &markerWaiter{rdb: rdb, marked: make(chan string), maxPause: longest, queueCount: len(queues), pause: min(minPoll, longest)}
	b.stopped, b.stop = context.WithCancel(context.Background())
	_, cluster := rdb.(*redis.ClusterClient)
	for _, queue := range queues {
		if cluster || len(b.waits) == 0 {
			b.waits = append(b.waits, &markerWait{})
		}
		last := b.waits[len(b.waits)-1]
		last.keys = append(last.keys, markerKey(queue))
	}
	return b
}

// fetched notes whether a queue had a job. It waits once all queues were found empty. If a job was
// found without a marker, the next pause is short again; if markers announce the jobs, the pause
// stays long.
func (b *markerWaiter) afterFetch(found bool) {
	b.errorPause = 0
	if found {
		b.emptyInRow = 0
		if b.wokenAt.IsZero() {
			b.pause = min(minPoll, b.maxPause)
		}
		return
	}
	if b.emptyInRow++; b.emptyInRow >= b.queueCount {
		b.emptyInRow = 0
		b.wait()
	}
}

// failed pauses after an error of a fetch, because asynq fetches again at once. The pause doubles
// with each error in a row.
func (b *markerWaiter) afterError() {
	b.errorPause = min(max(2*b.errorPause, minPoll), maxErrorPause)
	select {
	case <-b.stopped.Done():
	case <-time.After(b.errorPause):
	}
}

// wait returns when a marker is set, when the server stops, or after the pause. The pause grows
// while nothing is found.
func (b *markerWaiter) wait() {
	b.wokenAt = time.Time{}
	if b.onIdle != nil {
		b.onIdle()
	}
	b.isWaiting.Store(true)
	defer b.isWaiting.Store(false)
	for _, r := range b.waits {
		b.listen(r)
	}
	pause := b.pause
	if !b.waitUntil.IsZero() {
		pause = min(pause, time.Until(b.waitUntil))
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case b.wokenBy = <-b.marked:
		b.wokenAt = time.Now()
	case <-b.stopped.Done():
	case <-timer.C:
		if !b.blockingUnsupported.Load() {
			b.pause = min(2*b.pause, b.maxPause)
		}
	}
}

// listen starts a call that waits for markers, if none is under way.
func (b *markerWaiter) listen(r *markerWait) {
	if r.inProgress.CompareAndSwap(false, true) {
		go b.waitForMarker(r)
	}
}

// waitForMarker blocks until Redis hands out a marker. If none comes in time, another call waits,
// as long as the server does. If the server does not wait any more, because it found a job or
// stops, the marker is set again for another server.
func (b *markerWaiter) waitForMarker(r *markerWait) {
	mark, err := b.rdb.BZPopMin(context.Background(), maxPoll, r.keys...).Result()
	b.blockingUnsupported.Store(err != nil && !errors.Is(err, redis.Nil))
	r.inProgress.Store(false)
	if errors.Is(err, redis.Nil) && b.isWaiting.Load() {
		b.listen(r)
	}
	if err != nil {
		return
	}
	select {
	case b.marked <- asynqdb.QueueOf(mark.Key):
	default:
		setMarker(context.Background(), b.rdb, mark.Key)
	}
}

// setMarker sets a marker. Errors are ignored: a lost marker costs the time of one poll, and the
// call that made the job pending reports an outage.
func setMarker(ctx context.Context, rdb redis.Cmdable, key string) {
	rdb.ZAdd(ctx, key, redis.Z{Member: "0"})
}
