package scheduler

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/headgate/headgate/throttle"
)

var errLost = errors.New("connection reset by peer")

// play has jobs come and troubles happen for ten seconds, and then waits until
// all is done.
func (w *sim) play() {
	left := 0
	if w.rand.IntN(3) > 0 {
		left = between(w.rand, 1, 4)
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
		if left > 0 && w.rand.IntN(4) == 0 {
			left--
			all := troubles
			if w.answers != nil {
				all = slices.Concat(troubles, answersTroubles)
			}
			all[w.rand.IntN(len(all))](w)
		}
	}
	if w.slow != nil {
		time.Sleep(65 * time.Second) // by then all is healed that can be
		w.judgeHealed()
		w.open()
	}
	seconds := 600
	if w.answers != nil { // refusals that do not say when may shut a meter for minutes
		seconds = 3600
	}
	for range seconds {
		if time.Sleep(time.Second); w.done() {
			break
		}
	}
	time.Sleep(5 * time.Second)
	if len(w.events) > 0 {
		time.Sleep(65 * time.Second) // by then all is healed that can be
	}
}

// open makes the slow limit fast, so that the world ends.
func (w *sim) open() {
	limit := *w.slow
	limit.Rate = throttle.PerSecond(20)
	w.note(simEvent{kind: "limits opened", text: fmt.Sprintf("limit %s is now %s", limit.Name, limit), limit: &limit, whose: lanesOf(limit.Name)})
	w.hand.must(w.hand.limiter.Set(w.t.Context(), limit))
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

// simEvent is a trouble: it explains what would be wrong without it.
type simEvent struct {
	at    time.Time
	kind  string
	text  string
	limit *throttle.Limit // what is in force from then on; nil where none changed
	meter string          // of which alone limit is
	lost  bool            // all meters
	crash bool
	times int // that it explains a second denial, of each job that it explains one of
	// whose denials it explains; nil: everybody's
	whose func(l *simLane) bool
}

// troubles are what happens between jobs.
var troubles = []func(w *sim){
	(*sim).pauseLimit, (*sim).changeLimit, (*sim).pauseQueue, (*sim).delete,
	(*sim).crash, (*sim).loseAnswers, (*sim).loseData, (*sim).stepClock, (*sim).loseWordsFor,
}

// any limit, or none where their data were lost: until a job asks there may be no
// limit to change.
func (w *sim) anyLimit() (limit throttle.Limit, ok bool) {
	lost := slices.ContainsFunc(w.events, func(e simEvent) bool { return e.lost })
	return w.limits[w.rand.IntN(len(w.limits))], !lost
}

func lanesOf(limit string) func(l *simLane) bool {
	return func(l *simLane) bool {
		return slices.ContainsFunc(l.parsed, func(n throttle.Need) bool { return n.Limit == limit })
	}
}

func (w *sim) pauseLimit() {
	limit, ok := w.anyLimit()
	if !ok {
		return
	}
	wait := w.while()
	w.note(simEvent{kind: "limits paused", text: fmt.Sprintf("limit %s is paused for %s", limit.Name, wait), whose: lanesOf(limit.Name)})
	w.hand.must(w.hand.limiter.Pause(w.t.Context(), limit.Name))
	time.Sleep(wait)
	w.hand.must(w.hand.limiter.Resume(w.t.Context(), limit.Name))
}

func (w *sim) changeLimit() {
	limit, ok := w.anyLimit()
	if !ok || w.slow != nil && limit.Name == w.slow.Name {
		return
	}
	if limit.Kind != throttle.Concurrency { // jobs need what they need: only the rate
		limit.Rate = throttle.PerSecond(max(3, between(w.rand, limit.Rate.N/2, 2*limit.Rate.N)))
	}
	w.note(simEvent{kind: "limits changed", text: fmt.Sprintf("limit %s is now %s", limit.Name, limit), limit: &limit, whose: lanesOf(limit.Name)})
	w.hand.must(w.hand.limiter.Set(w.t.Context(), limit))
}

func (w *sim) pauseQueue() {
	queue, wait := []string{"one", "two"}[w.rand.IntN(2)], w.while()
	if w.hand.tasks.PauseQueue(queue) != nil { // nothing came there yet
		return
	}
	w.note(simEvent{kind: "queues paused", text: fmt.Sprintf("queue %s is paused for %s", queue, wait), whose: func(l *simLane) bool { return l.queue == queue }})
	time.Sleep(wait)
	w.hand.must(w.hand.tasks.UnpauseQueue(queue))
}

// crash has a process die between any two of its next calls.
func (w *sim) crash() {
	p := w.processes[w.rand.IntN(len(w.processes))]
	if p.dead() || p.doomed > 0 {
		return
	}
	calls := between(w.rand, 1, 30)
	w.note(simEvent{kind: "processes died", text: fmt.Sprintf("process %d dies at its %d. call from now, and another starts", p.index, calls), crash: true})
	w.mu.Lock()
	p.doomed = calls + 1
	w.mu.Unlock()
	w.startProcess()
}

func (w *sim) loseAnswers() {
	p := w.processes[w.rand.IntN(len(w.processes))]
	n := between(w.rand, 1, 4)
	w.note(simEvent{kind: "answers lost", text: fmt.Sprintf("process %d loses %d answers", p.index, n), times: n})
	w.mu.Lock()
	defer w.mu.Unlock()
	p.lossy += n
}

func (w *sim) loseData() {
	w.note(simEvent{kind: "data lost", text: "the limiter's data are lost", lost: true})
	w.limiter.FlushAll()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shuts, w.flushed = nil, time.Now()
}

// stepClock has the limiter's clock step.
func (w *sim) stepClock() {
	by := milliseconds(between(w.rand, -50_000, 50_000))
	if by /= time.Duration(1 + 99*w.rand.IntN(2)); by == 0 { // some of half a second
		by = time.Millisecond
	}
	w.note(simEvent{kind: "clocks stepped", text: fmt.Sprintf("the clock steps by %s", by)})
	w.clock.step(by)
}

// loseWordsFor has words to who gives turns get lost for a while.
func (w *sim) loseWordsFor() {
	wait := w.while()
	w.note(simEvent{kind: "words lost", text: fmt.Sprintf("words get lost for %s", wait)})
	w.deaf.Store(true)
	time.Sleep(wait)
	w.deaf.Store(false)
}

// loseWords has the limiter lose them while w is deaf.
func (w *sim) loseWords() {
	w.limiter.Server().SetPreHook(func(c *server.Peer, cmd string, _ ...string) bool {
		if cmd != "PUBLISH" || !w.deaf.Load() {
			return false
		}
		c.WriteInt(0)
		return true
	})
}

// while is how long a trouble lasts.
func (w *sim) while() time.Duration { return milliseconds(between(w.rand, 100, 3000)) }

// delete deletes a waiting job.
func (w *sim) delete() {
	for _, id := range w.ids() {
		if w.hand.tasks.DeleteTask(w.jobs[id].lane.queue, id) == nil {
			w.note(simEvent{kind: "jobs deleted", text: id + " is deleted", whose: func(*simLane) bool { return false }})
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
	e.at, e.times = time.Now(), max(1, e.times)
	w.events = append(w.events, e)
	w.history.Note(w.now(), "", "%s", e.text)
}
