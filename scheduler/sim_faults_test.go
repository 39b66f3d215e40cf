package scheduler

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/headgate/headgate/internal/testutil/redistest"

	"github.com/headgate/headgate/throttle"
)

var errLost = errors.New("connection reset by peer")

// play has jobs come and simFaults happen for ten seconds, and then waits until
// all is done. Each of twenty steps has its own dice.
func (w *sim) play() {
	left := 0
	if w.rand.IntN(3) > 0 {
		left = between(w.rand, 1, 4+len(w.simIngredients))
	}
	stop := func() {}
	if w.has(callers) {
		stop = w.startCallers()
	}
	for _, l := range w.lanes {
		for range l.jobs/2 + 1 {
			w.enqueue(l)
		}
	}
	for step := range uint64(20) {
		w.rand = rand.New(rand.NewPCG(w.seed, 1000+step))
		time.Sleep(milliseconds(between(w.rand, 1, 1000)))
		l := w.lanes[w.rand.IntN(len(w.lanes))]
		for range between(w.rand, 0, 6) {
			w.enqueue(l)
		}
		if left > 0 && w.rand.IntN(3) == 0 {
			left--
			// Calls are at whole milliseconds: which of them was before it is then known.
			time.Sleep(500 * time.Microsecond)
			w.fault()(w)
			time.Sleep(500 * time.Microsecond)
		}
	}
	if w.slow != nil {
		for range 65 { // by then all is healed that can be
			w.pass()
		}
		w.judgeHealed()
		w.open()
	}
	seconds := 600
	if w.has(answers) { // refusals that do not say when may shut a meter for minutes
		seconds = 3600
	}
	for i := range seconds {
		if w.pass(); w.done() {
			break
		}
		if i == 20 {
			stop()
		}
	}
	stop()
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

// done reports whether no queue has anything left but what is archived.
func (w *sim) done() bool {
	for _, queue := range []string{"one", "two"} {
		q, err := w.hand.tasks.GetQueueInfo(queue)
		if err == nil && q.Size > q.Archived {
			return false
		}
	}
	return true
}

// simEvent is a trouble: it explains what would be wrong without it.
type simEvent struct {
	at      time.Time
	lasts   time.Duration
	kind    string
	text    string
	limit   *throttle.Limit // what is in force from then on; nil where none changed
	meter   string          // of which alone limit is
	lost    bool            // all meters
	stays   bool            // what is in force of limits
	crash   bool
	unheard bool // answers may have got lost
	unset   bool // and counts as its limit says from then on
	times   int  // that it explains a second denial, of each job that it explains one of
	// whose denials it explains; nil: everybody's
	whose func(l *simLane) bool
}

// simFaults are what may happen between jobs in every world.
var simFaults = []func(w *sim){
	(*sim).pauseLimit, (*sim).changeLimit, (*sim).pauseQueue, (*sim).delete,
	(*sim).crash, (*sim).loseAnswers, (*sim).loseData, (*sim).stepClock, (*sim).loseWordsFor,
}

// troublesOf are what happens only where that is an ingredient.
var troublesOf = map[ingredient][]func(w *sim){
	answers:     {(*sim).setKey, (*sim).resetMeter, (*sim).runByHand, (*sim).archive},
	changes:     {(*sim).setKey, (*sim).unsetKey, (*sim).blockKey, (*sim).redefine, (*sim).redefine, (*sim).resetMeter},
	outages:     {(*sim).hangLimiter, (*sim).hangLimiter, (*sim).hangQueues, (*sim).hangProcess, (*sim).leave, (*sim).crash, (*sim).crash},
	replicas:    {(*sim).failOver},
	rules:       {(*sim).changeRule},
	corruptions: {(*sim).changeRecords},
	versions:    {(*sim).reserve, (*sim).update},
}

// trouble draws one; most of them are of the world's ingredients, where these have any.
func (w *sim) fault() func(w *sim) {
	var of []ingredient
	for _, i := range w.simIngredients {
		if troublesOf[i] != nil {
			of = append(of, i)
		}
	}
	all := simFaults
	if len(of) > 0 && w.rand.IntN(4) > 0 {
		all = troublesOf[of[w.rand.IntN(len(of))]]
	}
	return all[w.rand.IntN(len(all))]
}

// any limit, or none where their data were lost: until a job asks there may be no
// limit to change.
func (w *sim) anyLimit() (limit throttle.Limit, ok bool) {
	lost := slices.ContainsFunc(w.events, func(e simEvent) bool { return e.kind == "data lost" })
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
	w.note(simEvent{lasts: wait, kind: "limits paused", text: fmt.Sprintf("limit %s is paused for %s", limit.Name, wait), whose: lanesOf(limit.Name)})
	w.hand.must(w.hand.limiter.Pause(w.t.Context(), limit.Name))
	time.Sleep(wait)
	w.hand.must(w.hand.limiter.Resume(w.t.Context(), limit.Name))
}

func (w *sim) changeLimit() {
	limit, ok := w.anyLimit()
	if !ok || w.slow != nil && limit.Name == w.slow.Name {
		return
	}
	if limit = w.inForce(limit.Name); limit.Kind != throttle.Concurrency { // jobs need what they need: only the rate
		limit.Rate = w.rate(limit)
	}
	w.note(simEvent{kind: "limits changed", text: fmt.Sprintf("limit %s is now %s", limit.Name, limit), limit: &limit, whose: lanesOf(limit.Name)})
	w.hand.must(w.hand.limiter.Set(w.t.Context(), limit))
}

func (w *sim) pauseQueue() {
	queue, wait := []string{"one", "two"}[w.rand.IntN(2)], w.while()
	if w.hand.tasks.PauseQueue(queue) != nil { // nothing came there yet
		return
	}
	w.note(simEvent{lasts: wait, kind: "queues paused", text: fmt.Sprintf("queue %s is paused for %s", queue, wait), whose: func(l *simLane) bool { return l.queue == queue }})
	time.Sleep(wait)
	w.hand.must(w.hand.tasks.UnpauseQueue(queue))
}

// crash has a process die between any two of its next calls.
func (w *sim) crash() {
	p := w.process()
	if p == nil {
		return
	}
	calls := between(w.rand, 1, 30)
	w.note(simEvent{kind: "processes died", text: fmt.Sprintf("process %d dies at its %d. call from now, and another starts", p.index, calls), crash: true})
	w.mu.Lock()
	p.doomed = calls + 1
	w.mu.Unlock()
	w.startProcess()
}

// process is one that is to live on, if any.
func (w *sim) process() *simProcess {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.processes[w.rand.IntN(len(w.processes))]
	if p.dead() || p.doomed > 0 || p.leaves {
		return nil
	}
	return p
}

func (w *sim) loseAnswers() {
	p := w.process()
	if p == nil {
		return
	}
	n := between(w.rand, 1, 4)
	w.note(simEvent{kind: "answers lost", text: fmt.Sprintf("process %d loses %d answers", p.index, n), times: n, unheard: true})
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
	w.note(simEvent{kind: "words lost", text: fmt.Sprintf("words get lost for %s", wait), lasts: wait})
	w.deaf.Store(true)
	time.Sleep(wait)
	w.deaf.Store(false)
}

// hookLimiter has both Redises hang, and the limiter's lose words while w is deaf. Those who
// only listen would hold go-redis's locks meanwhile, for which no bubble's clock goes on, and a
// script that has begun Redis's.
func (w *sim) hookLimiter() {
	listens := []string{"PING", "HELLO", "CLIENT", "SUBSCRIBE"}
	passes := func(c *server.Peer, cmd string) bool { return slices.Contains(listens, cmd) || redistest.InScript(c) }
	redistest.Before(w.queues, func(c *server.Peer, cmd string, _ ...string) bool {
		if !passes(c, cmd) {
			_ = w.stalled.wait(context.Background())
		}
		return false
	})
	redistest.Before(w.limiter, func(c *server.Peer, cmd string, _ ...string) bool {
		if !passes(c, cmd) {
			_ = w.hung.wait(context.Background())
		}
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
			w.turned = append(w.turned, simTurn{w.jobs[id].waits, true}, simTurn{})
			w.jobs[id].deleted, w.jobs[id].waits = true, ""
			w.leaves(id)
			return
		}
	}
}

func (w *sim) note(e simEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e.at, e.times = time.Now(), max(1, e.times)
	w.events = append(w.events, e)
	w.history.Note(w.now(), "", "%s", e.text)
	if d := e.lasts + heals[e.kind]; d > 0 {
		w.disturb(d)
		w.turned = append(w.turned, simTurn{})
	}
}

// noteOf notes what happens to a job, for the story.
func (w *sim) noteOf(id, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tell(id, format, args...)
}
