package cron

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/headgate/headgate/throttle"
)

// Pause keeps the entry from ticking on every replica until Resume, also over
// restarts and while it is disabled or removed. A tick that was due before still
// runs. Pausing twice is pausing once. Since when the entry is paused is by Redis's
// clock.
func (r *Runner) Pause(ctx context.Context, name string) error {
	if _, err := r.schedule(name); err != nil {
		return err
	}
	_, now, err := r.read(ctx, name)
	if err != nil {
		return err
	}
	pipe := r.rdb.TxPipeline()
	paused := pipe.HSetNX(ctx, r.key(name), "paused", unixText(now))
	pipe.Persist(ctx, r.key(name)) // a disabled entry would be forgotten, and its pause
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("pausing schedule %s: %w", name, err)
	}
	if !paused.Val() {
		return nil
	}
	return r.note(ctx, name, "paused")
}

// note tells the changelog what was done to an entry, and who did it as
// throttle.As says.
func (r *Runner) note(ctx context.Context, name, what string) error {
	log := throttle.New(r.rdb, throttle.RedisOptions{Scope: r.scope, Logger: r.log})
	if err := log.Note(ctx, throttle.Change{What: what, Schedule: name}); err != nil {
		return fmt.Errorf("schedule %s was %s, but that is not in the changelog: %w", name, what, err)
	}
	return nil
}

// Resume ends a Pause. The ticks during the pause are gone; they do not count
// as missed. Resume enqueues those that were due before the pause, if no replica has. For an
// entry that is not paused it does nothing.
func (r *Runner) Resume(ctx context.Context, name string) error {
	s, err := r.schedule(name)
	if err != nil {
		return err
	}
	for {
		states, _, err := r.read(ctx, name)
		if err == nil {
			err = states[0].err
		}
		if err != nil || states[0].paused.IsZero() {
			return err
		}
		v, done := states[0], true
		if v.spec == s.timetable.spec { // ticks of another line are left to those who run it
			if done, err = r.tick(ctx, &s, v); err != nil {
				return err
			}
		}
		if !done {
			continue // more ticks may be due
		}
		if _, err := r.move(ctx, name, v.now, v.spec, "", jobRef{}); err != nil {
			return err
		}
		resumed, err := r.rdb.HDel(ctx, r.key(name), "paused").Result()
		if err != nil {
			return fmt.Errorf("resuming schedule %s: %w", name, err)
		}
		if resumed == 0 {
			return nil
		}
		return r.note(ctx, name, "resumed")
	}
}

// Trigger enqueues a job of the entry at once, beside its ticks, and gives the
// job's id. OverlapSkip drops the entry's ticks while that job is unfinished, but
// not the other way round: nothing keeps a Trigger from running beside a tick's job.
// It has no Jitter, and works while the entry is paused or disabled. Payload gets
// the moment by Redis's clock, in whole seconds.
//
// An id that comes with an error means that the job is enqueued, and that only
// OverlapSkip does not know of it.
func (r *Runner) Trigger(ctx context.Context, name string) (string, error) {
	s, err := r.schedule(name)
	if err != nil {
		return "", err
	}
	_, now, err := r.read(ctx, name)
	if err != nil {
		return "", err
	}
	payload, err := r.payload(&s, now.Truncate(time.Second))
	if err != nil {
		return "", fmt.Errorf("schedule %s: payload: %w", name, err)
	}
	id := r.jobID(name, fmt.Sprintf("run-%d", now.UnixMicro()))
	job, err := r.enqueue(ctx, s.entry, id, payload, 0)
	if err != nil {
		return "", fmt.Errorf("schedule %s: enqueueing %s: %w", name, id, err)
	}
	err = r.rdb.HSet(ctx, r.key(name), "extra", job.id, "extra_queue", job.queue).Err()
	if err != nil {
		return id, fmt.Errorf("schedule %s: job %s is enqueued, but not noted: %w", name, id, err)
	}
	return id, r.note(ctx, name, "run")
}

// Status is an entry and what has become of its ticks.
type Status struct {
	// Entry is as it was given to Set.
	Entry Entry
	// Paused says that Pause was called, by any process, and Resume was not.
	Paused bool
	// Next are the coming ticks in the entry's zone, none while it is disabled
	// or paused.
	Next []time.Time
	// Last is the last tick in the entry's zone, or the zero time, and Outcome
	// what came of it: enqueued, "skipped: …" or "failed: …".
	Last    time.Time
	Outcome string
	// Late is for how long a tick has been due that nobody has looked after yet.
	Late time.Duration
	// Enqueued, Skipped and Failed count ticks. A run of missed ticks that was
	// dropped at once counts as one.
	Enqueued, Skipped, Failed int64
}

// List gives the status of all entries, sorted by name, with the next n ticks
// of each. It asks Redis once, and sees what all replicas have done. The entries are
// those that this Runner was given, disabled ones too; Run need not be called.
func (r *Runner) List(ctx context.Context, n int) ([]Status, error) {
	r.mu.Lock()
	schedules := maps.Clone(r.schedules)
	r.mu.Unlock()
	names := slices.Sorted(maps.Keys(schedules))
	states, _, err := r.read(ctx, names...)
	if err != nil {
		return nil, err
	}
	list := make([]Status, len(names))
	for i, name := range names {
		if err := states[i].err; err != nil {
			return nil, err
		}
		list[i] = newStatus(schedules[name], states[i], n)
	}
	return list, nil
}

func newStatus(s *schedule, v state, n int) Status {
	status := Status{
		Entry: s.entry, Paused: !v.paused.IsZero(), Outcome: v.outcome,
		Enqueued: v.enqueued, Skipped: v.skipped, Failed: v.failed,
	}
	if !v.tick.IsZero() {
		status.Last = v.tick.In(s.timetable.zone)
	}
	if !status.Paused && !s.entry.Disabled {
		if due := s.timetable.next(v.last); !v.last.IsZero() && !due.IsZero() {
			status.Late = max(0, v.now.Sub(due))
		}
		for at := v.now; len(status.Next) < n; {
			at = s.timetable.next(at)
			status.Next = append(status.Next, at)
		}
	}
	return status
}
