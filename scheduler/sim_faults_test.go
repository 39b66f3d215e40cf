package scheduler

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// simEvent is a fault or a change: it explains what would be wrong without it.
type simEvent struct {
	at        time.Time
	lasts     time.Duration
	kind      string
	text      string
	limit     *throttle.Limit // what is in force from then on; nil if none changed
	meter     string          // the only meter for which limit is in force
	lost      bool            // all meters
	stays     bool            // limits stay in force
	crash     bool
	replyLost bool                  // replies may have got lost
	times     int                   // how many more denials it explains, of each job that it explains any of
	explains  func(l *simLane) bool // whose denials it explains; nil means all
}

// everyFault are the faults that may happen in every world.
var everyFault = []func(w *sim){
	(*sim).pauseLimit, (*sim).changeLimit, (*sim).pauseQueue, (*sim).delete,
	(*sim).crash, (*sim).loseReplies, (*sim).loseData, (*sim).stepClock, (*sim).loseNotifications,
}

// faultsOf are the faults that happen only in worlds with that ingredient.
var faultsOf = map[ingredient][]func(w *sim){
	answers:     {(*sim).setKey, (*sim).resetMeter, (*sim).runByHand, (*sim).archive},
	changes:     {(*sim).setKey, (*sim).blockKey, (*sim).redefine, (*sim).redefine, (*sim).resetMeter},
	outages:     {(*sim).hangLimiter, (*sim).hangLimiter, (*sim).hangQueues, (*sim).hangProcess, (*sim).leave, (*sim).crash, (*sim).crash},
	replicas:    {(*sim).failOver},
	rules:       {(*sim).changeRule},
	corruptions: {(*sim).changeRecords},
	leases:      {(*sim).changeLease},
	settling:    {(*sim).forgetBusyMeter},
	latePackets: {(*sim).delayPackets, (*sim).delayPackets, (*sim).deleteLate},
}

// fault draws a fault, mostly one of the world's ingredients if these have any.
func (w *sim) fault() func(w *sim) {
	var of []ingredient
	for _, i := range w.simIngredients {
		if faultsOf[i] != nil {
			of = append(of, i)
		}
	}
	all := everyFault
	if len(of) > 0 && w.rand.IntN(4) > 0 {
		all = faultsOf[of[w.rand.IntN(len(of))]]
	}
	return all[w.rand.IntN(len(all))]
}

// sureFaults are the first faults of the ingredients that would prove little without them.
func (w *sim) sureFaults() {
	time.Sleep(500 * time.Microsecond)
	for _, i := range []ingredient{leases, settling, latePackets} {
		if w.has(i) {
			faultsOf[i][0](w)
		}
	}
	time.Sleep(500 * time.Microsecond)
}

func (w *sim) note(e simEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e.at, e.times = time.Now(), max(1, e.times)
	w.events = append(w.events, e)
	w.history.Note(w.now(), "", "%s", e.text)
	if d := e.lasts + heals[e.kind]; d > 0 {
		w.disturb(d)
	}
}

// repliesLost reports whether a job may have been denied or allowed without its process knowing.
func (w *sim) repliesLost() bool {
	return slices.ContainsFunc(w.events, func(e simEvent) bool { return e.crash || e.replyLost })
}

// while is how long a fault lasts.
func (w *sim) while() time.Duration { return milliseconds(between(w.rand, 100, 3000)) }

func lanesOf(limit string) func(l *simLane) bool {
	return func(l *simLane) bool {
		return slices.ContainsFunc(l.needs, func(n throttle.Need) bool { return n.Limit == limit })
	}
}

// lanesAt are the lanes that need one of the meters.
func lanesAt(meters ...throttle.Need) func(l *simLane) bool {
	return func(l *simLane) bool {
		return slices.ContainsFunc(l.needs, func(n throttle.Need) bool {
			return slices.ContainsFunc(meters, func(m throttle.Need) bool { return m.Limit == n.Limit && m.Key == n.Key })
		})
	}
}

// Limits.

// inForce is what is in force of a limit.
func (w *sim) inForce(name string) throttle.Limit {
	limit := w.defined(name)
	for _, e := range w.events {
		if e.limit != nil && e.meter == "" && e.limit.Name == name {
			limit = *e.limit
		}
	}
	return limit
}

// anyLimit draws a limit, or none if their data were lost.
func (w *sim) anyLimit() (limit throttle.Limit, ok bool) {
	return w.limits[w.rand.IntN(len(w.limits))], !w.lostLimits()
}

// lostLimits reports whether the limiter has lost its data: until a job asks there may be no limit to
// change.
func (w *sim) lostLimits() bool {
	return slices.ContainsFunc(w.events, func(e simEvent) bool { return e.kind == "data lost" })
}

// rate draws a rate of a limit at which its dearest job can run.
func (w *sim) rate(limit throttle.Limit) throttle.Rate {
	least, most := 3, 40
	if w.has(costs) {
		least, most = 6, 80
	}
	if dearest := capacityOf(w.defined(limit.Name)); limit.Capacity == 0 && w.has(costs) {
		least, most = dearest, 2*dearest
	}
	return throttle.PerSecond(between(w.rand, least, most))
}

// anyMeter draws a meter that counts by time, and not one of the slow limit.
func (w *sim) anyMeter() (limit throttle.Limit, key string, ok bool) {
	limit, ok = w.anyLimit()
	limit = w.inForce(limit.Name)
	slow := w.slow != nil && limit.Name == w.slow.Name
	return limit, w.key(), ok && !slow && limit.Kind != throttle.Concurrency
}

func (w *sim) pauseLimit() {
	limit, ok := w.anyLimit()
	if !ok {
		return
	}
	wait := w.while()
	w.note(simEvent{lasts: wait, kind: "limits paused", text: fmt.Sprintf("limit %s is paused for %s", limit.Name, wait), explains: lanesOf(limit.Name)})
	w.operator.must(w.operator.limiter.Pause(w.t.Context(), limit.Name))
	time.Sleep(wait)
	w.operator.must(w.operator.limiter.Resume(w.t.Context(), limit.Name))
}

func (w *sim) changeLimit() {
	limit, ok := w.anyLimit()
	if !ok || w.slow != nil && limit.Name == w.slow.Name {
		return
	}
	if limit = w.inForce(limit.Name); limit.Kind != throttle.Concurrency { // only the rate, because jobs need what they need
		limit.Rate = w.rate(limit)
	}
	w.note(simEvent{kind: "limits changed", text: fmt.Sprintf("limit %s is now %s", limit.Name, limit), limit: &limit, explains: lanesOf(limit.Name)})
	w.operator.must(w.operator.limiter.Set(w.t.Context(), limit))
}

func (w *sim) setKey() {
	limit, key, ok := w.anyMeter()
	if !ok || w.changedKind(limit.Name) {
		return
	}
	limit.Rate = w.rate(limit)
	meter := throttle.Need{Limit: limit.Name, Key: key}
	w.note(simEvent{kind: "keys set", text: fmt.Sprintf("%s|%s is now %s", limit.Name, key, limit.Rate), limit: &limit, meter: limit.Name + "|" + key, explains: lanesAt(meter)})
	w.operator.must(w.operator.limiter.SetKey(w.t.Context(), limit.Name, key, throttle.Override{Rate: limit.Rate}))
}

func (w *sim) resetMeter() {
	limit, key, ok := w.anyMeter()
	if !ok {
		return
	}
	meter := limit.Name + "|" + key
	w.note(simEvent{kind: "meters reset", text: meter + " is reset", explains: lanesAt()})
	w.operator.must(w.operator.limiter.Reset(w.t.Context(), limit.Name, key))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unblock(meter)
	w.forget(meter)
}

// simBlock is a meter that no call may pass until a time by the limiter's clock.
type simBlock struct {
	meter     string
	at, until time.Time
}

// unblock forgets what blocked a meter: an operator has the last word.
func (w *sim) unblock(meter string) {
	w.blocks = slices.DeleteFunc(w.blocks, func(b simBlock) bool { return b.meter == meter })
}

// blockKey blocks a meter for a while.
func (w *sim) blockKey() {
	limit, key, ok := w.anyMeter()
	if !ok {
		return
	}
	meter, wait := throttle.Need{Limit: limit.Name, Key: key}, w.while()
	w.note(simEvent{kind: "keys blocked", text: fmt.Sprintf("%s|%s is blocked for %s", limit.Name, key, wait), lasts: wait, explains: lanesAt(meter)})
	w.operator.must(w.operator.limiter.Block(w.t.Context(), limit.Name, key, time.Now().Add(wait)))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unblock(limit.Name + "|" + key)
	if w.oneClock() {
		w.blocks = append(w.blocks, simBlock{limit.Name + "|" + key, time.Now(), time.Now().Add(wait)})
	}
}

// redefine defines a limit as another config does, of any kind.
func (w *sim) redefine() {
	limit, ok := w.anyLimit()
	if !ok || w.slow != nil || slices.ContainsFunc(w.events, func(e simEvent) bool { return e.meter != "" && e.limit.Name == limit.Name }) {
		return
	}
	least := capacityOf(limit)
	for limit = w.limit(limit.Name); capacityOf(limit) < least; {
		limit = w.limit(limit.Name)
	}
	w.note(simEvent{kind: "limits redefined", text: fmt.Sprintf("limit %s is defined as %s", limit.Name, limit), limit: &limit, explains: lanesOf(limit.Name)})
	w.operator.must(w.operator.limiter.Define(w.t.Context(), limit))
}

// redefined reports whether another config than that of the processes has defined a limit.
func (w *sim) redefined(limit throttle.Limit) bool {
	is := false
	for _, e := range w.events {
		if e.lost && !e.stays {
			is = false
		} else if e.kind == "limits redefined" && e.limit.Name == limit.Name {
			is = e.limit.String() != limit.String()
		}
	}
	return is
}

// changedKind reports whether a limit was defined as another.
func (w *sim) changedKind(name string) bool {
	return slices.ContainsFunc(w.events, func(e simEvent) bool { return e.kind == "limits redefined" && e.limit.Name == name })
}

// Queues, jobs and rules.

func (w *sim) pauseQueue() {
	queue, wait := []string{"one", "two"}[w.rand.IntN(2)], w.while()
	if w.operator.tasks.PauseQueue(queue) != nil { // it has had no job yet
		return
	}
	w.note(simEvent{lasts: wait, kind: "queues paused", text: fmt.Sprintf("queue %s is paused for %s", queue, wait), explains: func(l *simLane) bool { return l.queue == queue }})
	time.Sleep(wait)
	w.operator.must(w.operator.tasks.UnpauseQueue(queue))
}

// delete deletes a waiting job.
func (w *sim) delete() {
	for _, id := range w.ids() {
		if w.operator.tasks.DeleteTask(w.jobs[id].lane.queue, id) == nil {
			w.note(simEvent{kind: "jobs deleted", text: id + " is deleted", explains: lanesAt()})
			w.mu.Lock()
			defer w.mu.Unlock()
			w.jobs[id].deleted, w.jobs[id].waits = true, ""
			w.leaves(id)
			return
		}
	}
}

// runByHand runs a waiting job by hand.
func (w *sim) runByHand() {
	for _, id := range w.ids() {
		job := w.jobs[id]
		info, err := w.operator.tasks.GetTaskInfo(job.lane.queue, id)
		if err != nil || info.State != asynq.TaskStateRetry || w.operator.tasks.RunTask(job.lane.queue, id) != nil {
			continue
		}
		w.note(simEvent{kind: "jobs run by hand", text: id + " is run by hand", explains: lanesAt()})
		w.asksAgain(job)
		return
	}
}

// archive archives a waiting job, and runs it later.
func (w *sim) archive() {
	for _, id := range w.ids() {
		job := w.jobs[id]
		if w.operator.tasks.ArchiveTask(job.lane.queue, id) != nil {
			continue
		}
		w.note(simEvent{kind: "jobs archived", text: id + " is archived", explains: lanesAt()})
		w.asksAgain(job)
		time.Sleep(w.while())
		w.operator.must(w.operator.tasks.RunTask(job.lane.queue, id))
		return
	}
}

// changeRule changes what the jobs of a lane need.
func (w *sim) changeRule() {
	l := w.lanes[w.rand.IntN(len(w.lanes))]
	needs := w.needs()
	w.note(simEvent{kind: "rules changed", text: fmt.Sprintf("%s needs %v", l.name, needs), explains: func(o *simLane) bool { return o == l }, times: 2})
	w.mu.Lock()
	l.needs, l.ruleChanged = needs, time.Now()
	w.mu.Unlock()
	for _, p := range w.processes {
		if !p.dead() {
			p.server.RulesChanged()
		}
	}
	time.AfterFunc(5*time.Second, func() { w.judgeRule(l) })
}

// Processes and Redis servers.

// process draws a process that is to live on, if there is one.
func (w *sim) process() *simProcess {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.processes[w.rand.IntN(len(w.processes))]
	if p.dead() || p.doomed > 0 || p.leaves {
		return nil
	}
	return p
}

// crash makes a process die between any two of its next calls.
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

// leave shuts a process down, and starts another.
func (w *sim) leave() {
	p := w.process()
	if p == nil {
		return
	}
	w.note(simEvent{kind: "processes left", text: fmt.Sprintf("process %d leaves, and another starts", p.index)})
	w.mu.Lock()
	p.leaves = true
	w.mu.Unlock()
	go p.server.Shutdown()
	w.startProcess()
}

// hangLimiter makes the limiter's Redis answer no call for a while. It does afterwards what it was
// asked.
func (w *sim) hangLimiter() {
	wait := w.long()
	w.note(simEvent{kind: "limiters hung", text: fmt.Sprintf("the limiter hangs for %s", wait), lasts: wait, replyLost: true, times: 2 + int(wait/time.Second)})
	open := w.limiterGate.close()
	time.Sleep(wait)
	open()
}

// long is how long a Redis hangs.
func (w *sim) long() time.Duration {
	wait := w.while()
	if w.rand.IntN(2) == 0 {
		wait *= 15
	}
	return wait
}

// hangQueues does the same with asynq's Redis.
func (w *sim) hangQueues() {
	wait := w.long()
	w.note(simEvent{kind: "queues hung", text: fmt.Sprintf("asynq's Redis hangs for %s", wait), lasts: wait, replyLost: true, crash: true, times: 2 + int(wait/time.Second)})
	w.mu.Lock()
	for _, p := range w.processes {
		p.since = time.Now().Add(wait)
	}
	w.mu.Unlock()
	open := w.queuesGate.close()
	time.Sleep(wait)
	open()
}

// hangProcess makes all calls of a process wait for a while.
func (w *sim) hangProcess() {
	p := w.process()
	if p == nil {
		return
	}
	wait := 15 * w.while()
	w.note(simEvent{kind: "processes hung", text: fmt.Sprintf("process %d hangs for %s", p.index, wait), lasts: wait, replyLost: true, crash: true, times: 2})
	w.mu.Lock()
	p.since = time.Now().Add(wait)
	w.mu.Unlock()
	time.AfterFunc(wait, p.hangs.close())
}

func (w *sim) loseReplies() {
	p := w.process()
	if p == nil {
		return
	}
	n := between(w.rand, 1, 4)
	w.note(simEvent{kind: "replies lost", text: fmt.Sprintf("process %d loses %d replies", p.index, n), times: n, replyLost: true})
	w.mu.Lock()
	defer w.mu.Unlock()
	p.lossy += n
}

func (w *sim) loseData() {
	w.note(simEvent{kind: "data lost", text: "the limiter's data are lost", lost: true})
	w.limiter.FlushAll()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.blocks, w.flushed = nil, time.Now()
}

// loseNotifications loses the notifications to the dispatcher for a while.
func (w *sim) loseNotifications() {
	wait := w.while()
	w.note(simEvent{kind: "notifications lost", text: fmt.Sprintf("notifications get lost for %s", wait), lasts: wait})
	w.muted.Store(true)
	time.Sleep(wait)
	w.muted.Store(false)
}

// failOver makes a replica of the limiter's Redis take over that lacks the last writes.
func (w *sim) failOver() {
	const replica = 1
	for _, key := range w.limiter.Keys() {
		w.operator.must(w.limiter.Copy(0, key, replica, key))
	}
	lag := w.while()
	for _, l := range w.lanes {
		time.Sleep(lag / time.Duration(len(w.lanes)))
		for range between(w.rand, 1, 6) {
			w.enqueue(l)
		}
	}
	time.Sleep(time.Millisecond)
	w.note(simEvent{kind: "failovers", text: fmt.Sprintf("a replica takes over that lacks the last %s", lag), lost: true, stays: true, replyLost: true, times: 2})
	w.limiter.SwapDB(0, replica)
	w.limiter.DB(replica).FlushDB()
	w.mu.Lock()
	w.blocks, w.flushed = nil, time.Now()
	w.mu.Unlock()
	w.wires.cut()
}

// stepClock makes the limiter's clock step.
func (w *sim) stepClock() {
	by := milliseconds(between(w.rand, -50_000, 50_000))
	if by /= time.Duration(1 + 99*w.rand.IntN(2)); by == 0 { // some of half a second
		by = time.Millisecond
	}
	w.note(simEvent{kind: "clocks stepped", text: fmt.Sprintf("the clock steps by %s", by)})
	w.clock.step(by)
}

// changeRecords changes records of waiting jobs as no script would.
func (w *sim) changeRecords() {
	d := damager{rand: w.rand, ctx: w.t.Context(), rdb: w.operator.limits}
	for range between(w.rand, 1, 4) {
		d.damage()
	}
	for _, what := range d.done {
		w.note(simEvent{kind: "records changed", text: what, replyLost: true, times: 3})
	}
}

// Hooks.

// hookRedises makes both Redises hang, and the limiter's lose notifications while w is muted.
// Commands of clients that only listen would hold go-redis's locks meanwhile, for which no bubble's
// clock goes on, and a script that has begun would hold Redis's.
func (w *sim) hookRedises() {
	listens := []string{"PING", "HELLO", "CLIENT", "SUBSCRIBE"}
	passes := func(c *server.Peer, cmd string) bool { return slices.Contains(listens, cmd) || redistest.InScript(c) }
	redistest.Before(w.queues, func(c *server.Peer, cmd string, _ ...string) bool {
		if !passes(c, cmd) {
			_ = w.queuesGate.wait(context.Background())
		}
		return false
	})
	redistest.Before(w.limiter, func(c *server.Peer, cmd string, _ ...string) bool {
		if !passes(c, cmd) {
			_ = w.limiterGate.wait(context.Background())
		}
		if cmd != "PUBLISH" || !w.muted.Load() {
			return false
		}
		c.WriteInt(0)
		return true
	})
}

var errLost = errors.New("connection reset by peer")

// loser loses replies: the command is carried out, and its reply gets lost, or its sender sends it
// again a while later, as go-redis does.
type loser struct {
	w *sim
	p *simProcess
}

func (l *loser) around(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	err := next(ctx, cmd)
	if id := endedBy(cmd); id != "" && err == nil && l.w.losesEnd(id) {
		time.Sleep(lostEndTime)
		cmd.SetErr(errLost)
		return errLost
	}
	l.w.mu.Lock()
	lost := l.p.lossy
	if lost > 0 && err == nil && strings.HasPrefix(cmd.Name(), "eval") {
		l.p.lossy--
	} else {
		lost = 0
	}
	l.w.mu.Unlock()
	switch {
	case lost == 0:
		return err
	case lost%2 == 0:
		time.Sleep(milliseconds(500 * lost))
		return next(ctx, cmd)
	}
	cmd.SetErr(errLost)
	return errLost
}

const (
	lostEndTime = 12 * time.Second  // how long go-redis waits for the reply to a command, with all repeats
	longRun     = 150 * time.Second // longer than asynq and recovery could take the next attempt for a dead one
)

// losesEnd reports whether the reply to a job's write-back gets lost. asynq's syncer calls again.
func (w *sim) losesEnd(id string) bool {
	w.mu.Lock()
	job := w.jobs[id]
	lost := w.has(writeBacks) && job != nil && !job.lostEnd && job.timeout == 0 && job.runs > 0 && job.ends == 0 && w.dice(id, -2).IntN(3) == 0
	if lost {
		job.lostEnd = true
	}
	w.mu.Unlock()
	if lost {
		w.note(simEvent{kind: "write-backs lost", text: "the reply to a write-back of " + id + " is lost", lasts: lostEndTime, replyLost: true, times: 2})
	}
	return lost
}

// runLong makes an attempt after a lost write-back take minutes, once for each job.
func (w *sim) runLong(job *simJob) {
	w.mu.Lock()
	long := job.lostEnd && !job.ranLong
	if long {
		job.ranLong = true
		w.disturb(longRun) // it may hold a lease that others wait for
	}
	w.mu.Unlock()
	if long {
		time.Sleep(longRun)
	}
}

// crashed reports whether a worker may have died, or have been taken for dead.
func (w *sim) crashed() bool {
	return slices.ContainsFunc(w.events, func(e simEvent) bool { return e.crash })
}

// gate makes calls wait while it is closed. Its zero value is open.
type gate struct {
	mu     sync.Mutex
	closed chan struct{}
}

// close closes the gate, and returns what opens it.
func (g *gate) close() (open func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	closed := make(chan struct{})
	before := g.closed
	g.closed = closed
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if close(closed); g.closed == closed {
			g.closed = before
		}
	}
}

func (g *gate) wait(ctx context.Context, _ ...redis.Cmder) error {
	g.mu.Lock()
	closed := g.closed
	g.mu.Unlock()
	if closed == nil {
		return nil
	}
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// wires are the connections to a Redis: a failover cuts them.
type wires struct {
	redistest.Hook
	mu  sync.Mutex
	all []net.Conn
}

func (w *wires) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.all {
		_ = c.Close()
	}
	w.all = nil
}

func (w *wires) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := next(ctx, network, addr)
		if err == nil {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.all = append(w.all, c)
		}
		return c, err
	}
}

func (w *wires) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// simClock is the clock of a miniredis: it steps, forward and back, between any two calls of the
// clients that it is a hook of.
type simClock struct {
	redis *miniredis.Miniredis
	mu    sync.Mutex
	steps []clockStep
	ahead time.Duration // of the bubble's clock
	most  time.Duration // that it was ever ahead
}

type clockStep struct {
	at    time.Time
	ahead time.Duration
}

// stepsBack is how far the clock may fall behind what it showed.
const stepsBack = 59 * time.Second

// step moves the clock. What ends at a time of the clock ends sooner or later then.
func (c *simClock) step(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	by = max(by, c.most-stepsBack-c.ahead)
	c.ahead += by
	c.most = max(c.most, c.ahead)
	c.steps = append(c.steps, clockStep{time.Now(), c.ahead})
	if by < 0 {
		c.redis.SetTime(time.Now().Add(c.ahead))
		c.redis.FastForward(by)
	}
}

// now is how far the clock is ahead, and whether it has not stepped since.
func (c *simClock) now(since time.Time) (ahead time.Duration, steady bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ahead, len(c.steps) == 0 || c.steps[len(c.steps)-1].at.Before(since)
}

// reaches is when the clock shows a moment or more, from one of the bubble's on.
func (c *simClock) reaches(moment, from time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	ahead := time.Duration(0)
	for _, s := range c.steps {
		if at := latest(from, moment.Add(-ahead)); at.Before(s.at) {
			return at
		}
		from, ahead = latest(from, s.at), s.ahead
	}
	return latest(from, moment.Add(-ahead))
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// set sets the time of miniredis, which does not advance by itself after a step.
func (c *simClock) set(context.Context, ...redis.Cmder) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.steps) > 0 {
		c.redis.SetTime(time.Now().Add(c.ahead))
	}
	return nil
}
