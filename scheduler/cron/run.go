package cron

import (
	"context"
	"iter"
	"slices"
	"sync"
	"time"
)

// workers is how many entries are looked after at once. Each waits for Redis
// most of the time.
const workers = 8

// Run enqueues ticks until ctx ends, then finishes the tick at hand and
// returns nil. When Redis fails it says so in the log once and goes on trying.
// Between ticks it asks Redis every five minutes. One call of it is enough for a
// Runner.
//
// Entries whose ticks come together wait for one another's Payload, some at a
// time, so that one should be quick.
func (r *Runner) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		timer := time.NewTimer(r.pass(ctx))
		select {
		case <-ctx.Done():
		case <-r.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
	return nil
}

// pass looks after every schedule that is due for it, and says how long there
// is nothing to do.
func (r *Runner) pass(ctx context.Context) time.Duration {
	due := r.due()
	names := make([]string, len(due))
	for i, s := range due {
		names[i] = s.entry.Name
	}
	views, now, err := r.read(ctx, names...)
	if err != nil {
		r.report(ctx, err)
		return retryIn(1)
	}
	r.setClock(now)
	r.report(ctx, r.tendAll(ctx, due, views)...)
	return r.untilNext()
}

// tendAll looks after schedules, some at a time, and gives an error or nil for
// each.
func (r *Runner) tendAll(ctx context.Context, due []*schedule, views []view) []error {
	var group sync.WaitGroup
	free := make(chan struct{}, workers)
	errs := make([]error, len(due))
	for i, s := range due {
		free <- struct{}{}
		group.Go(func() {
			defer func() { <-free }()
			errs[i] = r.tendOne(ctx, s, views[i])
		})
	}
	group.Wait()
	return errs
}

// tendOne looks after a copy of the schedule, as Set may read it meanwhile, and then
// keeps what has changed. Where Set has replaced the schedule by then, that is lost:
// the new one looks at the state, which is what counts.
func (r *Runner) tendOne(ctx context.Context, s *schedule, v view) error {
	r.mu.Lock()
	after := *s
	r.mu.Unlock()
	err := r.tend(ctx, &after, &v)
	if err != nil {
		after.fails++
		after.look = v.now.Add(retryIn(after.fails))
	} else {
		after.fails = 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s.progress = after.progress
	if s.released && r.leaving[s.entry.Name] == s {
		delete(r.leaving, s.entry.Name)
	}
	return err
}

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

// report logs the first of several errors when things start to fail, and one
// line when they are well again: an outage of Redis with a thousand entries is
// two lines. Errors because ctx has ended are none. Things are well only when no
// schedule is held up, also of those that this pass did not look at.
func (r *Runner) report(ctx context.Context, errs ...error) {
	if ctx.Err() != nil {
		return
	}
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	r.mu.Lock()
	defer r.mu.Unlock()
	held := false
	for s := range r.active() {
		held = held || s.fails > 0
	}
	switch {
	case len(errs) > 0 && !r.failing:
		r.failing = true
		r.log.Warn("schedules are held up, trying again", "errors", len(errs), "first", errs[0])
	case len(errs) == 0 && !held && r.failing:
		r.failing = false
		r.log.Info("schedules go on")
	}
}

// retryIn is how long to wait after so many failures in a row: 1s, 2s, 4s and
// so on up to 30s.
func retryIn(fails int) time.Duration {
	return min(time.Second<<min(fails-1, 5), 30*time.Second)
}
