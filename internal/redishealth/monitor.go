// Package redishealth tracks whether Redis can be used. All parts of a process that talk to a Redis
// report their calls to the Monitor of that Redis, and ask it for the state, so that logs, health
// checks and metrics agree about an outage.
package redishealth

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Monitor logs the start and the end of each outage of one Redis. It observes the calls of the
// process, so it needs no polls of its own. It is safe for concurrent use.
//
// In some outages, Redis still accepts some commands: if it is full or read-only, if its user lacks
// rights, or if a node of a cluster is down. Such an outage ends only when a check succeeds.
type Monitor struct {
	log      *slog.Logger
	name     string
	rdb      redis.UniversalClient
	cluster  *redis.ClusterClient // nil unless rdb is one
	prefixes []string

	mu      sync.Mutex
	err     error     // why Redis cannot be used; nil if it can
	changed time.Time // when err changed last
	ended   time.Time // when the last outage ended
	checked time.Time // when Note last called check
	failed  int       // calls that failed in this outage after the first
}

const (
	// checkInterval is the shortest time between two checks that calls cause.
	checkInterval = time.Second
	// checkTimeout bounds the check that a log line causes.
	checkTimeout = time.Second
)

// New returns the Monitor of a Redis. name is the name of the Redis in log lines. Redis counts as
// usable until a call fails. Check tries to write a key with each of the prefixes, because in a
// cluster these keys can be on different servers.
func New(log *slog.Logger, name string, rdb redis.UniversalClient, prefixes ...string) *Monitor {
	cluster, _ := rdb.(*redis.ClusterClient)
	return &Monitor{log: log, name: name, rdb: rdb, cluster: cluster, prefixes: prefixes}
}

// MonitorsOf returns the Monitors of asynq's Redis in a *scheduler.Server, one for each scope.
// Package scheduler sets MonitorsOf, because this package cannot import it.
var MonitorsOf func(server any) []*Monitor

// Note records the error of a call, or nil after a success. It ignores errors of calls whose
// context has ended, and calls that began before the last change of the state. Two
// results do not change the state, but make Note call check, at most once in checkInterval: the
// first error about a missing right, and a success while some other commands fail (see Monitor).
func (m *Monitor) Note(ctx context.Context, began time.Time, err error) {
	if err = Unavailable(err); err != nil && ctx.Err() != nil {
		return
	}
	if err != nil && m.cluster != nil {
		m.cluster.ReloadState(ctx) // without a reload, the client uses a dead master for up to a minute
	}
	m.mu.Lock()
	before := ProblemOf(m.err)
	rights := ProblemOf(err) == NoRights && before != NoRights || err == nil && (before == NoRights || before.RefusesWrites())
	check := rights || err == nil && m.cluster != nil && before != None
	due := check && time.Since(m.checked) >= checkInterval
	if due {
		m.checked = time.Now()
	}
	m.mu.Unlock()
	if due {
		_ = m.check(ctx, rights)
	} else if !check {
		m.set(began, err)
	}
}

// set changes the state after a call or a check that began at a time, and logs the change.
func (m *Monitor) set(began time.Time, err error) {
	log := func() {}
	defer func() { log() }() // after the Unlock, because the program's logger may hang
	m.mu.Lock()
	defer m.mu.Unlock()
	if !began.After(m.changed) {
		return
	}
	now, is, ctx := time.Now(), ProblemOf(err), context.WithValue(context.Background(), monitorKey{}, true)
	switch {
	case err != nil && (m.err == nil || is != ProblemOf(m.err) && !is.IsTemporary()):
		log = func() {
			m.log.ErrorContext(ctx, m.name+" cannot be used: jobs wait", "why", is.Description(), "error", err)
		}
		m.err, m.changed = err, now
	case err != nil:
		m.failed++
	case m.err != nil:
		after, failed := now.Sub(m.changed).Round(time.Millisecond), 1+m.failed
		log = func() { m.log.InfoContext(ctx, m.name+" is back: jobs go on", "after", after, "failed_calls", failed) }
		m.err, m.changed, m.ended, m.failed = nil, now, now, 0
	}
}

// state returns when the last outage ended, and why Redis cannot be used, or nil.
func (m *Monitor) state() (ended time.Time, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ended, m.err
}

// Check returns an error if Redis cannot be used now. It takes one or two round trips for each
// prefix, and more if it also tries the rights.
func (m *Monitor) Check(ctx context.Context) error {
	_, before := m.state()
	return m.check(ctx, ProblemOf(before) == NoRights)
}

// check implements Check. It also checks each right if rights is true, or if its write fails
// because a right is missing.
func (m *Monitor) check(ctx context.Context, rights bool) (err error) {
	began := time.Now()
	for i := 0; i < len(m.prefixes) && err == nil; i++ {
		if err = TryWrite(ctx, m.rdb, m.prefixes[i]); err == nil && m.cluster != nil {
			// While the slot moves to another node, only commands with several keys fail.
			err = m.rdb.Exists(ctx, m.prefixes[i]+"probe", m.prefixes[i]+"-").Err()
		}
	}
	if ProblemOf(err) == NoRights || err == nil && rights {
		if missing := TryRights(ctx, m.rdb, m.prefixes...); ProblemOf(missing) == NoRights || err == nil {
			err = missing
		}
	}
	if !errors.Is(ctx.Err(), context.Canceled) {
		m.set(began, Unavailable(err))
	}
	return err
}

// TryWrite returns the error of a write to a key with a prefix, or nil if Redis accepts writes. The
// write changes nothing, because RPUSHX ignores a list that does not exist.
func TryWrite(ctx context.Context, rdb redis.UniversalClient, prefix string) error {
	return Unavailable(rdb.Process(ctx, noRetryCmd{redis.NewIntCmd(ctx, "rpushx", prefix+"probe", "")}))
}

// noRetryCmd is a command that the client does not repeat. With retries, the error could say only
// that the context has ended, and not why Redis failed.
type noRetryCmd struct{ *redis.IntCmd }

// NoRetry implements redis.Cmder.
func (noRetryCmd) NoRetry() bool { return true }

// Unavailable returns err if it means that Redis cannot be used, and nil otherwise.
func Unavailable(err error) error {
	if ProblemOf(err) == None {
		return nil
	}
	return err
}

// A Watch records the calls of one goroutine in a Monitor. It takes the end of a call as the
// beginning of the next call.
type Watch struct {
	monitor *Monitor
	lastEnd time.Time // end of the last call
}

// Watch returns a Watch. It must be called before the goroutine's first call.
func (m *Monitor) Watch() Watch { return Watch{m, time.Now()} }

// Note records the error of a call, or nil, and returns it.
func (w *Watch) Note(ctx context.Context, err error) error {
	w.monitor.Note(ctx, w.lastEnd, err)
	w.lastEnd = time.Now()
	return err
}

// OutageFilter is a log handler for all parts of a process that use Redis. During an outage it
// drops their warnings and errors. It keeps the lines of the Monitors.
type OutageFilter struct {
	slog.Handler
	// Monitors must be set before anything is logged.
	Monitors []*Monitor
}

type (
	monitorKey struct{} // the context key of a Monitor's own log lines
	lateKey    struct{} // see MayBeLate
)

// MayBeLate returns a context for log lines that may be written some time after the failed call.
// OutageFilter drops such lines during an outage, and for a second after the outage.
func MayBeLate(ctx context.Context) context.Context { return context.WithValue(ctx, lateKey{}, true) }

// Handle implements slog.Handler. Each warning or error causes a check, because it may be logged
// before any Monitor has noticed the outage.
func (f *OutageFilter) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelWarn || ctx.Value(monitorKey{}) != nil {
		return f.Handler.Handle(ctx, r)
	}
	isAboutRights := strings.Contains(r.Message, "NOPERM")
	r.Attrs(func(a slog.Attr) bool {
		isAboutRights = isAboutRights || strings.Contains(a.Value.String(), "NOPERM")
		return true
	})
	for _, m := range f.Monitors {
		ended, down := m.state()
		if down == nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkTimeout)
			_ = m.check(ctx, isAboutRights)
			cancel()
			ended, down = m.state()
		}
		after := r.Time.Sub(ended)
		if down != nil || after <= 0 || after < time.Second && ctx.Value(lateKey{}) != nil {
			return nil
		}
	}
	return f.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler. It ignores attributes and groups, which a worker does not use.
func (f *OutageFilter) WithAttrs([]slog.Attr) slog.Handler { return f }

// WithGroup implements slog.Handler.
func (f *OutageFilter) WithGroup(string) slog.Handler { return f }
