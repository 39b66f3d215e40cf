package scheduler

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
)

const (
	// minPoll is the first pause between two polls after a job came without a marker, for example
	// from asynq's own client.
	minPoll = 10 * time.Millisecond
	// maxPoll is the longest pause between two polls by default, as in asynq.
	maxPoll = time.Second
	// maxErrorPause is the longest pause after a failed fetch.
	maxErrorPause = 250 * time.Millisecond
)

// markerKey is the key of a queue's marker. A call that adds a pending job sets the marker, and
// idle servers wait for it in a blocking call. Redis wakes the server that has waited longest. One
// marker is enough for many jobs, because the woken server sets it again if jobs are left.
func markerKey(queue string) string { return asynqdb.Key(queue, asynqdb.Marker) }

// markerWaiter lets the goroutine that fetches a server's jobs wait for a marker instead of
// polling. Only that goroutine may call its methods, except for stop.
type markerWaiter struct {
	rdb               redis.UniversalClient
	waits             []*markerWait
	stopped           context.Context
	stop              context.CancelFunc
	maxPause          time.Duration
	queueCount        int
	emptyFetchesInRow int
	pause             time.Duration // duration of the next wait if no marker is set
	waitUntil         time.Time     // latest end of the next wait; a time in the past is ignored
	errorPause        time.Duration // pause after the last fetch if that failed, else 0
	onIdle            func()        // called before each wait; may be nil
	woken             bool          // whether a marker ended the last wait

	mu                  sync.Mutex // guards what follows
	marked              []string   // queues whose markers came since the last fetch from them
	markerCame          chan struct{}
	wantsJobs           bool // false if the server has no free slot, is drained, or has stopped
	isWaiting           bool // whether wait blocks until a marker comes
	isPaused            bool // the server is drained: it takes no markers
	blockingUnsupported bool // whether blocking commands fail, for example behind a proxy
}

// markerWait is one blocking BZPOPMIN on the markers of queues. A Cluster needs one for each queue,
// because a blocking call can span one slot only.
type markerWait struct {
	keys       []string
	inProgress bool
}

// newMarkerWaiter returns a markerWaiter for queues. Each of its waits lasts at most longest.
func newMarkerWaiter(rdb redis.UniversalClient, queues []string, longest time.Duration) *markerWaiter {
	b := &markerWaiter{rdb: rdb, markerCame: make(chan struct{}, 1), maxPause: longest, queueCount: len(queues), pause: min(minPoll, longest)}
	b.stopped, b.stop = context.WithCancel(context.Background())
	context.AfterFunc(b.stopped, b.returnMarkers)
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

// take is called before each fetch from one of the queues. If the marker of one of them has come,
// take returns that queue and uses the marker up. If none has come, ok is false.
func (b *markerWaiter) take(queues ...string) (queue string, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wantsJobs = b.stopped.Err() == nil && !b.isPaused
	i := slices.IndexFunc(b.marked, func(queue string) bool { return slices.Contains(queues, queue) })
	if i < 0 {
		return "", false
	}
	queue = b.marked[i]
	b.marked = slices.Delete(b.marked, i, i+1)
	return queue, true
}

// emptyPause returns the pause between two fetches from an empty queue whose marker has not come.
func (b *markerWaiter) emptyPause() time.Duration {
	if b.woken {
		return emptyQueuePause
	}
	return min(minPoll, b.maxPause)
}

// afterFetch is called after each fetch. found says whether the fetch found a job, and full whether
// that job takes the last free slot. After as many empty fetches in a row as there are queues,
// afterFetch waits for a marker. If a job was found without a marker, the next pause is short
// again.
func (b *markerWaiter) afterFetch(found, full bool) {
	b.errorPause = 0
	if full {
		b.returnMarkers()
	}
	if found {
		b.emptyFetchesInRow = 0
		if !b.woken {
			b.pause = min(minPoll, b.maxPause)
		}
		return
	}
	if b.emptyFetchesInRow++; b.emptyFetchesInRow >= b.queueCount {
		b.emptyFetchesInRow = 0
		b.wait()
	}
}

// returnMarkers sets unused markers in Redis again, for other servers. It is called when this
// server has no free slot, or stops.
func (b *markerWaiter) returnMarkers() {
	b.mu.Lock()
	queues := b.marked
	b.marked, b.wantsJobs = nil, false
	b.mu.Unlock()
	go func() { // in the background, because a fetched job is about to start
		for _, queue := range queues {
			setMarker(context.Background(), b.rdb, markerKey(queue))
		}
	}()
}

// setPaused stops the server from taking markers, or lets it take markers again. When it stops, the
// server sets the markers that it has taken again, so that other servers get them.
func (b *markerWaiter) setPaused(paused bool) {
	b.mu.Lock()
	b.isPaused = paused
	b.mu.Unlock()
	if paused {
		b.returnMarkers()
	}
	offer(b.markerCame)
}

// afterError pauses after a failed fetch, because asynq fetches again at once. The pause doubles
// with each error in a row.
func (b *markerWaiter) afterError() {
	b.errorPause = min(max(2*b.errorPause, minPoll), maxErrorPause)
	select {
	case <-b.stopped.Done():
	case <-time.After(b.errorPause):
	}
}

// wait returns when a marker comes, when the server stops, or after the pause. The pause doubles,
// up to maxPause, after each wait without a marker. While blocking commands fail, the pause stays
// the same.
func (b *markerWaiter) wait() {
	if b.onIdle != nil {
		b.onIdle()
	}
	b.mu.Lock()
	select {
	case <-b.markerCame: // an old signal: take may have used its marker up
	default:
	}
	if b.woken = len(b.marked) > 0; !b.woken {
		b.isWaiting = true
		for _, r := range b.waits {
			if !r.inProgress && !b.isPaused {
				r.inProgress = true
				go b.waitForMarker(r)
			}
		}
	}
	b.mu.Unlock()
	if b.woken {
		return
	}
	pause := b.pause
	if d := time.Until(b.waitUntil); d > 0 {
		pause = min(pause, d)
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-b.markerCame:
	case <-b.stopped.Done():
	case <-timer.C:
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.isWaiting, b.woken = false, len(b.marked) > 0
	if !b.woken && !b.blockingUnsupported {
		b.pause = min(2*b.pause, b.maxPause)
	}
}

// waitForMarker runs BZPOPMIN until a marker comes, or the server waits no longer. If a marker comes
// while the server has no free slot, waitForMarker sets the marker again for another server.
func (b *markerWaiter) waitForMarker(r *markerWait) {
	for {
		mark, err := b.rdb.BZPopMin(b.stopped, maxPoll, r.keys...).Result()
		b.mu.Lock()
		b.blockingUnsupported = err != nil && !errors.Is(err, redis.Nil)
		if err == nil && !b.wantsJobs {
			go setMarker(context.Background(), b.rdb, mark.Key)
		} else if err == nil {
			if queue, _ := asynqdb.ParseKey(mark.Key); !slices.Contains(b.marked, queue) {
				b.marked = append(b.marked, queue)
			}
			offer(b.markerCame)
		}
		again := errors.Is(err, redis.Nil) && b.isWaiting && !b.isPaused
		r.inProgress = again
		b.mu.Unlock()
		if !again {
			return
		}
	}
}

// setMarker sets a marker. It ignores errors, because the next poll finds a job without a marker.
func setMarker(ctx context.Context, rdb redis.Cmdable, key string) {
	rdb.ZAdd(ctx, key, redis.Z{Member: "0"})
}
