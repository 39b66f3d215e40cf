// Package outage says what is wrong with a Redis that jobs cannot run with, or that may lose
// them, and logs when one cannot be used and when it can again, by how the calls of a process
// went.
package outage

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Log logs the start and the end of each time in which one Redis cannot
// be used, once each. All calls of a process tell it how they went, so it needs no
// polls of its own, and nothing is logged a thousand times. It is safe for
// concurrent use, and changes nothing: whoever calls decides what to do without
// Redis.
//
// A Redis that is full or read-only goes on answering what only reads. So an outage
// that began with a write that was refused ends with one that is not.
type Log struct {
	log   *slog.Logger
	what  string
	write func(ctx context.Context) error

	mu      sync.Mutex
	down    bool
	refused bool      // it is down because it takes no writes
	changed time.Time // when that became so
	tried   time.Time // when a write was tried last
}

// writeEach is how often a write is tried while Redis refuses them.
const writeEach = time.Second

// New logs what is away as `what`. It begins as available. To write is to try a write,
// which changes nothing.
func New(log *slog.Logger, what string, write func(ctx context.Context) error) *Log {
	return &Log{log: log, what: what, write: write}
}

// Note is told of each call: what ctx it had, when it began, and how it ended.
// A call that was given up by its own context says nothing of Redis, and one
// that did not begin after the last change says nothing of what is now: of many
// calls that hang together some end well after the outage was noted.
func (o *Log) Note(ctx context.Context, began time.Time, err error) {
	if err != nil && ctx.Err() != nil || err == nil && !o.proves(ctx) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if down := err != nil; down == o.down || !began.After(o.changed) {
		return
	}
	now := time.Now()
	if err != nil {
		o.log.ErrorContext(With(context.Background(), Begins), o.what+" is unavailable; jobs wait", "why", Of(err).Says(), "error", err)
	} else {
		o.log.InfoContext(With(context.Background(), Ends), o.what+" is available again; jobs go on", "after", now.Sub(o.changed).Round(time.Millisecond))
	}
	o.down, o.changed, o.refused = err != nil, now, Of(err).RefusesWrites()
}

// A Line is what a line of a log says of an outage of Redis.
type Line int

// The values of a Line.
const (
	Other  Line = iota // it is about something else
	Begins             // Redis cannot be used; jobs wait
	Ends               // it can again; jobs go on
)

// LineOf is what a line says of an outage, by the context that the slog.Handler gets with
// it: for one that tells of outages in its own way.
func LineOf(ctx context.Context) Line {
	line, _ := ctx.Value(lineKey{}).(Line)
	return line
}

// With is the context of a line that says so.
func With(ctx context.Context, line Line) context.Context {
	return context.WithValue(ctx, lineKey{}, line)
}

type lineKey struct{}

// proves reports whether a call that succeeded says that Redis can be used: where it
// refused a write before, only another write does.
func (o *Log) proves(ctx context.Context) bool {
	o.mu.Lock()
	if !o.refused {
		o.mu.Unlock()
		return true
	}
	due := time.Since(o.tried) >= writeEach
	if due {
		o.tried = time.Now()
	}
	o.mu.Unlock()
	return due && o.write(ctx) == nil
}

// TryWrite returns why Redis takes no writes at keys that begin so, if it does not. The
// write changes nothing: it adds to a list that is never there.
func TryWrite(ctx context.Context, rdb redis.UniversalClient, prefix string) error {
	try := once{redis.NewIntCmd(ctx, "rpushx", prefix+"probe", "")}
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

// Unreachable returns err if it means that Redis cannot be used, and nil if it
// answered, with whatever. That a Redis loads its data, takes no writes or has no
// memory left is an answer, too, but no use.
func Unreachable(err error) error {
	if Of(err).Usable() {
		return nil
	}
	return err
}

// A Watch tells an outage of the calls of one goroutine, of which each begins
// after the one before has ended. So it need not be told when a call began: it takes
// the end of the one before, which is no later.
type Watch struct {
	log    *Log
	before time.Time
}

// Watch begins one, before its goroutine's first call.
func (o *Log) Watch() Watch { return Watch{o, time.Now()} }

// Note tells the outage how a call ended, and returns err, so that it can stand
// around the call.
func (w *Watch) Note(ctx context.Context, err error) error {
	w.log.Note(ctx, w.before, Unreachable(err))
	w.before = time.Now()
	return err
}
