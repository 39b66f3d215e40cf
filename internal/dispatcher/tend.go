package dispatcher

import (
	"context"
	"time"
)

// tend begins what is due, and goes on with it if it has rested.
func (d *dispatcher) tend(ctx context.Context) error {
	u, now := &d.upkeep, time.Now()
	pause := min(max(time.Until(d.clock.local(d.core.Next(d.clock.now()))), tending), seldom)
	if latest := now.Add(pause); u.next.After(latest) {
		u.next = latest
	}
	if !now.Before(u.next) {
		u.next = now.Add(pause)
		if !u.moves.underway() {
			u.moves.begin(u.queues, now.Add(pause+soon))
		}
		since := now.Sub(u.begun)
		if !u.pass.underway() && (since >= d.ReconcileInterval || u.missed && since >= again) {
			if err := d.beginPass(ctx); err != nil {
				return err
			}
			u.begun, u.missed = now, false
		}
		if due := u.begun.Add(d.ReconcileInterval); due.After(now) && due.Before(u.next) {
			u.next = due
		}
	}
	if now.Before(u.rests) {
		return nil
	}
	for u.underway() && time.Since(now) < workFor {
		if err := d.upkeepStep(ctx); err != nil {
			return err
		}
	}
	worked := time.Since(now)
	u.rests = now.Add(worked + min(restFor*worked, tending))
	return nil
}

// beginPass plans a pass over the tickets and over all queues that there are.
func (d *dispatcher) beginPass(ctx context.Context) error {
	queues, err := d.DB.Queues(ctx)
	if d.queues.Note(ctx, err) != nil {
		return err
	}
	d.upkeep.pass = comparison{tickets: true, wants: true, wanted: map[string]int64{}, lanes: true, counts: true, queues: queues}
	return nil
}

// upkeepStep is the next part of what is underway: of both, so that neither keeps the
// other from its end.
func (d *dispatcher) upkeepStep(ctx context.Context) error {
	if d.upkeep.moves.underway() {
		if err := d.postpone(ctx, &d.upkeep.moves); err != nil {
			return err
		}
	}
	c := &d.upkeep.pass
	if !c.underway() {
		return nil
	}
	step := d.findStrays
	switch {
	case c.tickets:
		step = d.forgetLost
	case c.wants:
		step = d.correctDemand
	case c.lanes:
		step = d.findLanes
	case c.reserved():
		step = d.recount
	}
	err := step(ctx, c)
	if err == nil && !c.underway() {
		d.tellFound()
	}
	return err
}

// tellFound logs what was found since the last time.
func (d *dispatcher) tellFound() {
	f := &d.upkeep.found
	if f.forgotten > 0 {
		d.Log.Info("waiting jobs were deleted, archived or run by hand; their places are free", "jobs", f.forgotten, "one of them", f.one)
	}
	if f.sent > 0 {
		d.Log.Warn("denied jobs were unknown to the limiter, and sent back to ask", "jobs", f.sent)
	}
	if f.mended > 0 {
		d.Log.Warn("what Redis keeps of the waiting jobs was not in order, and is again: was it changed by hand?", "records, lanes and counts", f.mended)
	}
	*f = found{}
}
