package cron

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/safelog"
)

// Enqueuer adds a task to its queue. An asynq.Client is one, and so is package
// scheduler's. It must hand asynq.ErrTaskIDConflict on, wrapped or not: that is how
// a Runner learns that a tick is enqueued already.
type Enqueuer interface {
	EnqueueContext(context.Context, *asynq.Task, ...asynq.Option) (*asynq.TaskInfo, error)
}

// Options are what New does not require.
type Options struct {
	// Scope tells the entries of one program from those of another on the same
	// Redis: it is part of the keys there, as their hash tag, and of the jobs'
	// ids. The zero value means default.
	Scope string
	// Log gets what goes wrong at a tick. The zero value means slog.Default.
	Log *slog.Logger
}

// Runner enqueues the ticks of its entries. Any number of processes may run
// one with the same entries on one Redis. Its methods may be called at the
// same time, also while it runs.
//
// # Why each tick is enqueued once
//
// Each replica enqueues a tick when it is due, under an ID made of scope, entry and tick.
// asynq takes one of these jobs and refuses the others, until the job is done and five
// minutes longer: that is the least Retention that the job gets. Then the replica moves
// the entry's last tick in Redis on. So a replica that dies in between loses nothing:
// the others have enqueued the tick, or do so when they look.
//
// A tick gets a second job only if a replica stops for five minutes between its
// look at Redis and the enqueuing, or if every replica dies between the two and none is back
// within five minutes. In the second case a tick of MissedSkip gets no second job.
//
// Redis's clock alone decides whether a tick is due, missed, or in a pause. A replica
// uses its own clock only to measure how long to sleep.
type Runner struct {
	rdb       redis.UniversalClient
	enqueuer  Enqueuer
	inspector *asynq.Inspector
	scope     string
	log       *slog.Logger
	wake      chan struct{}

	mu        sync.Mutex
	schedules map[string]*schedule // by the entry's name
	removed   map[string]*schedule // until Redis knows that they are
	failing   bool                 // the log says that ticks are held up
	offset    time.Duration        // Redis's time less our own
}

// New makes a Runner without entries. It closes neither rdb nor enqueuer. The
// two should lead to the same Redis: OverlapSkip looks there for the job of
// the tick before.
func New(rdb redis.UniversalClient, enqueuer Enqueuer, opts Options) *Runner {
	return &Runner{
		rdb: rdb, enqueuer: enqueuer,
		inspector: asynq.NewInspectorFromRedisClient(rdb),
		scope:     cmp.Or(opts.Scope, defaultScope),
		log:       safelog.New(cmp.Or(opts.Log, slog.Default())),
		wake:      make(chan struct{}, 1),
		schedules: map[string]*schedule{},
		removed:   map[string]*schedule{},
	}
}

// A schedule is an entry and what this process knows of it. What all processes
// know is its state.
type schedule struct {
	entry     Entry
	timetable *timetable

	adopted bool        // the state has the schedule's cron line, or none if it is disabled
	known   time.Time   // the last tick that this process saw done, in case Redis loses it
	look    time.Time   // when to look at it again, by Redis's clock
	fails   int         // tries in a row that an error ended
	catchUp []time.Time // the late ticks that are still to run, oldest first
	refused time.Time   // the tick that the enqueuer refused last
	reason  error       // and why
}

// ErrNoEntry says that the Runner was given no entry of the name. Errors of
// Pause, Resume and Trigger wrap it.
var ErrNoEntry = errors.New("no such schedule")

func (r *Runner) schedule(name string) (schedule, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s, ok := r.schedules[name]; ok {
		return *s, nil
	}
	return schedule{}, fmt.Errorf("%w: %q", ErrNoEntry, name)
}

// Set makes entries the whole set, also while Run runs. If any of them is
// wrong nothing changes, and the error joins an [EntryError] for everything
// that is wrong.
//
// An entry that Redis has never seen, or one whose cron line or zone has changed, starts
// with its first tick from now on. The ticks while an entry was removed or disabled do
// not count as missed.
//
// A removal is seen by the processes that run meanwhile. If all stop and
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
		s, ok := schedules[name]
		if !ok {
			gone := &schedule{entry: old.entry, timetable: old.timetable}
			gone.entry.Disabled = true
			r.removed[name] = gone
		} else if s.entry.Disabled == old.entry.Disabled {
			s.known = old.known
			if s.timetable.spec == old.timetable.spec {
				s.adopted, s.look, s.fails = old.adopted, old.look, old.fails
			}
		}
	}
	for name := range schedules {
		delete(r.removed, name)
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
			errs = append(errs, &EntryError{e.Name, "name", e.Name, "is there twice: each schedule needs a name of its own"})
		}
		errs = append(errs, e.Validate())
		table, _ := newTimetable(e) // Validate has reported its error
		schedules[e.Name] = &schedule{entry: e, timetable: table}
	}
	return schedules, errors.Join(errs...)
}

const (
	// workers is how many entries are looked after at once. Each waits for Redis
	// most of the time.
	workers = 8
	// syncEvery bounds a sleep, so that our clock does not drift from Redis's.
	syncEvery = 5 * time.Minute
)

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

// pass takes every schedule that is due past one tick, and returns how long there
// is nothing to do. A schedule with more ticks is due again at once, after the others.
func (r *Runner) pass(ctx context.Context) time.Duration {
	due, names := r.due()
	states, now, err := r.read(ctx, names...)
	if err != nil {
		r.report(ctx, err)
		return retryIn(1)
	}
	r.setClock(now)
	var group sync.WaitGroup
	free := make(chan struct{}, workers)
	errs := make([]error, len(due))
	for i, s := range due {
		free <- struct{}{}
		group.Go(func() {
			defer func() { <-free }()
			errs[i] = r.tendOne(ctx, s, states[i])
		})
	}
	group.Wait()
	r.report(ctx, errs...)

	r.mu.Lock()
	defer r.mu.Unlock()
	wait := syncEvery
	for _, s := range r.active() {
		wait = min(wait, s.look.Sub(r.clock()))
	}
	return max(wait, 0)
}

// setClock notes Redis's time. If its clock was set back, as at a failover, all schedules
// are looked at again: what was far away may be near.
func (r *Runner) setClock(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.clock().Sub(now) > time.Minute {
		for _, s := range r.active() {
			s.look = time.Time{}
		}
	}
	r.offset = time.Until(now)
}

// clock is Redis's time by our own clock. The caller holds mu.
func (r *Runner) clock() time.Time { return time.Now().Add(r.offset) }

// due lists the schedules to look at by now, in random order: so replicas that wake up
// for many ticks at once each enqueue some of them first.
func (r *Runner) due() (due []*schedule, names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock()
	for _, s := range r.active() {
		if !s.look.After(now) {
			due, names = append(due, s), append(names, s.entry.Name)
		}
	}
	return due, names
}

// active returns the schedules that tick, and those that were removed while Redis does not know it
// yet. The caller holds mu.
func (r *Runner) active() []*schedule {
	all := slices.AppendSeq(slices.Collect(maps.Values(r.schedules)), maps.Values(r.removed))
	return slices.DeleteFunc(all, func(s *schedule) bool { return s.entry.Disabled && s.adopted })
}

// tendOne looks after a copy of the schedule, as Set may read it meanwhile, and then
// keeps what has changed. If Set has replaced the schedule by then, the change is lost:
// the new one looks at the state, which is what counts.
func (r *Runner) tendOne(ctx context.Context, s *schedule, v state) error {
	r.mu.Lock()
	after := *s
	r.mu.Unlock()
	err := r.tend(ctx, &after, v)
	if err != nil {
		after.fails++
		after.look = v.now.Add(retryIn(after.fails))
	} else {
		after.fails = 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	*s = after
	if s.adopted && r.removed[s.entry.Name] == s {
		delete(r.removed, s.entry.Name)
	}
	return err
}

// report logs the first of several errors when things start to fail, and one
// line when they are well again: an outage of Redis with a thousand entries is
// two lines. Errors because ctx has ended are none.
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
