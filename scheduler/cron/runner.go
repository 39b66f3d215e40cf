// Package cron enqueues asynq tasks at the times of cron lines. Any number of processes may run the
// same schedules: each tick is enqueued once.
//
// An [Entry] is a task and a cron line; each moment that the line matches is a tick. A [Runner]
// holds a set of entries. Most programs make one in every replica:
//
//	runner := cron.New(rdb, asynq.NewClientFromRedisClient(rdb), cron.Options{})
//	err := runner.Set([]cron.Entry{
//		{Name: "nightly", Cron: "30 2 * * *", Zone: "Europe/London", Type: "report:send"},
//	})
//	…
//	err = runner.Run(ctx)
//
// A tick that no process handles within 30 seconds, as in an outage, is missed. [Missed] selects
// which of the missed ticks still run. [Overlap] selects whether a tick is dropped while an earlier
// job of the entry is unfinished. [Entry.Next] says what happens when clocks change. Any process
// that has the entry may call Pause, Resume, Trigger and List, even if it does not call Run.
//
// Time zones come from the machine. A program imports time/tzdata if its machine may have none, as in
// a slim image, or none with old names such as US/Pacific.
package cron

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/safelog"
)

// enqueuer is the part of asynq.Client and scheduler.Client that a Runner uses.
type enqueuer interface {
	EnqueueContext(context.Context, *asynq.Task, ...asynq.Option) (*asynq.TaskInfo, error)
}

// Options are the optional settings of New.
type Options struct {
	// Scope separates programs that share a Redis but no entries. The scope is the hash tag of the
	// keys in Redis. Job IDs begin with the scope, unless it is "default". Empty means "default".
	Scope string
	// Log receives errors of ticks. Nil means slog.Default.
	Log *slog.Logger
}

// Runner enqueues a job for each tick of its entries. Its methods are safe for concurrent use, also
// during Run.
//
// Each replica enqueues a tick when it is due, under an ID made of scope, entry and tick. asynq
// accepts the first of these jobs. It rejects the others until the Retention of the first job ends,
// at least five minutes after the job is done. After the enqueue, each replica records in Redis
// that the tick is done.
//
// Redis's clock alone decides whether a tick is due, missed, or in a pause.
type Runner struct {
	rdb       redis.UniversalClient
	client    enqueuer
	inspector *asynq.Inspector
	scope     string
	log       *slog.Logger
	wake      chan struct{}

	mu        sync.Mutex
	schedules map[string]schedule // by the entry's name; Set replaces the map

	// Only Run uses the fields below.
	records map[string]*record
	failing bool // report has logged an error, and no recovery since then
}

// record is Run's state of a schedule. It needs no lock: a pass handles it in one goroutine.
type record struct {
	schedule               // its spec is empty if Set has removed the entry
	specStored bool        // Redis has the schedule's spec
	doneUntil  time.Time   // copy of state.DoneUntil, because Redis may lose its latest writes
	pending    []time.Time // due ticks that no pass has handled yet, oldest first
	wakeAt     time.Time   // time of the next pass that handles the schedule
	err        error       // error of the last pass that handled the schedule, or nil
}

// New returns a Runner without entries. client is an asynq.Client, a scheduler.Client, or another
// client that returns asynq.ErrTaskIDConflict, wrapped or not, if a job with the task's ID exists.
// New closes neither rdb nor client, which must use the same Redis.
func New(rdb redis.UniversalClient, client enqueuer, opts Options) *Runner {
	return &Runner{
		rdb: rdb, client: client,
		inspector: asynq.NewInspectorFromRedisClient(rdb),
		scope:     cmp.Or(opts.Scope, defaultScope),
		log:       safelog.New(cmp.Or(opts.Log, slog.Default())),
		wake:      make(chan struct{}, 1),
		records:   map[string]*record{},
	}
}

// Set replaces all entries, also while Run runs. If any entry has a mistake, Set changes nothing,
// and its error joins a [throttle.FieldError] for each mistake.
//
// An entry starts with its first tick from now on if it is new in Redis, if its cron line or zone
// has changed, or if it comes back after it was disabled, or removed during Run. If a program
// restarts without an entry, Redis does not learn of the removal: when the entry comes back, the
// ticks in between count as missed.
func (r *Runner) Set(entries []Entry) error {
	schedules := make(map[string]schedule, len(entries))
	var errs []error
	for _, e := range entries {
		if _, ok := schedules[e.Name]; ok {
			errs = append(errs, fmt.Errorf("schedule %q: %w", e.Name, fieldError("name", e.Name, "it is there twice: each schedule needs a name of its own")))
		}
		errs = append(errs, e.Validate())
		schedules[e.Name], _ = newSchedule(e) // Validate has reported its error
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.schedules = schedules
	select {
	case r.wake <- struct{}{}:
	default: // an earlier wake-up is still in the channel
	}
	return nil
}

const (
	// workers is the maximum number of schedules that a pass handles at the same time.
	workers = 8
	// syncEvery is the longest sleep between two passes. The local clock may drift from Redis's
	// clock during a sleep.
	syncEvery = 5 * time.Minute
	// retryEvery is the time after which a schedule is tried again after an error.
	retryEvery = 5 * time.Second
)

// Run enqueues ticks until ctx ends, finishes the current ticks and returns nil. If Redis fails,
// Run logs one line and keeps trying. Call Run once. Run handles all due entries before it looks
// for later ticks, so a slow Payload or client of one entry delays the next ticks of all entries.
func (r *Runner) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-r.wake:
		case <-time.After(r.pass(ctx)):
		}
	}
	return nil
}

// pass handles one tick of each due schedule, and returns the time until the next pass. The time is
// 0 if a schedule has another due tick.
func (r *Runner) pass(ctx context.Context) time.Duration {
	r.refresh()
	var due []*record
	var names []string
	for name, s := range r.records { // in random order, so that replicas begin with different schedules
		if !s.wakeAt.After(time.Now()) {
			due, names = append(due, s), append(names, name)
		}
	}
	states, now, err := r.read(ctx, names...)
	if err != nil {
		r.report(ctx, err)
		return retryEvery
	}
	offset := time.Until(now)
	var group sync.WaitGroup
	free := make(chan struct{}, workers)
	for i, s := range due {
		free <- struct{}{}
		group.Go(func() {
			defer func() { <-free }()
			var next time.Time
			if next, s.err = r.handle(ctx, s, states[i], now); s.err != nil {
				s.pending, next = nil, now.Add(retryEvery)
			}
			s.wakeAt = next.Add(-offset)
		})
	}
	group.Wait()

	wait := syncEvery
	var errs []error
	for _, s := range r.records {
		wait = min(wait, time.Until(s.wakeAt))
		errs = append(errs, s.err)
	}
	r.report(ctx, errs...)
	return max(wait, 0)
}

// refresh updates the records after Set. The record of a removed entry stays, with an empty spec,
// until a pass has written the removal to Redis.
func (r *Runner) refresh() {
	r.mu.Lock()
	schedules := r.schedules
	r.mu.Unlock()
	for name, s := range r.records {
		_, kept := schedules[name]
		switch {
		case kept:
		case s.spec != "":
			removed := s.schedule
			removed.spec = ""
			r.records[name] = &record{schedule: removed}
		case s.specStored:
			delete(r.records, name)
		}
	}
	for name, s := range schedules {
		if old := r.records[name]; old != nil && old.spec == s.spec {
			old.schedule = s
		} else {
			r.records[name] = &record{schedule: s}
		}
	}
}

// report logs the first error when schedules start to fail, and one line when all work again.
func (r *Runner) report(ctx context.Context, errs ...error) {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	switch {
	case ctx.Err() != nil:
	case len(errs) > 0 && !r.failing:
		r.failing = true
		r.log.Warn("schedules cannot be processed, trying again", "errors", len(errs), "first", errs[0])
	case len(errs) == 0 && r.failing:
		r.failing = false
		r.log.Info("schedules are processed again")
	}
}
