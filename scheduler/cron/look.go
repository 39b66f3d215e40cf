package cron

import (
	"iter"
	"time"
)

// This file is about when to look at which schedule. Between two looks a
// process asks Redis nothing: it sleeps until the next tick by Redis's clock,
// which it reckons with its own.

// syncEvery bounds a sleep, so that our clock's drift from Redis's does not add
// up, and that a change of Redis's clock is noticed.
const syncEvery = 5 * time.Minute

// setClock notes Redis's time. Where its clock was set back, as at a failover,
// what was far away may be near, so that everything is to be looked at.
func (r *Runner) setClock(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if expected := r.clock(); expected.Sub(now) > time.Minute {
		for s := range r.active() {
			s.look = time.Time{}
		}
	}
	r.now, r.asked = now, time.Now()
}

// clock is Redis's time by our own clock. The caller holds mu.
func (r *Runner) clock() time.Time {
	if r.asked.IsZero() {
		return time.Time{}
	}
	return r.now.Add(time.Since(r.asked))
}

// due lists the schedules to look at by now. Their order is random, as a map's is, so
// that replicas that wake up for many ticks at once each win some of them. Before
// Redis was first asked its time counts as the zero time, and so does look of a new
// schedule: all of them are due.
func (r *Runner) due() []*schedule {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock()
	var due []*schedule
	for s := range r.active() {
		if !s.look.After(now) {
			due = append(due, s)
		}
	}
	return due
}

// untilNext says how long no schedule is due, syncEvery at most. One may be overdue
// already, as looking after the others took its time; then it is 0.
func (r *Runner) untilNext() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock()
	wait := syncEvery
	for s := range r.active() {
		wait = min(wait, s.look.Sub(now))
	}
	return max(wait, 0)
}

// active gives the enabled schedules and those that leave. The caller holds mu.
func (r *Runner) active() iter.Seq[*schedule] {
	return func(yield func(*schedule) bool) {
		for _, s := range r.schedules {
			if !s.entry.Disabled && !yield(s) {
				return
			}
		}
		for _, s := range r.leaving {
			if !yield(s) {
				return
			}
		}
	}
}
