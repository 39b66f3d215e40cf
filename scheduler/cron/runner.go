package cron

import (
	"cmp"
	"context"
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

// jobID is the id of one of an entry's jobs. Names have no slash, so no two
// scopes share an id.
func (r *Runner) jobID(name, job string) string {
	id := name + "@" + job
	if r.scope != defaultScope {
		id = r.scope + "/" + id
	}
	return id
}

func (r *Runner) schedule(name string) (schedule, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s, ok := r.schedules[name]; ok {
		return *s, nil
	}
	return schedule{}, fmt.Errorf("%w: %q", ErrNoEntry, name)
}
