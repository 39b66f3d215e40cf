package cron

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
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

// defaultScope has no part in the ids of jobs. They are what they were before
// there were scopes in them, so that old and new replicas agree on them while
// a program is updated.
const defaultScope = "default"

// Runner enqueues the ticks of its entries. Any number of processes may run
// one with the same entries on one Redis. Its methods may be called at the
// same time, also while it runs.
//
// # Why each tick is enqueued once
//
// A tick goes through three steps, and the entry's hash in Redis says how far
// it is. First a replica moves the hash from (last, no intent) to (last,
// intent T): a compare-and-set, so of all replicas one wins, and what the
// others decided in the meantime comes to nothing. Then it enqueues T under an
// id made of scope, entry and tick. Then it moves the hash on to (T, no
// intent).
//
// A replica that dies in between leaves the intent behind; after three seconds
// any other enqueues T in its place, so T is not lost. Should the first one
// have only stalled, both enqueue the same id, and asynq refuses the second:
// the job exists until it is done, and five minutes longer, as it is enqueued
// with at least that Retention. A replica enqueues nothing on the ground of a
// state that it saw more than five seconds ago, so a second try cannot come
// after those five minutes, save by a process that is frozen for that long
// between its last look at the clock and the write to its socket.
//
// Where nobody comes for those five minutes, because all replicas have died or Redis
// was away, nobody can know whether the first one got so far. T is then as good as
// missed: with MissedSkip it is dropped, so that it has one job at most, and else it is
// enqueued, so that it has one at least.
//
// Whether a tick is due, missed, or in a pause is decided by Redis's clock
// alone. The clocks of the machines do not matter: a replica uses its own only
// to measure how long to sleep.
type Runner struct {
	rdb       redis.UniversalClient
	enqueuer  Enqueuer
	inspector *asynq.Inspector
	scope     string
	log       *slog.Logger
	wake      chan struct{}

	mu        sync.Mutex
	schedules map[string]*schedule // by the entry's name
	leaving   map[string]*schedule // removed or disabled, until Redis knows
	failing   bool                 // the log says that ticks are held up
	now       time.Time            // Redis's time when last asked
	asked     time.Time            // and our own at that moment
}

// New makes a Runner without entries. It closes neither rdb nor enqueuer. The
// two should lead to the same Redis: OverlapSkip looks there for the job of
// the tick before.
func New(rdb redis.UniversalClient, enqueuer Enqueuer, opts Options) *Runner {
	return &Runner{
		rdb: rdb, enqueuer: enqueuer,
		inspector: asynq.NewInspectorFromRedisClient(rdb),
		scope:     cmp.Or(opts.Scope, defaultScope),
		log:       cmp.Or(opts.Log, slog.Default()),
		wake:      make(chan struct{}, 1),
		schedules: map[string]*schedule{},
		leaving:   map[string]*schedule{},
	}
}

func (r *Runner) schedule(name string) (schedule, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s, ok := r.schedules[name]; ok {
		return *s, nil
	}
	return schedule{}, fmt.Errorf("%w: %q", ErrNoEntry, name)
}

// A schedule is an entry and what this process knows of it. What all processes
// know is its state. A change of the entry makes a new schedule.
type schedule struct {
	entry     Entry
	timetable *timetable
	leaving   bool // removed or disabled: the state has to say so
	progress
}

type progress struct {
	adopted  bool      // the state in Redis was made for the schedule's timetable
	released bool      // a leaving schedule's state says that it has left
	known    time.Time // the newest last seen, in case Redis loses its data
	look     time.Time // when to look at it again, by Redis's clock
	fails    int       // tries in a row that an error ended
	tried    time.Time // when it last enqueued, by our own clock
}

// inherit takes over what is known from the schedule of the same name before.
// A new timetable has still to be adopted. One that was disabled knows nothing of
// use: the ticks of that time are not to be made up for.
func (s *schedule) inherit(old *schedule) {
	if old == nil || old.entry.Disabled {
		return
	}
	s.known = old.known
	if old.timetable.spec == s.timetable.spec {
		s.progress = old.progress
	}
}

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
