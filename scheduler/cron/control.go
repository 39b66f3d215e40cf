package cron

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/headgate/headgate/throttle"
)

// ErrNoSchedule is wrapped by the errors of Pause, Resume and Trigger if the Runner has no entry
// with the given name. In messages for users, an entry is called a schedule.
var ErrNoSchedule = errors.New("no such schedule")

// find returns the entry's schedule and state, and Redis's time.
func (r *Runner) find(ctx context.Context, name string) (schedule, state, time.Time, error) {
	r.mu.Lock()
	s, ok := r.schedules[name]
	r.mu.Unlock()
	if !ok {
		return s, state{}, time.Time{}, fmt.Errorf("%w: %q", ErrNoSchedule, name)
	}
	states, now, err := r.read(ctx, name)
	if err != nil {
		return s, state{}, now, err
	}
	return s, states[0], now, states[0].err
}

// Pause stops the entry's ticks on every replica, from now by Redis's clock until Resume. The pause
// lasts even if processes restart, or if the entry is disabled or removed meanwhile. Pausing a
// paused entry has no effect.
func (r *Runner) Pause(ctx context.Context, name string) error {
	_, _, now, err := r.find(ctx, name)
	if err != nil {
		return err
	}
	pipe := r.rdb.TxPipeline()
	paused := pipe.HSetNX(ctx, r.key(name), "paused", now.Unix())
	pipe.Persist(ctx, r.key(name)) // the state of a disabled entry expires, but not while it is paused
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("pausing schedule %s: %w", name, err)
	}
	if !paused.Val() {
		return nil
	}
	return r.logChange(ctx, name, "paused")
}

// Resume ends a Pause. The ticks during the pause are dropped, and no number in Status counts them.
// If the entry is not paused, Resume does nothing.
func (r *Runner) Resume(ctx context.Context, name string) error {
	_, stored, now, err := r.find(ctx, name)
	if err != nil || stored.Paused == 0 {
		return err
	}
	if _, err := r.advance(ctx, name, now, stored.Spec, "", ""); err != nil {
		return err
	}
	resumed, err := r.rdb.HDel(ctx, r.key(name), "paused").Result()
	if err != nil {
		return fmt.Errorf("resuming schedule %s: %w", name, err)
	}
	if resumed == 0 {
		return nil
	}
	return r.logChange(ctx, name, "resumed")
}

// Trigger enqueues an extra job of the entry at once, and returns the job's ID. With OverlapSkip,
// the entry's ticks are dropped while that job is unfinished. Trigger itself ignores Jitter and
// Overlap, and works while the entry is paused or disabled. The entry's Payload gets the present
// time by Redis's clock, in whole seconds, instead of a tick.
//
// If Trigger returns both an ID and an error, the job is enqueued. Only its record for OverlapSkip
// or for the changelog may be missing.
func (r *Runner) Trigger(ctx context.Context, name string) (string, error) {
	s, _, now, err := r.find(ctx, name)
	if err != nil {
		return "", err
	}
	payload, err := r.payload(s, now.Truncate(time.Second))
	if err != nil {
		return "", fmt.Errorf("schedule %s: payload: %w", name, err)
	}
	id := r.jobID(name, fmt.Sprintf("run-%d", now.UnixMicro()))
	job, err := r.enqueue(ctx, s.entry, id, payload, 0)
	if err != nil {
		return "", err
	}
	if err := r.rdb.HSet(ctx, r.key(name), "extra", job).Err(); err != nil {
		return id, fmt.Errorf("schedule %s: job %s is enqueued, but not recorded: %w", name, id, err)
	}
	return id, r.logChange(ctx, name, "run")
}

// logChange adds a line to the changelog, with the actor of throttle.WithActor. what is a past
// participle, such as "paused".
func (r *Runner) logChange(ctx context.Context, name, what string) error {
	changelog := throttle.New(r.rdb, throttle.Options{Scope: r.scope, Logger: r.log})
	if err := changelog.Internals().Note(ctx, throttle.Change{What: what, Schedule: name}); err != nil {
		return fmt.Errorf("schedule %s was %s, but the changelog could not be written: %w", name, what, err)
	}
	return nil
}

// Status is an entry with the state of its ticks.
type Status struct {
	Entry   Entry
	Paused  bool
	Next    []time.Time   // coming ticks in the entry's zone; nil while the entry is disabled or paused
	Last    time.Time     // last handled tick in the entry's zone; zero if there is none
	Outcome string        // what became of Last: "enqueued", "skipped: …" or "failed: …"; empty if there is none
	Late    time.Duration // time since the oldest due tick that no replica has handled; 0 if there is none
	// Enqueued, Skipped and Failed are numbers of ticks by outcome. Missed ticks that are dropped
	// together count as one skipped tick.
	Enqueued, Skipped, Failed int64
}

// List returns the status of all entries of the last Set, sorted by name, each with its next n
// ticks. A status includes what other replicas have done. List takes one round trip to Redis.
func (r *Runner) List(ctx context.Context, n int) ([]Status, error) {
	r.mu.Lock()
	schedules := r.schedules
	r.mu.Unlock()
	names := slices.Sorted(maps.Keys(schedules))
	states, now, err := r.read(ctx, names...)
	if err != nil {
		return nil, err
	}
	list := make([]Status, len(names))
	for i, name := range names {
		s, stored := schedules[name], states[i]
		if stored.err != nil {
			return nil, stored.err
		}
		list[i] = Status{
			Entry: s.entry, Paused: stored.Paused != 0, Outcome: stored.Outcome,
			Enqueued: stored.Enqueued, Skipped: stored.Skipped, Failed: stored.Failed,
		}
		if stored.Tick != 0 {
			list[i].Last = moment(stored.Tick).In(s.zone)
		}
		if list[i].Paused || s.entry.Disabled {
			continue
		}
		if due := s.next(moment(stored.DoneUntil)); stored.DoneUntil != 0 && !due.IsZero() {
			list[i].Late = max(0, now.Sub(due))
		}
		for at := now; len(list[i].Next) < n; {
			at = s.next(at)
			list[i].Next = append(list[i].Next, at)
		}
	}
	return list, nil
}
