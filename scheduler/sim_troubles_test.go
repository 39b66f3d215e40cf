package scheduler

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/throttle"
)

var errLost = errors.New("connection reset by peer")

// play has jobs come and troubles happen for ten seconds, and then waits until
// all is done.
func (w *sim) play() {
	troubles := 0
	if w.rand.IntN(3) > 0 {
		troubles = between(w.rand, 1, 4)
	}
	for _, l := range w.lanes {
		for range l.jobs/2 + 1 {
			w.enqueue(l)
		}
	}
	for range 20 {
		time.Sleep(milliseconds(between(w.rand, 1, 1000)))
		l := w.lanes[w.rand.IntN(len(w.lanes))]
		for range between(w.rand, 0, 6) {
			w.enqueue(l)
		}
		if troubles > 0 && w.rand.IntN(4) == 0 {
			troubles--
			w.trouble()
		}
	}
	for range 600 { // seconds
		if time.Sleep(time.Second); w.done() {
			break
		}
	}
	time.Sleep(5 * time.Second)
	if len(w.events) > 0 {
		time.Sleep(65 * time.Second) // by then all is healed that can be
	}
}

// done reports whether no queue has anything left.
func (w *sim) done() bool {
	for _, queue := range []string{"one", "two"} {
		q, err := w.hand.tasks.GetQueueInfo(queue)
		if err == nil && q.Size > 0 {
			return false
		}
	}
	return true
}

// trouble has one thing happen.
func (w *sim) trouble() {
	ctx := w.t.Context()
	limit := w.limits[w.rand.IntN(len(w.limits))]
	queue := []string{"one", "two"}[w.rand.IntN(2)]
	p := w.processes[w.rand.IntN(len(w.processes))]
	wait := milliseconds(between(w.rand, 100, 3000))
	what := w.rand.IntN(7)
	lost := slices.ContainsFunc(w.events, func(e simEvent) bool { return e.lost })
	if lost && (what == 0 || what == 2) { // until a job asks there may be no limit to change
		return
	}
	switch what {
	case 0:
		w.note(simEvent{text: fmt.Sprintf("limit %s is paused for %s", limit.Name, wait)})
		w.hand.must(w.hand.limiter.Pause(ctx, limit.Name))
		time.Sleep(wait)
		w.hand.must(w.hand.limiter.Resume(ctx, limit.Name))
	case 1:
		if w.hand.tasks.PauseQueue(queue) != nil { // nothing came there yet
			return
		}
		w.note(simEvent{text: fmt.Sprintf("queue %s is paused for %s", queue, wait)})
		time.Sleep(wait)
		w.hand.must(w.hand.tasks.UnpauseQueue(queue))
	case 2:
		if limit.Kind != throttle.Concurrency { // jobs need what they need: only the rate
			limit.Rate = throttle.PerSecond(max(3, between(w.rand, limit.Rate.N/2, 2*limit.Rate.N)))
		}
		w.note(simEvent{text: fmt.Sprintf("limit %s is now %s", limit.Name, limit), limit: &limit})
		w.hand.must(w.hand.limiter.Set(ctx, limit))
	case 3:
		w.delete()
	case 4:
		if p.armed {
			return
		}
		w.note(simEvent{text: fmt.Sprintf("process %d dies, and another starts", p.index), crash: true})
		w.mu.Lock()
		p.armed = true
		w.mu.Unlock()
		w.startProcess()
	case 5:
		w.note(simEvent{text: fmt.Sprintf("process %d loses two answers", p.index)})
		w.mu.Lock()
		p.lossy = 2
		w.mu.Unlock()
	case 6:
		w.note(simEvent{text: "the limiter's data are lost", lost: true})
		w.limiter.FlushAll()
	}
}

// delete deletes a waiting job.
func (w *sim) delete() {
	for _, id := range w.ids() {
		if w.hand.tasks.DeleteTask(w.jobs[id].lane.queue, id) == nil {
			w.note(simEvent{text: id + " is deleted"})
			w.mu.Lock()
			defer w.mu.Unlock()
			w.jobs[id].deleted = true
			w.jobs[id].lane.open--
			return
		}
	}
}

// ids lists the jobs, from a random one on.
func (w *sim) ids() (ids []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	first := w.rand.IntN(len(w.jobs))
	for i := range len(w.jobs) {
		ids = append(ids, fmt.Sprintf("job%d", (first+i)%len(w.jobs)))
	}
	return ids
}

func (w *sim) note(e simEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e.at = time.Now()
	w.events = append(w.events, e)
	w.history.Note(w.now(), "", "%s", e.text)
}
