package cron

import (
	"context"
	"time"
)

// tick deals with the next tick that is due by a timetable. done is whether
// there was none.
func (r *Runner) tick(ctx context.Context, s *schedule, by *timetable, v *view) (moved, done bool, err error) {
	upTo := v.now
	if !v.paused.IsZero() {
		upTo = earliest(upTo, v.paused)
	}
	run, missed := dueTick(s.entry, by, latest(v.last, s.known), upTo, v.now)
	switch {
	case run.IsZero() && missed.IsZero():
		return true, true, nil
	case run.IsZero():
		r.log.Warn("schedule missed ticks", "entry", s.entry.Name, "after", v.last, "up_to", missed)
		moved, err = r.skip(ctx, s, v, missed, "missed")
		return moved, false, err
	}
	if s.entry.Overlap == OverlapSkip {
		running, err := r.unfinished(v.job, v.extra)
		if err != nil {
			return false, false, err
		}
		if running {
			moved, err = r.skip(ctx, s, v, run, "still running")
			return moved, false, err
		}
	}
	to := v.state
	to.intent, to.intentAt = run, v.now
	if moved, err = r.moveView(ctx, s, v, to); !moved {
		return false, false, err
	}
	moved, err = r.carryOut(ctx, s, v)
	return moved, false, err
}

// skip moves the state past a tick, and those before it, without a job.
func (r *Runner) skip(ctx context.Context, s *schedule, v *view, tick time.Time, why string) (bool, error) {
	to := v.state
	to.last, to.tick, to.outcome = tick, tick, "skipped: "+why
	to.skipped++
	return r.moveView(ctx, s, v, to)
}
