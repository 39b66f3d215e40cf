package cron

import (
	"context"
	"maps"
	"slices"
	"time"
)

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
	views, _, err := r.read(ctx, names...)
	if err != nil {
		return nil, err
	}
	list := make([]Status, len(names))
	for i, name := range names {
		if err := views[i].err; err != nil {
			return nil, err
		}
		list[i] = newStatus(schedules[name], views[i], n)
	}
	return list, nil
}

func newStatus(s *schedule, v view, n int) Status {
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
