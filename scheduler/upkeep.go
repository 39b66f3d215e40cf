package scheduler

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/turns"
	"github.com/headgate/headgate/throttle"
)

const (
	// tending is how often there is something to look after; up to seldom where no
	// turn is due before, since then no put-back ends before either.
	tending = 2 * time.Second
	seldom  = 30 * time.Second
	// soon is how long before its end a put-back is moved on, at least. With
	// tending it is as long as a put-back outlasts the wait that was told: where
	// that was true, the job is called before its put-back need be moved.
	soon = 3 * time.Second
	// passes is how often all waiting jobs are compared with asynq's.
	passes = time.Minute
	// again is how soon they are compared again where a called job was gone: who
	// deletes one may have deleted all, and those behind must not wait for them.
	again = 5 * time.Second
	// Upkeep goes on for workFor at a time, and rests for restFor times as long, but
	// not longer than tending, since a part may wait for Redis: meanwhile nobody has a
	// turn.
	workFor = 20 * time.Millisecond
	restFor = 3
)

// upkeep keeps the limiter's side and asynq's in step, a part at a time. asynq
// is the truth: tickets of jobs that an operator, a crash or a flushed Redis took
// away are forgotten, and denied jobs that no lane knows are sent back to ask.
//
// Two things are done. Every few seconds the put-backs of waiting jobs that are about
// to end are moved on, or those jobs would come without permits. And once a minute a
// comparison goes through all that wait. Both rest between their parts, since the same
// goroutine gives the turns.
type upkeep struct {
	next   time.Time // when put-backs are to be moved on
	queues []string  // whose jobs wait
	moves  postponing
	pass   comparison
	begun  time.Time // when the last pass began; zero: one is due
	missed bool      // whether a called job was gone since
	rests  time.Time // when the next part of either is to be done
	found  found
}

// found is what was not as it should be, until the end of a pass says so: whoever
// deletes a thousand jobs is told so once.
type found struct {
	forgotten, sent int
	one             string // of the jobs that were forgotten
	mended          int    // records, lanes and counts that were not in order
}

// add has the put-backs of a queue looked after, from its first lane on. Comparisons
// go through all queues that asynq knows.
func (u *upkeep) add(queue string) {
	if i, found := slices.BinarySearch(u.queues, queue); !found {
		u.queues = slices.Insert(u.queues, i, queue)
	}
}

// miss notes that a called job was gone.
func (u *upkeep) miss() {
	if !u.missed {
		u.missed, u.next = true, time.Now()
	}
}

// underway reports whether anything that was begun is not at its end.
func (u *upkeep) underway() bool { return u.moves.underway() || u.pass.underway() }

// due is when there is something to look after, or to go on with.
func (u *upkeep) due() time.Time {
	if u.underway() && u.rests.Before(u.next) {
		return u.rests
	}
	return u.next
}

// tend begins what is due, and goes on with it if it has rested.
func (g *giver) tend(ctx context.Context) error {
	u, now := &g.upkeep, time.Now()
	pause := min(max(time.Until(g.clock.local(g.core.Next(g.clock.now()))), tending), seldom)
	if latest := now.Add(pause); u.next.After(latest) {
		u.next = latest
	}
	if !now.Before(u.next) {
		u.next = now.Add(pause)
		if !u.moves.underway() {
			u.moves.begin(u.queues, now.Add(pause+soon))
		}
		since := now.Sub(u.begun)
		if !u.pass.underway() && (since >= g.passes || u.missed && since >= again) {
			if err := g.beginPass(ctx); err != nil {
				return err
			}
			u.begun, u.missed = now, false
		}
		if due := u.begun.Add(g.passes); due.After(now) && due.Before(u.next) {
			u.next = due
		}
	}
	if now.Before(u.rests) {
		return nil
	}
	for u.underway() && time.Since(now) < workFor {
		if err := g.upkeepStep(ctx); err != nil {
			return err
		}
	}
	worked := time.Since(now)
	u.rests = now.Add(worked + min(restFor*worked, tending))
	return nil
}

// upkeepStep is the next part of what is underway: of both, so that neither keeps the
// other from its end.
func (g *giver) upkeepStep(ctx context.Context) error {
	if g.upkeep.moves.underway() {
		if err := g.postpone(ctx, &g.upkeep.moves); err != nil {
			return err
		}
	}
	c := &g.upkeep.pass
	if !c.underway() {
		return nil
	}
	step := g.findStrays
	switch {
	case c.tickets:
		step = g.forgetLost
	case c.lanes:
		step = g.findLanes
	case c.reserved():
		step = g.recount
	}
	err := step(ctx, c)
	if err == nil && !c.underway() {
		g.tellFound()
	}
	return err
}

// A postponing moves on the put-backs of waiting jobs that end before a moment, so
// that none comes early: a page of each queue in turn. It has an end: those denied
// meanwhile are put back for five seconds at least, and so at last until later.
type postponing struct {
	rest   []remainder // the next first
	before time.Time
}

// A remainder is the put-backs of a queue from an offset on.
type remainder struct {
	queue  string
	offset int
}

// begin plans to go through some queues.
func (p *postponing) begin(queues []string, before time.Time) {
	p.before = before
	for _, queue := range queues {
		p.rest = append(p.rest, remainder{queue, 0})
	}
}

// underway reports whether anything is left to look at.
func (p *postponing) underway() bool { return len(p.rest) > 0 }

// postpone moves a page on. Each job gets what it would be told now, and that moment
// at least. Called jobs are left alone: they come, or their put-back is what brings
// them if the promotion got lost. It costs up to four round trips.
func (g *giver) postpone(ctx context.Context, p *postponing) error {
	queue, offset := p.rest[0].queue, p.rest[0].offset
	ids, next, err := g.db.Denied(ctx, queue, p.before, offset)
	if g.queues.note(ctx, err) != nil {
		return err
	}
	places, err := g.limiter.Places(ctx, jobIDs(queue, ids)...)
	if g.limits.note(ctx, err) != nil {
		return err
	}
	later := map[string]time.Time{}
	for job, place := range places {
		if !place.Called {
			at := time.Now().Add(place.PutBack())
			if at.Before(p.before) {
				at = p.before
			}
			later[job.ID] = at
		}
	}
	if err := g.queues.note(ctx, g.db.Postpone(ctx, queue, later)); err != nil {
		return err
	}
	p.rest = p.rest[1:]
	if next >= 0 {
		p.rest = append(p.rest, remainder{queue, next - len(later)}) // those are due no more
	}
	return nil
}

// A comparison is one pass over all that wait: first the limiter's tickets, whose
// jobs asynq may not have, its lanes, and what is reserved of meters for called jobs;
// then asynq's denied jobs, queue by queue, which may have no ticket. It is no snapshot:
// what comes or goes meanwhile is left to the next.
type comparison struct {
	tickets bool     // whether those are still to be looked at
	lanes   bool     // the same of the lanes
	counts  bool     // and of what is reserved
	meters  []string // of which that is to be counted next
	cursor  uint64   // in the first of these
	queues  []string // whose denied jobs are still to be looked at
	offset  int      // in the first of them
}

// underway reports whether anything is left to look at.
func (c *comparison) underway() bool {
	return c.tickets || c.lanes || c.reserved() || len(c.queues) > 0
}

// reserved reports whether anything is left of what is reserved.
func (c *comparison) reserved() bool { return c.counts || len(c.meters) > 0 }

// beginPass plans a pass over the tickets and over all queues that there are.
func (g *giver) beginPass(ctx context.Context) error {
	queues, err := g.db.Queues(ctx)
	if g.queues.note(ctx, err) != nil {
		return err
	}
	g.upkeep.pass = comparison{tickets: true, lanes: true, counts: true, queues: queues}
	return nil
}

// tellFound logs what was found since the last time.
func (g *giver) tellFound() {
	f := &g.upkeep.found
	if f.forgotten > 0 {
		g.log.Info("waiting jobs were deleted, archived or run by hand; their places are free", "jobs", f.forgotten, "one of them", f.one)
	}
	if f.sent > 0 {
		g.log.Warn("denied jobs were unknown to the limiter, and sent back to ask", "jobs", f.sent)
	}
	if f.mended > 0 {
		g.log.Warn("what Redis keeps of the waiting jobs was not in order, and is again: was it changed by hand?", "records, lanes and counts", f.mended)
	}
	*f = found{}
}

// forget drops jobs that will not come.
func (g *giver) forget(ctx context.Context, lost []throttle.JobID) error {
	forgotten, err := g.limiter.Forget(ctx, lost...)
	if forgotten > 0 {
		g.upkeep.found.forgotten += forgotten
		g.upkeep.found.one = lost[0].ID
	}
	return g.limits.note(ctx, err)
}

// forgetLost forgets the tickets of jobs that asynq will not run any more, or
// that wait for something else under the same ID. A job that is just being moved
// is in one of the states that count as waiting at each moment.
func (g *giver) forgetLost(ctx context.Context, c *comparison) error {
	jobs, next, mended, err := g.store.Jobs(ctx, c.cursor, page)
	if g.limits.note(ctx, err) != nil {
		return err
	}
	c.cursor, c.tickets = next, next != 0
	g.upkeep.found.mended += mended
	byQueue := map[string][]string{}
	for _, job := range jobs {
		byQueue[job.Queue] = append(byQueue[job.Queue], job.ID)
	}
	var lost []throttle.JobID
	for queue, ids := range byQueue {
		states, err := g.db.States(ctx, queue, ids...)
		if g.queues.note(ctx, err) != nil {
			return err
		}
		for i, state := range states {
			if !slices.Contains([]string{"retry", "pending", "active"}, state) {
				lost = append(lost, throttle.JobID{Queue: queue, ID: ids[i]})
			}
		}
	}
	return g.forget(ctx, lost)
}

// findLanes tells the core of lanes that it does not know, as those whose last calls
// were lost in a failover. Of one that is empty Redis forgets the name.
func (g *giver) findLanes(ctx context.Context, c *comparison) error {
	lanes, next, err := g.store.Lanes(ctx, c.cursor, page)
	if g.limits.note(ctx, err) != nil {
		return err
	}
	c.cursor, c.lanes = next, next != 0
	var unknown []string
	for _, lane := range lanes {
		switch {
		case g.core.Knows(lane):
		case turns.IsLane(lane):
			unknown = append(unknown, lane)
		default: // no script has written that
			g.upkeep.found.mended++
			if err := g.limits.note(ctx, g.store.DropLane(ctx, lane)); err != nil {
				return err
			}
		}
	}
	return g.find(ctx, unknown)
}

// recount puts right what is reserved for called jobs, where anything else is: of as many
// meters at a time as have few called jobs together, since all of a meter's are counted
// in one step.
func (g *giver) recount(ctx context.Context, c *comparison) error {
	if len(c.meters) == 0 {
		meters, next, err := g.store.Reserved(ctx, c.cursor, page)
		if g.limits.note(ctx, err) != nil {
			return err
		}
		c.meters, c.cursor, c.counts = meters, next, next != 0
	}
	called, lanes := g.core.CalledAt(c.meters), map[string]bool{}
	n, jobs := 0, 0
	for ; n < len(c.meters) && (n == 0 || jobs+called[c.meters[n]].Jobs <= page); n++ {
		jobs += called[c.meters[n]].Jobs
		for _, lane := range called[c.meters[n]].Lanes {
			lanes[lane] = true
		}
	}
	if n == 0 {
		return nil
	}
	wrong, err := g.store.Recount(ctx, g.process, c.meters[:n], slices.Collect(maps.Keys(lanes)))
	if g.limits.note(ctx, err) != nil {
		return err
	}
	c.meters = c.meters[n:]
	g.upkeep.found.mended += wrong
	return nil
}

// findStrays sends denied jobs of this scope that no lane knows back to ask: the
// limiter's Redis lost them, or could not be asked.
// A job that is sent back leaves the page, so the next begins that much sooner.
func (g *giver) findStrays(ctx context.Context, c *comparison) error {
	queue := c.queues[0]
	ids, next, err := g.db.Denied(ctx, queue, time.Time{}, c.offset)
	if g.queues.note(ctx, err) != nil {
		return err
	}
	known, err := g.store.Known(ctx, queue, ids)
	if g.limits.note(ctx, err) != nil {
		return err
	}
	var unknown []string
	for i, id := range ids {
		if !known[i] {
			unknown = append(unknown, id)
		}
	}
	scopes, err := g.db.Scopes(ctx, queue, unknown...)
	if g.queues.note(ctx, err) != nil {
		return err
	}
	_, own := g.limiter.Scope()
	var strays []job
	for i, scope := range scopes {
		if scope == own {
			strays = append(strays, job{Queue: queue, ID: unknown[i]})
		}
	}
	fates, err := g.promote(ctx, strays)
	if err != nil {
		return err
	}
	for _, fate := range fates {
		if fate == turns.Moved {
			g.upkeep.found.sent++
		}
	}
	if c.offset = next - len(strays); next < 0 {
		c.queues, c.offset = c.queues[1:], 0
	}
	return nil
}

// jobIDs are IDs of one queue as the limiter names jobs.
func jobIDs(queue string, ids []string) []throttle.JobID {
	jobs := make([]throttle.JobID, len(ids))
	for i, id := range ids {
		jobs[i] = throttle.JobID{Queue: queue, ID: id}
	}
	return jobs
}
