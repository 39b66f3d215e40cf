// Package redishealth tracks whether Redis can be used. All parts of a process that talk to a Redis
// report their calls to the Monitor of that Redis, and ask it for the state, so that logs, health
// checks and metrics agree about an outage.
package redishealth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
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

	answers atomic.Int64 // number of the calls that Redis has answered
	asking  atomic.Bool  // whether a slow call has made the Monitor ask Redis

	rights        chan struct{} // is full while the rights are checked because a call lacked one
	rightsChecked time.Time     // guarded by rights: when that was last

	mu      sync.Mutex
	err     error     // why Redis cannot be used; nil if it can
	changed time.Time // when err changed last
	ended   time.Time // when the last outage ended
	checked time.Time // when a successful call last caused a check
	failed  int       // calls that failed in this outage after the first
}

const (
	// AnswerTimeout is how long Redis may take to answer. A Redis that answers nothing for so long
	// counts as unavailable, if a call or a check waits for it. Until then the last known state stays.
	AnswerTimeout = 5 * time.Second
	// slowCall is how long a call takes before the Monitor asks Redis, too. AnswerTimeout is counted in
	// pauses of slowCall, so that a process which was stopped in between has waited for one of them.
	slowCall = time.Second
	// checkInterval is the shortest time between two checks that calls cause.
	checkInterval = time.Second
	// settleTime is the time after an outage in which an error begins no outage: for about a second, a
	// client can return the error of an earlier attempt to connect. The Monitor then asks Redis.
	settleTime = 2 * time.Second
	// repeatPause is the pause before the Monitor asks Redis again.
	repeatPause = 50 * time.Millisecond
)

var (
	errNoAnswer = fmt.Errorf("no answer within %s", AnswerTimeout)
	// ErrNoAnswerYet is the error of a Check of a Redis that has not answered since the start. It shows
	// no Problem.
	ErrNoAnswerYet = errors.New("Redis has not answered yet")
)

// New returns the Monitor of a Redis. name is the name of the Redis in log lines. Redis counts as
// usable until a call fails. Check tries to write a key with each of the prefixes, because in a
// cluster these keys can be on different servers.
func New(log *slog.Logger, name string, rdb redis.UniversalClient, prefixes ...string) *Monitor {
	cluster, _ := rdb.(*redis.ClusterClient)
	return &Monitor{log: log, name: name, rdb: rdb, cluster: cluster, prefixes: prefixes, rights: make(chan struct{}, 1)}
}

// MonitorsOf returns the Monitors of asynq's Redis in a *scheduler.Server, one for each scope.
// Package scheduler sets MonitorsOf, because this package cannot import it.
var MonitorsOf func(server any) []*Monitor

// A Call is a call of Redis that has begun.
type Call struct {
	monitor *Monitor
	began   time.Time
	slow    *time.Timer
}

// Begin returns a call that begins now. The caller must call Note. If the call takes longer than
// slowCall, the Monitor asks Redis itself, because a client that repeats its commands fails late.
func (m *Monitor) Begin() Call {
	return Call{m, time.Now(), time.AfterFunc(slowCall, func() { m.askOnce(AnswerTimeout - slowCall) })}
}

// Note records how the call ended, as Monitor.Note. A call with several results has several Notes.
func (c Call) Note(ctx context.Context, err error) {
	c.slow.Stop()
	c.monitor.Note(ctx, c.began, err)
}

// Note records the error of a call, or nil after a success. Note ignores errors of calls whose
// context has ended, and calls that began before the last change of the state. A call that ended
// without an answer, perhaps by a deadline of its own, does not say that Redis is down: Note makes
// the Monitor ask. Two other results do not change the state, but make Note check Redis, at most
// once in checkInterval: an error about a missing right, and a success while some other commands
// fail (see Monitor).
func (m *Monitor) Note(ctx context.Context, began time.Time, err error) {
	err = Unavailable(err)
	ended, down := m.state()
	before := ProblemOf(down)
	if err != nil && down == nil && ctx.Err() == nil && !IsUnanswered(err) && time.Since(ended) < settleTime {
		time.AfterFunc(time.Until(ended.Add(settleTime)), func() { m.askOnce(AnswerTimeout) })
		return
	}
	if IsUnanswered(err) && down == nil && !errors.Is(ctx.Err(), context.Canceled) {
		m.reloadCluster(ctx)
		go m.askOnce(AnswerTimeout)
		return
	}
	if err != nil && ctx.Err() != nil {
		return
	}
	if err != nil {
		m.reloadCluster(ctx)
	}
	if ProblemOf(err) != Unreachable {
		m.answers.Add(1)
	}
	switch {
	case ProblemOf(err) == NoRights:
		m.noteRights(ctx, began, err)
	case err != nil, before == None, m.cluster == nil && before != NoRights && !before.RefusesWrites():
		m.set(began, err)
	default:
		m.mu.Lock()
		due := time.Since(m.checked) >= checkInterval
		if due {
			m.checked = time.Now()
		}
		m.mu.Unlock()
		if due {
			_ = m.check(ctx, before == NoRights || before.RefusesWrites())
		}
	}
}

// reloadCluster makes the client of a cluster read which nodes are masters. Without a reload, the
// client uses a dead master for up to a minute.
func (m *Monitor) reloadCluster(ctx context.Context) {
	if m.cluster != nil {
		m.cluster.ReloadState(ctx)
	}
}

// noteRights is Note for an error about a missing right. Calls that fail during the check wait for
// its result, so that what the program logs about them finds the outage.
func (m *Monitor) noteRights(ctx context.Context, began time.Time, err error) {
	m.rights <- struct{}{}
	defer func() { <-m.rights }()
	if _, down := m.state(); ProblemOf(down) == NoRights {
		m.set(began, err)
	} else if time.Since(m.rightsChecked) >= checkInterval {
		_ = m.check(ctx, true)
		m.rightsChecked = time.Now()
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
	now, is, ctx := time.Now(), ProblemOf(err), WithoutHook(context.Background())
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
// prefix, and more if it also tries the rights. If ctx ends before Redis has answered, Check returns
// the last known state: the deadline of the caller says nothing about Redis. The check then
// continues, until Redis has answered or AnswerTimeout is over.
func (m *Monitor) Check(ctx context.Context) error {
	_, before := m.state()
	return m.check(ctx, ProblemOf(before) == NoRights)
}

// check implements Check. It also checks each right if rights is true, or if its write fails
// because a right is missing.
func (m *Monitor) check(ctx context.Context, rights bool) error {
	asked := make(chan error, 1)
	go func() { asked <- m.ask(context.WithoutCancel(ctx), rights, AnswerTimeout) }()
	select {
	case err := <-asked:
		return err
	case <-ctx.Done():
	}
	if _, down := m.state(); down != nil || m.answers.Load() > 0 {
		return down
	}
	return ErrNoAnswerYet
}

// askOnce asks Redis, unless an outage is known or another askOnce runs.
func (m *Monitor) askOnce(timeout time.Duration) {
	if _, down := m.state(); down == nil && m.asking.CompareAndSwap(false, true) {
		defer m.asking.Store(false)
		_ = m.ask(context.Background(), false, timeout)
	}
}

// ask asks Redis until it answers, or until neither this call nor another call of the process has
// had an answer for some time. ask then sets the state.
func (m *Monitor) ask(ctx context.Context, rights bool, timeout time.Duration) error {
	ctx, cancel := context.WithCancel(WithoutHook(ctx))
	defer cancel()
	began, asked, answers := time.Now(), make(chan error, 1), &m.answers
	if m.cluster != nil {
		answers = new(atomic.Int64) // the answers of other calls can be those of other nodes
	}
	go func() {
		answered := 0
		err := m.tryAll(ctx, &answered, answers, rights)
		if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
			// Redis or a proxy has closed one idle connection. Only a new connection tells more.
			err = m.tryAll(ctx, &answered, answers, rights)
		}
		for IsUnanswered(err) && !errors.Is(err, redis.ErrClosed) && ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-time.After(repeatPause):
				err = m.tryAll(ctx, &answered, answers, rights)
			}
		}
		asked <- err
	}()
	for waited, before := time.Duration(0), answers.Load(); waited < timeout; waited += slowCall {
		select {
		case err := <-asked:
			if ProblemOf(err) != Unreachable {
				m.answers.Add(1)
			}
			if !IsUnanswered(err) { // if the client is closed, nothing is known
				m.set(began, Unavailable(err))
			}
			return err
		case <-time.After(slowCall):
		}
		if now := answers.Load(); now != before {
			before, waited = now, 0
		}
	}
	m.set(began, errNoAnswer)
	return errNoAnswer
}

// Await waits until done is closed, for up to timeout, and reports whether it is closed. A pause in
// which the process was stopped counts as a twentieth of a second at most. So of two waits at once, the
// longer one ends later, whenever the pause is.
func Await(done <-chan struct{}, timeout time.Duration) bool {
	for timeout > 0 {
		pause := min(timeout, slowCall/20)
		select {
		case <-done:
			return true
		case <-time.After(pause):
			timeout -= pause
		}
	}
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// tryAll tries what a worker needs, and counts the answers. It leaves out the first *answered
// prefixes, and counts further ones there: if it is repeated because a node of a cluster does not
// answer, the answers of other nodes must not count again.
func (m *Monitor) tryAll(ctx context.Context, answered *int, answers *atomic.Int64, rights bool) (err error) {
	for ; *answered < len(m.prefixes) && err == nil; *answered++ {
		prefix := m.prefixes[*answered]
		if err = TryWrite(ctx, m.rdb, prefix); err == nil && m.cluster != nil {
			// While the slot moves to another node, only commands with several keys fail.
			err = m.rdb.Exists(ctx, prefix+"probe", prefix+"-").Err()
		}
		if ProblemOf(err) == Unreachable {
			break
		}
		answers.Add(1)
	}
	if ProblemOf(err) == NoRights || err == nil && rights {
		missing := TryRights(ctx, m.rdb, m.prefixes...)
		if ProblemOf(missing) == NoRights || err == nil {
			err = missing
		}
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

// IsUnanswered reports whether err says only that no answer has come: a deadline of the caller or of
// the client has passed, the client has no free connection, or the client is closed.
func IsUnanswered(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout() || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) || errors.Is(err, redis.ErrClosed)
}

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
	monitorKey struct{} // the context key of a Monitor's own log lines and commands
	lateKey    struct{} // see MayBeLate
)

// MayBeLate returns a context for log lines that may be written some time after the failed call.
// OutageFilter drops such lines during an outage, and for a second after the outage.
func MayBeLate(ctx context.Context) context.Context { return context.WithValue(ctx, lateKey{}, true) }

// Handle implements slog.Handler. It drops a line only if the Monitor knows of an outage. Handle does
// not ask Redis, because no line waits for Redis, and a slow answer is no outage.
func (f *OutageFilter) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelWarn || ctx.Value(monitorKey{}) != nil {
		return f.Handler.Handle(ctx, r)
	}
	for _, m := range f.Monitors {
		ended, down := m.state()
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
