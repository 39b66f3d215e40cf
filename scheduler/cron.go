package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
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
		if err := e.Validate(); err != nil {
			errs = append(errs, err)
			continue
		}
		if _, ok := items[e.Name]; ok {
			errs = append(errs, &EntryError{e.Name, "name", e.Name,
				"is there twice: each schedule needs a name of its own"})
		}
		rule, err := newTickRule(e)
		errs = append(errs, err)
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

// Run enqueues ticks until ctx ends, then finishes the tick at hand and
// returns nil. When Redis fails it says so in the log once and goes on trying.
func (c *Cron) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		timer := time.NewTimer(c.pass(ctx))
		select {
		case <-ctx.Done():
		case <-c.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
	return nil
}

const (
	// syncEvery bounds a sleep, so that our clock's drift from Redis's does not
	// add up.
	syncEvery = 5 * time.Minute
	// cronWorkers is how many entries are looked after at once.
	cronWorkers = 8
)

// pass looks after every entry that is due for it, and says how long there is
// nothing to do.
func (c *Cron) pass(ctx context.Context) time.Duration {
	items := c.dueItems()
	names := make([]string, len(items))
	for i, item := range items {
		names[i] = item.entry.Name
	}
	seen := time.Now()
	now, states, err := c.read(ctx, names...)
	if err != nil {
		c.report(ctx, err)
		return cronRetry(1)
	}
	c.mu.Lock()
	c.now, c.asked = now, time.Now()
	c.mu.Unlock()
	c.tendAll(ctx, items, func(i int) cronView {
		return cronView{cronState: states[i], now: now, seen: seen}
	})
	return c.untilNext()
}

// tendAll looks after the items, some at a time.
func (c *Cron) tendAll(ctx context.Context, items []*cronItem, view func(int) cronView) {
	var group sync.WaitGroup
	free := make(chan struct{}, cronWorkers)
	errs := make([]error, len(items))
	for i, item := range items {
		free <- struct{}{}
		group.Go(func() {
			defer func() { <-free }()
			errs[i] = c.tendItem(ctx, item, view(i))
		})
	}
	group.Wait()
	c.report(ctx, errs...)
}

// tendItem looks after a copy of the item, as Set may read the item meanwhile.
func (c *Cron) tendItem(ctx context.Context, item *cronItem, v cronView) error {
	after := *item
	err := c.tend(ctx, &after, &v)
	if err != nil {
		after.fails++
		after.look = v.now.Add(cronRetry(after.fails))
	} else {
		after.fails = 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	item.cronProgress = after.cronProgress
	if item.leaving && err == nil && c.leaving[item.entry.Name] == item {
		delete(c.leaving, item.entry.Name)
	}
	return err
}

// dueItems lists the items to look at by now. Their order is random, so that
// replicas that wake up for many ticks at once each win some of them.
func (c *Cron) dueItems() []*cronItem {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now.Add(time.Since(c.asked))
	var due []*cronItem
	for item := range c.active() {
		if !item.look.After(now) {
			due = append(due, item)
		}
	}
	return due
}

func (c *Cron) untilNext() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now.Add(time.Since(c.asked))
	wait := syncEvery
	for item := range c.active() {
		wait = min(wait, item.look.Sub(now))
	}
	return max(wait, 0)
}

// active gives the enabled items and those that leave. The caller holds mu.
func (c *Cron) active() iter.Seq[*cronItem] {
	return func(yield func(*cronItem) bool) {
		for _, item := range c.items {
			if !item.entry.Disabled && !yield(item) {
				return
			}
		}
		for _, item := range c.leaving {
			if !yield(item) {
				return
			}
		}
	}
}

// report logs the first of several errors when things start to fail, and one
// line when they are well again. Errors because ctx has ended are none.
func (c *Cron) report(ctx context.Context, errs ...error) {
	if ctx.Err() != nil {
		return
	}
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	c.mu.Lock()
	defer c.mu.Unlock()
	held := false
	for item := range c.active() {
		held = held || item.fails > 0
	}
	switch {
	case len(errs) > 0 && !c.failing:
		c.failing = true
		c.log.Warn("schedules are held up, trying again", "errors", len(errs), "first", errs[0])
	case len(errs) == 0 && !held && c.failing:
		c.failing = false
		c.log.Info("schedules go on")
	}
}

// cronRetry is how long to wait after so many failures in a row: 1s, 2s, 4s
// and so on up to 30s.
func cronRetry(fails int) time.Duration {
	return min(time.Second<<min(fails-1, 5), 30*time.Second)
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
