package cron

import (
	"context"
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
