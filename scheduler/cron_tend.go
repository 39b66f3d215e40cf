package scheduler

import (
	"context"
	"fmt"
	"time"
)

const (
	// helpAfter is how old another replica's intent has to be before we carry
	// it out: the state counts whole seconds, so it is two to three seconds.
	helpAfter = 3 * time.Second
	// forgetAfter is how long the state of a removed entry is kept.
	forgetAfter = 30 * 24 * time.Hour
)

// cronView is an entry's state as last seen.
type cronView struct {
	cronState
	now  time.Time // Redis's time when it was read
	seen time.Time // our own, just before it was read or last moved on
}

// tend does all that is due for an entry, and sets when to look at it again.
// A tick that has begun is finished even if ctx ends.
func (c *Cron) tend(ctx context.Context, it *cronItem, v *cronView) error {
	for ctx.Err() == nil {
		it.known = latest(it.known, v.last)
		it.look = time.Time{}
		moved, err := c.step(context.WithoutCancel(ctx), it, v)
		if err != nil || !it.look.IsZero() {
			return err
		}
		if moved {
			continue
		}
		if err := c.refresh(ctx, it.entry.Name, v); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (c *Cron) refresh(ctx context.Context, name string, v *cronView) error {
	seen := time.Now()
	now, states, err := c.read(ctx, name)
	if err == nil {
		*v = cronView{cronState: states[0], now: now, seen: seen}
	}
	return err
}

// step takes an entry one step further. It sets it.look if nothing more is
// due; otherwise it reports whether v is still what Redis holds.
func (c *Cron) step(ctx context.Context, it *cronItem, v *cronView) (bool, error) {
	switch {
	case !v.intent.IsZero():
		if ready := v.intentAt.Add(helpAfter); v.now.Before(ready) {
			it.look = ready
			return true, nil
		}
		return c.carryOut(ctx, it, v)
	case it.leaving:
		return c.release(ctx, it, v)
	case v.last.IsZero():
		return c.begin(ctx, it, v)
	case !it.adopted && v.spec != it.rule.spec:
		return c.adopt(ctx, it, v)
	}
	it.adopted = true
	moved, done, err := c.tick(ctx, it, it.rule, v)
	if done {
		it.look = it.rule.next(v.now)
	}
	return moved, err
}

// begin makes the state of an entry that Redis does not know: ticks count from
// now on, or from the last that we know of if Redis has lost it.
func (c *Cron) begin(ctx context.Context, it *cronItem, v *cronView) (bool, error) {
	to := v.cronState
	to.last, to.spec = it.known, it.rule.spec
	if to.last.IsZero() {
		to.last = v.now
	}
	return c.moveView(ctx, it, v, to)
}

// adopt changes the state over to our rule, once the ticks of the rule before
// are done.
func (c *Cron) adopt(ctx context.Context, it *cronItem, v *cronView) (bool, error) {
	if rule, err := tickRuleOf(v.spec); err == nil && v.spec != "" {
		moved, done, err := c.tick(ctx, it, rule, v)
		if !done || err != nil {
			return moved, err
		}
	}
	if v.spec == "" {
		if err := c.rdb.Persist(ctx, c.key(it.entry.Name)).Err(); err != nil {
			return false, fmt.Errorf("schedule %s: keeping its state: %w", it.entry.Name, err)
		}
	}
	to := v.cronState
	to.last, to.spec = latest(v.last, v.now), it.rule.spec
	return c.moveView(ctx, it, v, to)
}

// release marks the state of an entry that was removed or disabled, so that it
// starts anew when it comes back.
func (c *Cron) release(ctx context.Context, it *cronItem, v *cronView) (bool, error) {
	if it.adopted && v.spec == it.rule.spec {
		moved, done, err := c.tick(ctx, it, it.rule, v)
		if !done || err != nil {
			return moved, err
		}
	}
	if v.last.IsZero() || v.spec == "" {
		it.look = v.now.Add(forgetAfter)
		return true, nil
	}
	to := v.cronState
	to.spec = ""
	if moved, err := c.moveView(ctx, it, v, to); !moved {
		return false, err
	}
	return true, c.rdb.Expire(ctx, c.key(it.entry.Name), forgetAfter).Err()
}

// tick deals with the next tick that is due by rule. done is whether there was
// none.
func (c *Cron) tick(ctx context.Context, it *cronItem, rule *tickRule, v *cronView) (moved, done bool, err error) {
	upTo := v.now
	if !v.paused.IsZero() {
		upTo = earliest(upTo, v.paused)
	}
	run, missed := dueTick(it.entry, rule, latest(v.last, it.known), upTo, v.now)
	to := v.cronState
	switch {
	case run.IsZero() && missed.IsZero():
		return true, true, nil
	case run.IsZero():
		c.log.Warn("schedule missed ticks", "entry", it.entry.Name, "after", v.last, "up_to", missed)
		to.last, to.tick, to.outcome = missed, missed, "skipped: missed"
		to.skipped++
		moved, err = c.moveView(ctx, it, v, to)
		return moved, false, err
	}
	if it.entry.Overlap == OverlapSkip {
		running, err := c.unfinished(v.job, v.jobQueue)
		if err != nil {
			return false, false, err
		}
		if running {
			to.last, to.tick, to.outcome = run, run, "skipped: still running"
			to.skipped++
			moved, err = c.moveView(ctx, it, v, to)
			return moved, false, err
		}
	}
	to.intent, to.intentAt = run, v.now
	if moved, err = c.moveView(ctx, it, v, to); !moved {
		return false, false, err
	}
	moved, err = c.carryOut(ctx, it, v)
	return moved, false, err
}

// moveView moves the state on, and v with it.
func (c *Cron) moveView(ctx context.Context, it *cronItem, v *cronView, to cronState) (bool, error) {
	seen := time.Now()
	moved, err := c.move(ctx, it.entry.Name, v.cronState, to)
	if moved {
		v.cronState, v.seen = to, seen
		it.known = latest(it.known, to.last)
	}
	return moved, err
}
