package cron

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/lua"
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
	// catchUp are the late ticks that are still to run, oldest first.
	catchUp []time.Time
}

// ErrNoEntry says that the Runner was given no entry of the name. Errors of
// Pause, Resume and Trigger wrap it.
var ErrNoEntry = errors.New("no such schedule")

// A state is what all replicas know of an entry: a hash in Redis, with the
// fields below in snake case. Moments are Unix seconds there, absent when
// zero. Only a move changes last and intent, so that a state whose last and
// intent are still the same is one that no replica has worked on.
//
// It holds no entry: what a tick enqueues is in the replicas' own programs, and of
// the cron line only what is needed to see that it has changed, and to do the ticks
// of the line before up to the change.
type state struct {
	last     time.Time // no tick up to here is to be enqueued any more
	spec     string    // zone and cron line that ran last; empty after removal
	paused   time.Time // since when; ticks up to it still count
	intent   time.Time // the tick that is being enqueued
	intentAt time.Time // since when
	tick     time.Time // the last tick, and what came of it
	outcome  string
	job      jobRef // of the last tick that has one
	extra    jobRef // the last that Trigger enqueued; no step of a tick writes it

	enqueued, skipped, failed int64
}

// A jobRef is where a job is. The zero value is none.
type jobRef struct{ id, queue string }

// A view is an entry's state as last seen.
type view struct {
	state
	err  error     // why the state cannot be read, if so
	now  time.Time // Redis's time when it was read
	seen time.Time // our own, just before it was read or last moved on
}

// fields are the parts of a state by their names in Redis.
func (s *state) fields() map[string]any {
	return map[string]any{
		"last": &s.last, "spec": &s.spec, "paused": &s.paused, "intent": &s.intent, "intent_at": &s.intentAt,
		"tick": &s.tick, "outcome": &s.outcome, "job": &s.job.id, "job_queue": &s.job.queue,
		"extra": &s.extra.id, "extra_queue": &s.extra.queue,
		"enqueued": &s.enqueued, "skipped": &s.skipped, "failed": &s.failed,
	}
}

// parseState reads a hash. Its numbers have to be written as ours are: a move
// compares texts, so it would never succeed on a state that is not ours.
func parseState(reply any) (s state, err error) {
	pairs, _ := reply.([]any)
	hash := make(map[string]string, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		hash[fmt.Sprint(pairs[i])] = fmt.Sprint(pairs[i+1])
	}
	fields := s.fields()
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		field, text := fields[name], hash[name]
		if text == "" { // the same as absent to a move
			continue
		}
		number, _ := strconv.ParseInt(text, 10, 64)
		switch field := field.(type) {
		case *string:
			*field = text
		case *int64:
			*field = number
		case *time.Time:
			*field = time.Unix(number, 0)
		}
		if fieldText(field) != text {
			err = fmt.Errorf("field %s is %q, want a plain whole number", name, text)
		}
	}
	return s, err
}

// changes lists each field that differs, and its value in to. A move writes no
// others, so it leaves alone what Pause and Trigger write meanwhile.
func changes(from, to state) (changed []any) {
	before := from.fields()
	fields := to.fields()
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		field := fields[name]
		if text := fieldText(field); text != fieldText(before[name]) {
			changed = append(changed, name, text)
		}
	}
	return changed
}

func fieldText(field any) string {
	switch field := field.(type) {
	case *int64:
		return strconv.FormatInt(*field, 10)
	case *time.Time:
		return unixText(*field)
	}
	return *field.(*string)
}

// unixText is a moment as the state holds it: Unix seconds, empty when zero.
func unixText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return strconv.FormatInt(t.Unix(), 10)
}

// prefix is what the scope's keys begin with. Its braces keep them in one slot
// of a cluster.
func (r *Runner) prefix() string { return lua.Prefix(r.scope) }

func (r *Runner) key(name string) string { return r.prefix() + "cron:" + name }

// read gives the states of entries and Redis's time, in one round trip. A state
// that cannot be understood has its error in its view, and holds up no other.
func (r *Runner) read(ctx context.Context, names ...string) ([]view, time.Time, error) {
	args := make([]any, len(names))
	for i, name := range names {
		args[i] = name
	}
	// Before the round trip: a state must not be taken for fresher than it is.
	seen := time.Now()
	reply, err := lua.CronRead.Run(ctx, r.rdb, []string{r.prefix()}, args...).Slice()
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("reading schedules from Redis: %w", err)
	}
	micros, err := strconv.ParseInt(fmt.Sprint(reply[0]), 10, 64)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("time of Redis: %w", err)
	}
	now := time.UnixMicro(micros)
	views := make([]view, len(names))
	for i, name := range names {
		s, err := parseState(reply[i+1])
		if err != nil {
			err = fmt.Errorf("key %s: %w", r.key(name), err)
		}
		views[i] = view{state: s, err: err, now: now, seen: seen}
	}
	return views, now, nil
}

// refresh reads v again, after another replica was faster or time has passed.
func (r *Runner) refresh(ctx context.Context, name string, v *view) error {
	views, _, err := r.read(ctx, name)
	if err != nil {
		return err
	}
	*v = views[0]
	return v.err
}

// forgetAfter is how long the state of a removed entry is kept that is not paused.
const forgetAfter = 30 * 24 * time.Hour

// move moves the state on, and v with it, if nobody else has meanwhile, and reports
// whether it did. Otherwise v is read again. All that a replica does to a state but Pause
// and Trigger is a move: it is what makes one of them win.
// A state without a spec is that of an entry which was removed: it is
// forgotten after a while unless it is paused, and any other move makes it stay.
func (r *Runner) move(ctx context.Context, s *schedule, v *view, to state) (bool, error) {
	name, seen, forget := s.entry.Name, time.Now(), 0
	if to.spec == "" {
		forget = int(forgetAfter / time.Second)
	}
	args := append([]any{name, unixText(v.last), unixText(v.intent), forget}, changes(v.state, to)...)
	moved, err := lua.CronMove.Run(ctx, r.rdb, []string{r.prefix()}, args...).Bool()
	if err != nil {
		return false, fmt.Errorf("schedule %s: moving its state on: %w", name, err)
	}
	if !moved {
		return false, r.refresh(ctx, name, v)
	}
	v.state, v.seen = to, seen
	s.known = latest(s.known, to.last)
	return true, nil
}
