package cron

import (
	"cmp"
	"errors"
)

// Set makes entries the whole set, also while Run runs. If any of them is
// wrong nothing changes, and the error joins an [EntryError] for everything
// that is wrong.
//
// An entry that Redis has never seen starts with its first tick from now on.
// One whose cron line or zone has changed still gets the old line's ticks up to
// the change, and the new line's after it. The ticks while an entry was
// removed or disabled do not count as missed.
//
// A removal is seen by the processes that run meanwhile. Where all stop and
// start again without the entry, none can tell its ticks from those of an
// outage; should the entry come back, they count as missed.
func (r *Runner) Set(entries []Entry) error {
	schedules, err := newSchedules(entries)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, old := range r.schedules {
		if _, ok := schedules[name]; !ok && !old.entry.Disabled {
			r.leaving[name] = old.leave()
		}
	}
	for name, s := range schedules {
		old := r.schedules[name]
		if s.entry.Disabled {
			if old == nil || !old.entry.Disabled {
				r.leaving[name] = cmp.Or(old, s).leave()
			}
			continue
		}
		delete(r.leaving, name)
		s.inherit(old)
	}
	r.schedules = schedules
	select {
	case r.wake <- struct{}{}:
	default: // Run has a wake-up to come already
	}
	return nil
}

// Check reports all that Set would say of entries, and changes nothing.
func Check(entries []Entry) error {
	_, err := newSchedules(entries)
	return err
}

// newSchedules reads entries, and reports all that is wrong with any of them. A name
// that is there twice is wrong, even if both entries are alike.
func newSchedules(entries []Entry) (map[string]*schedule, error) {
	schedules := make(map[string]*schedule, len(entries))
	var errs []error
	for _, e := range entries {
		if _, ok := schedules[e.Name]; ok {
			errs = append(errs, &EntryError{
				e.Name, "name", e.Name,
				"is there twice: each schedule needs a name of its own",
			})
		}
		if err := e.Validate(); err != nil {
			errs = append(errs, err)
		}
		table, _ := newTimetable(e) // Validate has reported its error
		schedules[e.Name] = &schedule{entry: e, timetable: table}
	}
	return schedules, errors.Join(errs...)
}
