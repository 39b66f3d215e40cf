package scheduler

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

// Enqueuer adds a task to its queue. An asynq.Client is one.
type Enqueuer interface {
	EnqueueContext(context.Context, *asynq.Task, ...asynq.Option) (*asynq.TaskInfo, error)
}

// CronConfig holds what NewCron does not require.
type CronConfig struct {
	// Scope is the hash tag of the keys in Redis. The zero value means default.
	Scope string
	// Log gets what goes wrong at a tick. The zero value means slog.Default.
	Log *slog.Logger
}

// Cron enqueues the ticks of its entries. Any number of processes may run a
// Cron of the same entries on one Redis, and may come, go and stall as they
// like: each tick is enqueued once. Give it entries with Set, then Run it.
//
// # Why once
//
// A tick goes through three steps, and the entry's hash in Redis says how far
// it is. First a replica moves the hash from (last, no intent) to (last,
// intent T): a compare-and-set, so of all replicas one wins, and what the
// others decided in the meantime comes to nothing. Then it enqueues T under an
// id made of entry and tick. Then it moves the hash on to (T, no intent).
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
// Whether a tick is due, missed, or in a pause is decided by Redis's clock
// alone. The clocks of the machines do not matter: a replica uses its own only
// to measure how long to sleep.
type Cron struct {
	rdb       redis.UniversalClient
	enqueuer  Enqueuer
	inspector *asynq.Inspector
	scope     string
	log       *slog.Logger
	wake      chan struct{}

	mu      sync.Mutex
	items   map[string]*cronItem
	leaving map[string]*cronItem
	failing bool
	now     time.Time // Redis's time when last asked
	asked   time.Time // and our own at that moment
}

// cronItem is an entry and what this process knows of it. A change of the
// entry makes a new item.
type cronItem struct {
	entry   Entry
	rule    *tickRule
	leaving bool // removed or disabled: the state has to say so
	cronProgress
}

// cronProgress is the part of an item that changes. Cron.mu guards it.
type cronProgress struct {
	adopted bool      // the state in Redis was made for the item's rule
	known   time.Time // the newest last seen, in case Redis loses its data
	look    time.Time // when to look at it again, by Redis's clock
	fails   int       // tries in a row that an error ended
}

// NewCron gives a Cron without entries. It closes neither rdb nor enqueuer.
func NewCron(rdb redis.UniversalClient, enqueuer Enqueuer, cfg CronConfig) *Cron {
	if cfg.Scope == "" {
		cfg.Scope = "default"
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	return &Cron{
		rdb: rdb, enqueuer: enqueuer, scope: cfg.Scope, log: cfg.Log,
		inspector: asynq.NewInspectorFromRedisClient(rdb),
		wake:      make(chan struct{}, 1),
		items:     map[string]*cronItem{},
		leaving:   map[string]*cronItem{},
	}
}

// Set makes entries the whole set, also while Run runs. If any of them is
// wrong nothing changes, and the error joins everything that is wrong.
//
// An entry that Redis has never seen starts with its first tick from now on.
// One whose cron line or zone has changed still gets the old line's ticks up to
// the change, and the new line's after it. The ticks while an entry was
// removed or disabled do not count as missed.
func (c *Cron) Set(entries []Entry) error {
	items, err := newItems(entries)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, old := range c.items {
		if _, ok := items[name]; !ok {
			c.leaving[name] = old.leave()
		}
	}
	for name, item := range items {
		old := c.items[name]
		if item.entry.Disabled {
			if old == nil || !old.entry.Disabled {
				c.leaving[name] = cmp.Or(old, item).leave()
			}
			continue
		}
		delete(c.leaving, name)
		item.inherit(old)
	}
	c.items = items
	select {
	case c.wake <- struct{}{}:
	default:
	}
	return nil
}

func newItems(entries []Entry) (map[string]*cronItem, error) {
	items := make(map[string]*cronItem, len(entries))
	var errs []error
	for _, e := range entries {
		if _, ok := items[e.Name]; ok {
			errs = append(errs, &EntryError{
				e.Name, "name", e.Name,
				"is there twice: each schedule needs a name of its own",
			})
		}
		if err := e.Validate(); err != nil {
			errs = append(errs, err)
		}
		rule, _ := newTickRule(e) // Validate has reported its error
		items[e.Name] = &cronItem{entry: e, rule: rule}
	}
	return items, errors.Join(errs...)
}

// inherit takes over what is known from the item of the same name before.
func (it *cronItem) inherit(old *cronItem) {
	if old == nil || old.entry.Disabled {
		return
	}
	it.known = old.known
	if old.rule.spec == it.rule.spec {
		it.cronProgress = old.cronProgress
	}
}

func (it *cronItem) leave() *cronItem {
	left := *it
	left.leaving, left.look = true, time.Time{}
	return &left
}

// item finds the item of an entry.
func (c *Cron) item(name string) (cronItem, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if item, ok := c.items[name]; ok {
		return *item, nil
	}
	return cronItem{}, fmt.Errorf("%w: %q", ErrNoEntry, name)
}
