package scheduler

import (
	"context"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"
)

// batch sends scripts of several calls in one pipeline, in the order of the calls: as soon as
// all that are underway wait to send one.
type pipeline struct {
	pipelined func(fill func(redis.Pipeliner) error)

	mu       sync.Mutex
	underway int
	ready    int
	waiting  []*pipelined // by call; nil where it does not wait
}

// place is a call's own in a batch. Its context has it.
type pipelineSlot struct {
	*pipeline
	call int
}

type pipelineKey struct{}

// inBatch is a script that waits to be sent.
type pipelined struct {
	send  func(redis.Cmdable) *redis.Cmd
	rings string // the queue that it may make a job of pending, or ""
	cmd   *redis.Cmd
	sent  chan struct{}
}

// run sends a call's script with the others', and returns its answer.
func (p pipelineSlot) run(queue string, send func(redis.Cmdable) *redis.Cmd) *redis.Cmd {
	own := &pipelined{send: send, rings: queue, sent: make(chan struct{})}
	p.mu.Lock()
	p.waiting[p.call] = own
	p.ready++
	p.flush()
	p.mu.Unlock()
	<-own.sent
	return own.cmd
}

// end says that a call has ended.
func (b *pipeline) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.underway--
	b.flush()
}

// flush sends what waits, if nobody else will. Each queue is rung once.
func (b *pipeline) flush() {
	if b.ready == 0 || b.ready < b.underway {
		return
	}
	all := slices.DeleteFunc(slices.Clone(b.waiting), func(w *pipelined) bool { return w == nil })
	clear(b.waiting)
	b.ready = 0
	var queues []string
	b.pipelined(func(p redis.Pipeliner) error {
		for _, w := range all {
			if w.cmd = w.send(p); w.rings != "" && !slices.Contains(queues, w.rings) {
				queues = append(queues, w.rings)
			}
		}
		for _, queue := range queues {
			setMarker(context.Background(), p, markerKey(queue))
		}
		return nil
	})
	for _, w := range all {
		close(w.sent)
	}
}
