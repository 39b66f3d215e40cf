package scheduler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// ErrNoEntry says that the Cron has no entry of the name.
var ErrNoEntry = errors.New("no such schedule")

// Status is an entry and what has become of its ticks.
type Status struct {
	Entry  Entry
	Paused bool
	// Next are the coming ticks in the entry's zone, none while it is disabled
	// or paused.
	Next []time.Time
	// Last is the last tick in the entry's zone, or the zero time, and Outcome
	// what came of it: enqueued, "skipped: …" or "failed: …".
	Last    time.Time
	Outcome string
	// Enqueued, Skipped and Failed count ticks. A run of missed ticks that was
	// dropped at once counts as one.
	Enqueued, Skipped, Failed int64
}

// List gives the status of all entries, sorted by name, with the next n ticks
// of each.
func (c *Cron) List(ctx context.Context, n int) ([]Status, error) {
	c.mu.Lock()
	items := maps.Clone(c.items)
	c.mu.Unlock()
	names := slices.Sorted(maps.Keys(items))
	now, states, err := c.read(ctx, names...)
	if err != nil {
		return nil, err
	}
	list := make([]Status, len(names))
	for i, name := range names {
		list[i] = newStatus(items[name], states[i], now, n)
	}
	return list, nil
}

func newStatus(it *cronItem, state cronState, now time.Time, n int) Status {
	s := Status{
		Entry: it.entry, Paused: !state.paused.IsZero(), Outcome: state.outcome,
		Enqueued: state.enqueued, Skipped: state.skipped, Failed: state.failed,
	}
	if !state.tick.IsZero() {
		s.Last = state.tick.In(it.rule.zone)
	}
	if !s.Paused && !it.entry.Disabled {
		for range n {
			now = it.rule.next(now)
			s.Next = append(s.Next, now)
		}
	}
	return s
}

// Pause keeps the entry from ticking on every replica until Resume. A tick
// that was due before still runs.
func (c *Cron) Pause(ctx context.Context, name string) error {
	if _, err := c.item(name); err != nil {
		return err
	}
	now, _, err := c.read(ctx, name)
	if err != nil {
		return err
	}
	if err := c.rdb.HSetNX(ctx, c.key(name), "paused", unixText(now)).Err(); err != nil {
		return fmt.Errorf("pausing schedule %s: %w", name, err)
	}
	return nil
}

// Resume ends a Pause. The ticks during the pause are gone; they do not count
// as missed. One that was due before the pause, and that nobody has enqueued
// yet, is enqueued by Resume.
func (c *Cron) Resume(ctx context.Context, name string) error {
	it, err := c.item(name)
	if err != nil {
		return err
	}
	for {
		var v cronView
		if err := c.refresh(ctx, name, &v); err != nil || v.paused.IsZero() {
			return err
		}
		if v.spec == it.rule.spec {
			if err := c.tend(ctx, &it, &v); err != nil {
				return err
			}
		}
		if v.intent.IsZero() {
			to := v.cronState
			to.paused, to.last = time.Time{}, latest(v.last, v.now)
			if moved, err := c.move(ctx, name, v.cronState, to); moved || err != nil {
				return err
			}
			continue
		}
		select { // another replica is about to enqueue that tick
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(it.look.Sub(v.now)):
		}
	}
}

// RunNow enqueues a job of the entry at once, beside its ticks, and gives the
// job's id. For Overlap it counts as the entry's last job.
func (c *Cron) RunNow(ctx context.Context, name string) (string, error) {
	it, err := c.item(name)
	if err != nil {
		return "", err
	}
	now, _, err := c.read(ctx, name)
	if err != nil {
		return "", err
	}
	payload, err := it.payload(now.Truncate(time.Second))
	if err != nil {
		return "", fmt.Errorf("schedule %s: payload: %w", name, err)
	}
	id := fmt.Sprintf("%s@run-%d", name, now.UnixMicro())
	queue, err := c.enqueue(ctx, it.entry, id, payload, 0)
	if err != nil {
		return "", fmt.Errorf("schedule %s: enqueueing %s: %w", name, id, err)
	}
	err = c.rdb.HSet(ctx, c.key(name), "job", id, "job_queue", queue).Err()
	if err != nil {
		return id, fmt.Errorf("schedule %s: job %s is enqueued, but not noted: %w", name, id, err)
	}
	return id, nil
}
