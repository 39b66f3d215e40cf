package cron

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"
)

// leave copies the schedule for the time until Redis knows that it is gone.
func (s *schedule) leave() *schedule {
	left := *s
	left.leaving, left.look = true, time.Time{}
	return &left
}

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
		if old == nil || old.entry.Disabled { // the ticks of that time are not to be made up for
			continue
		}
		s.known = old.known
		if old.timetable.spec == s.timetable.spec { // else that has still to be adopted
			s.progress = old.progress
			s.catchUp = nil // Missed or MissedMax may have changed
		}
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

// Validate reports everything that is wrong with the entry: an error that joins
// an [EntryError] for each, or nil. A line that never ticks, such as one for 31
// February, is wrong. Whether anything handles the task's type it cannot know.
func (e Entry) Validate() error {
	var errs []error
	wrong := func(bad bool, field, value, hint string) {
		if bad {
			errs = append(errs, &EntryError{e.Name, field, value, hint})
		}
	}
	wrong(!entryName.MatchString(e.Name), "name", e.Name,
		"must be 1 to 100 letters, digits and _ . : -")
	// It says one thing that is wrong of zone and cron together: what a line means is not
	// known without its zone.
	if _, err := newTimetable(e); err != nil {
		errs = append(errs, err)
	}
	wrong(strings.TrimSpace(e.Type) == "", "type", e.Type,
		"must be a task type such as http:request")
	wrong(e.Queue != "" && strings.TrimSpace(e.Queue) == "", "queue", e.Queue,
		"must not be blank: leave it out for the default queue")
	wrong(e.Jitter < 0 || e.Jitter%time.Second != 0, "jitter", e.Jitter.String(),
		"must be whole seconds, such as 30s")
	wrong(!missedWords.Has(int(e.Missed)), "missed", e.Missed.String(), "must be one of "+missedWords.String())
	wrong(e.MissedMax < 0, "missed_max", fmt.Sprint(e.MissedMax), "must be above 0")
	wrong(!overlapWords.Has(int(e.Overlap)), "overlap", e.Overlap.String(), "must be one of "+overlapWords.String())
	for _, option := range e.Options {
		hint, bad := unfit[option.Type()]
		wrong(bad, "options", option.String(), hint)
		wrong(option.Type() == asynq.GroupOpt && e.Jitter > 0, "options", option.String(),
			"must go, or jitter must: asynq never aggregates a delayed job")
	}
	return errors.Join(errs...)
}

// unfit are options that only fit a single job, or that the runner sets itself.
var unfit = map[asynq.OptionType]string{
	asynq.TaskIDOpt:    "must go: the id of a job is its scope, entry and tick",
	asynq.QueueOpt:     "must go: name the queue in queue",
	asynq.ProcessAtOpt: "must go: cron says when, and jitter delays the job",
	asynq.ProcessInOpt: "must go: cron says when, and jitter delays the job",
	asynq.DeadlineOpt:  "must go: a fixed moment does not fit every tick, use timeout",
	asynq.UniqueOpt:    "must go: use overlap: skip",
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

// syncEvery bounds a sleep. Between two looks a process asks Redis nothing: it sleeps until
// the next tick by Redis's clock, which it reckons with its own. It asks so often that our
// clock's drift from Redis's does not add up, and that a change of Redis's clock is noticed.
const syncEvery = 5 * time.Minute

// setClock notes Redis's time. Where its clock was set back, as at a failover,
// what was far away may be near, so that everything is to be looked at.
func (r *Runner) setClock(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if expected := r.clock(); expected.Sub(now) > time.Minute {
		for _, s := range r.active() {
			s.look = time.Time{}
		}
	}
	r.now, r.asked = now, time.Now()
}

// clock is Redis's time by our own clock, and long ago before it was asked. The caller
// holds mu.
func (r *Runner) clock() time.Time { return r.now.Add(time.Since(r.asked)) }

// due lists the schedules to look at by now: all new ones. Their order is random, as a
// map's is, so that replicas that wake up for many ticks at once each win some of them.
func (r *Runner) due() []*schedule {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock()
	return slices.DeleteFunc(r.active(), func(s *schedule) bool { return s.look.After(now) })
}

// untilNext says how long no schedule is due, syncEvery at most. One may be overdue
// already, as looking after the others took its time; then it is 0.
func (r *Runner) untilNext() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock()
	wait := syncEvery
	for _, s := range r.active() {
		wait = min(wait, s.look.Sub(now))
	}
	return max(wait, 0)
}

// active gives the enabled schedules and those that leave. The caller holds mu.
func (r *Runner) active() []*schedule {
	all := slices.AppendSeq(slices.Collect(maps.Values(r.schedules)), maps.Values(r.leaving))
	return slices.DeleteFunc(all, func(s *schedule) bool { return s.entry.Disabled && !s.leaving })
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
	held := slices.ContainsFunc(r.active(), func(s *schedule) bool { return s.fails > 0 })
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
