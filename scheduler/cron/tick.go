package cron

import (
	"context"
	"time"
)

// tick deals with the next tick that is due by a timetable: it is enqueued, or
// the state moves past it without a job. done says that there was none; moved
// says, as for step, whether v is still what Redis holds.
//
// Whether the job before is unfinished is asked before the tick is claimed. The
// answer holds: if another replica has dealt with a tick meanwhile, the claim
// fails and all is asked again.
func (r *Runner) tick(ctx context.Context, s *schedule, by *timetable, v *view) (moved, done bool, err error) {
	// A pause stops the clock at the moment it began: what was due before it
	// still runs, and is not missed however long the pause lasts.
	upTo := v.now
	if !v.paused.IsZero() {
		upTo = earliest(upTo, v.paused)
	}
	// known is newer than last if Redis lost the state's latest moves.
	from := latest(v.last, s.known)
	run, missed := dueTick(s.entry, by, from, upTo, v.now)
	if run.IsZero() && missed.IsZero() {
		return true, true, nil
	}
	running := false
	if !run.IsZero() && s.entry.Overlap == OverlapSkip {
		if running, err = r.unfinished(v.job, v.extra); err != nil {
			return false, false, err
		}
	}
	switch {
	case run.IsZero():
		moved, err = r.skip(ctx, s, v, missed, "missed")
	case running:
		moved, err = r.skip(ctx, s, v, run, "still running")
	default: // the tick is ours now, or some other replica's if it was faster
		to := v.state
		to.intent, to.intentAt = run, v.now
		moved, err = r.moveView(ctx, s, v, to)
	}
	if moved && !missed.IsZero() {
		r.tellMissed(s, countTicks(by, from, missed), from, missed)
	}
	if moved && !v.intent.IsZero() {
		moved, err = r.carryOut(ctx, s, v)
	}
	return moved, false, err
}

// tellMissed logs that ticks came to light too late, and get no job.
func (r *Runner) tellMissed(s *schedule, ticks string, after, upTo time.Time) {
	r.log.Warn("schedule missed ticks", "entry", s.entry.Name, "ticks", ticks, "after", after, "up_to", upTo)
}

// skip moves the state past a tick, and those before it, without a job.
func (r *Runner) skip(ctx context.Context, s *schedule, v *view, tick time.Time, why string) (bool, error) {
	to := v.state
	to.last, to.tick, to.outcome = tick, tick, "skipped: "+why
	to.intent, to.intentAt = time.Time{}, time.Time{}
	to.skipped++
	return r.moveView(ctx, s, v, to)
}
