// Package redishealth knows whether Redis can be used. All parts of a process that talk to a
// Redis tell its Monitor how their calls went, and ask the Monitor. So an outage is the same in
// the log, for health checks and for metrics.
package redishealth

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Monitor logs the start and the end of each time in which one Redis cannot be used, once
// each. The calls of a process tell it how they went, so it needs no polls of its own. It is
// safe for concurrent use.
//
// A Redis that is full or read-only, or whose user lacks rights, still answers some commands. So
// an outage that began with a refused command ends when Check succeeds.
type Monitor struct {
	log    *slog.Logger
	what   string
	rdb    redis.UniversalClient
	places []string

	mu      sync.Mutex
	err     error     // why Redis cannot be used; nil if it can
	changed time.Time // when err changed last
	ended   time.Time // when the last outage ended
	checked time.Time // when a call last caused a check
	failed  int       // calls that failed in this outage after the first
}

// checkEach is how often calls cause a check if Redis refuses commands.
const checkEach = time.Second

// New returns the Monitor of a Redis that the log calls what. The Redis counts as usable until a
// call says otherwise. Places are the beginnings of the names of keys at which Check tries to
// write: the servers of a cluster have different ones.
func New(log *slog.Logger, what string, rdb redis.UniversalClient, places ...string) *Monitor {
	return &Monitor{log: log, what: what, rdb: rdb, places: places}
}

// OfServer returns the Monitors of a scheduler.Server: that of its queues and that of its
// limiter, which are the same if both use one client. Package scheduler sets it.
var OfServer func(server any) (queues, limiter *Monitor)

// Note tells the Monitor of a call: its context, when it began, and how it ended. A call that
// was given up by its own context says nothing about Redis. Nor does a call that did not begin
// after the last change: of many calls that hang together some end well after the outage.
//
// If a right is missing, or Redis refused a command and a call succeeds, Note has Redis checked.
func (m *Monitor) Note(ctx context.Context, began time.Time, err error) {
	if err = Unreachable(err); err != nil && ctx.Err() != nil {
		return
	}
	m.mu.Lock()
	before := Of(m.err)
	check := Of(err) == Rights && before != Rights || err == nil && before.Refuses()
	due := check && time.Since(m.checked) >= checkEach
	if due {
		m.checked = time.Now()
	}
	m.mu.Unlock()
	switch {
	case due:
		_ = m.check(ctx, true)
	case !check:
		m.note(began, err)
	}
}

// note logs what a call or a check changes.
func (m *Monitor) note(began time.Time, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !began.After(m.changed) {
		return
	}
	now, is, ctx := time.Now(), Of(err), context.WithValue(context.Background(), ofMonitor{}, true)
	switch {
	case err != nil && (m.err == nil || is != Of(m.err) && !is.Passes()):
		m.log.ErrorContext(ctx, m.what+" cannot be used: jobs wait", "why", is.Says(), "error", err)
		m.err, m.changed = err, now
	case err != nil:
		m.failed++
	case m.err != nil:
		m.log.InfoContext(ctx, m.what+" is back: jobs go on", "after", now.Sub(m.changed).Round(time.Millisecond), "failed_calls", 1+m.failed)
		m.err, m.changed, m.ended, m.failed = nil, now, now, 0
	}
}

// Check asks Redis whether it can be used now, and returns why not. It takes a round trip for
// each place.
func (m *Monitor) Check(ctx context.Context) error {
	m.mu.Lock()
	rights := Of(m.err) == Rights
	m.mu.Unlock()
	return m.check(ctx, rights)
}

// check is Check. It tries each right too if rights says so, or if a write needs one.
func (m *Monitor) check(ctx context.Context, rights bool) error {
	began := time.Now()
	err := m.tryWrites(ctx)
	if Of(err) == Rights || err == nil && rights {
		if missing, _, failed := TryRights(ctx, m.rdb, m.places...); missing != nil || err == nil {
			err = errors.Join(missing, failed)
		}
	}
	if !errors.Is(ctx.Err(), context.Canceled) {
		m.note(began, Unreachable(err))
	}
	return err
}

func (m *Monitor) tryWrites(ctx context.Context) error {
	for _, place := range m.places {
		if err := TryWrite(ctx, m.rdb, place); err != nil {
			return err
		}
	}
	return nil
}

// down reports whether Redis cannot be used, and when the last outage ended.
func (m *Monitor) down() (down bool, ended time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err != nil, m.ended
}

// TryWrite returns why Redis takes no writes at keys that begin so, if it does not. The
// write changes nothing: it adds to a list that is never there.
func TryWrite(ctx context.Context, rdb redis.UniversalClient, place string) error {
	try := once{redis.NewIntCmd(ctx, "rpushx", place+"probe", "")}
	if err := rdb.Process(ctx, try); Of(err) != None {
		return err
	}
	return nil
}

// once is a command that the client does not repeat: at the end of its patience it would
// say no more than that its time is up.
type once struct{ *redis.IntCmd }

// NoRetry implements redis.Cmder.
func (once) NoRetry() bool { return true }

// Unreachable returns err if it means that Redis cannot be used. It returns nil if Redis gave any
// other answer.
func Unreachable(err error) error {
	if Of(err) == None {
		return nil
	}
	return err
}

// A Watch reports the calls of one goroutine to a Monitor. Each call begins after the call before
// it has ended, so Watch takes the end of one call for the begin of the next.
type Watch struct {
	monitor *Monitor
	before  time.Time
}

// Watch begins one, before its goroutine's first call.
func (m *Monitor) Watch() Watch { return Watch{m, time.Now()} }

// Note tells the Monitor how a call ended, and returns err, so that it can stand around the call.
func (w *Watch) Note(ctx context.Context, err error) error {
	w.monitor.Note(ctx, w.before, err)
	w.before = time.Now()
	return err
}
