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
	// minPoll is the first pause after a job was found without a marker. asynq's own client sets no
	// markers.
	minPoll = 10 * time.Millisecond
	// maxPoll is the longest pause while no marker is set. It is asynq's own poll interval.
	maxPoll = time.Second
	// maxErrorPause is the longest pause after a failed fetch.
	maxErrorPause = 250 * time.Millisecond
)

// markerKey is the key of a queue's marker. A call that adds a pending job sets the marker, and idle
// servers block on it. Redis wakes the server that has waited longest. One marker is enough for many
// jobs, because the woken server sets it again if jobs are left.
func markerKey(queue string) string { return asynqdb.Key(queue, asynqdb.Marker) }

// markerWaiter lets the goroutine that fetches a server's jobs wait for a marker instead of polling.
// Only that goroutine may call its methods, except for stop.
type markerWaiter struct {
	rdb                 redis.UniversalClient
	waits               []*markerWait
	marked              chan string // the queue of a marker; received by wait only
	wokenAt             time.Time   // when the last wait received a marker; zero if it received none
	wokenBy             string      // the queue of that marker
	unfetched           string      // the same until that queue has been fetched from
	stopped             context.Context
	stop                context.CancelFunc
	maxPause            time.Duration
	queueCount          int           // number of queues that the server fetches from
	emptyInRow          int           // number of fetches in a row that found an empty queue
	pause               time.Duration // duration of the next wait if no marker is set
	waitUntil           time.Time     // latest end of the next wait; a time in the past is ignored
	errorPause          time.Duration // pause after the last fetch if it failed, else 0
	onIdle              func()        // called before each wait; may be nil
	isWaiting           atomic.Bool   // whether wait is running
	blockingUnsupported atomic.Bool   // whether blocking commands fail, for example behind a proxy
}

// markerWait is one blocking BZPOPMIN on the markers of queues. A Cluster needs one for each queue,
// because a blocking call can span one slot only.
type markerWait struct {
	keys       []string
	inProgress atomic.Bool
}

// newMarkerWaiter returns a markerWaiter for queues. Each of its waits lasts at most longest.
func newMarkerWaiter(rdb redis.UniversalClient, queues []string, longest time.Duration) *markerWaiter {
	b := &markerWaiter{rdb: rdb, marked: make(chan string), maxPause: longest, queueCount: len(queues), pause: min(minPoll, longest)}
	b.stopped, b.stop = context.WithCancel(context.Background())
	c, cluster := rdb.(*redis.ClusterClient)
	if cluster { // many waits would take all connections of the server's client
		options := *c.Options()
		options.PoolSize = max(options.PoolSize, 2*len(queues))
		own := redis.NewClusterClient(&options)
		context.AfterFunc(b.stopped, func() { time.AfterFunc(2*maxPoll, func() { _ = own.Close() }) })
		b.rdb = own
	}
	for _, queue := range queues {
		if cluster || len(b.waits) == 0 {
			b.waits = append(b.waits, &markerWait{})
		}
		last := b.waits[len(b.waits)-1]
		last.keys = append(last.keys, markerKey(queue))
	}
	return b
}

// afterFetch is called after each fetch, with whether it found a job. After an empty fetch of each
// queue it waits for a marker. If a job was found without a marker, the next pause is short again.
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

// afterError pauses after a failed fetch, because asynq fetches again at once. The pause doubles with
// each error in a row.
func (b *markerWaiter) afterError() {
	b.errorPause = min(max(2*b.errorPause, minPoll), maxErrorPause)
	select {
	case <-b.stopped.Done():
	case <-time.After(b.errorPause):
	}
}

// wait returns when a marker is set, when the server stops, or after the pause. The pause doubles
// after each wait without a marker.
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
	if d := time.Until(b.waitUntil); d > 0 {
		pause = min(pause, d)
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case b.wokenBy = <-b.marked:
		b.unfetched, b.wokenAt = b.wokenBy, time.Now()
	case <-b.stopped.Done():
	case <-timer.C:
		if !b.blockingUnsupported.Load() {
			b.pause = min(2*b.pause, b.maxPause)
		}
	}
}

// listen starts a waitForMarker if none is running.
func (b *markerWaiter) listen(r *markerWait) {
	if r.inProgress.CompareAndSwap(false, true) {
		go b.waitForMarker(r)
	}
}

// waitForMarker runs one BZPOPMIN. If it times out and the server still waits, it starts another. If
// a marker comes and the server no longer waits, it sets the marker again for another server.
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

// setMarker sets a marker. It ignores errors, because a job without a marker is found by the next
// poll, and the call that added the job reports an outage.
func setMarker(ctx context.Context, rdb redis.Cmdable, key string) {
	rdb.ZAdd(ctx, key, redis.Z{Member: "0"})
}
