// Package safelog wraps the loggers that a program passes to this module. Such a logger may panic,
// end its goroutine or hang: its line is lost, and the process goes on.
package safelog

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"
)

// hangTime is the longest time for which a caller waits for the logger.
const hangTime = 5 * time.Second

// guard calls the functions of one logger.
type guard struct{ hanging atomic.Int32 }

// call calls f in a goroutine of its own, and reports whether f returned. A call that takes longer
// than hangTime goes on without its caller. Until that call ends, the guard drops all other calls.
func (g *guard) call(f func()) (returned bool) {
	if g.hanging.Load() > 0 {
		return false
	}
	done := make(chan bool, 1)
	go func() {
		ok := false
		defer func() { _ = recover(); done <- ok }()
		f()
		ok = true
	}()
	select {
	case returned = <-done:
	case <-time.After(hangTime):
		g.hanging.Add(1)
		go func() { <-done; g.hanging.Add(-1) }()
	}
	return returned
}

// New returns a logger that passes each line to log.
func New(log *slog.Logger) *slog.Logger {
	if _, safe := log.Handler().(handler); safe {
		return log
	}
	return slog.New(handler{log.Handler(), new(guard)})
}

type handler struct {
	next slog.Handler
	*guard
}

// Enabled implements slog.Handler. It guards only against a panic: a goroutine for each call is too
// slow, because Enabled is called for lines below the level, too.
func (h handler) Enabled(ctx context.Context, level slog.Level) (enabled bool) {
	defer func() { _ = recover() }()
	return h.next.Enabled(ctx, level)
}

var errLost = errors.New("the program's log handler panicked, ended its goroutine or hangs")

// Handle implements slog.Handler.
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	var err error
	if !h.call(func() { err = h.next.Handle(ctx, r) }) {
		return errLost
	}
	return err
}

// WithAttrs implements slog.Handler.
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return h.derive(func() slog.Handler { return h.next.WithAttrs(attrs) })
}

// WithGroup implements slog.Handler.
func (h handler) WithGroup(name string) slog.Handler {
	return h.derive(func() slog.Handler { return h.next.WithGroup(name) })
}

func (h handler) derive(f func() slog.Handler) slog.Handler {
	var next slog.Handler
	if !h.call(func() { next = f() }) {
		return h
	}
	return handler{next, h.guard}
}

// Logger has the methods of an asynq.Logger.
type Logger interface {
	Debug(args ...any)
	Info(args ...any)
	Warn(args ...any)
	Error(args ...any)
	Fatal(args ...any)
}

// Asynq returns an asynq.Logger that passes each line to log.
func Asynq(log Logger) Logger { return asynqLogger{log, new(guard)} }

type asynqLogger struct {
	next Logger
	*guard
}

func (l asynqLogger) Debug(args ...any) { l.call(func() { l.next.Debug(args...) }) }
func (l asynqLogger) Info(args ...any)  { l.call(func() { l.next.Info(args...) }) }
func (l asynqLogger) Warn(args ...any)  { l.call(func() { l.next.Warn(args...) }) }
func (l asynqLogger) Error(args ...any) { l.call(func() { l.next.Error(args...) }) }
func (l asynqLogger) Fatal(args ...any) { l.call(func() { l.next.Fatal(args...) }) }
