// Package safelog wraps the loggers that a program passes to this module. If such a logger panics,
// the wrapper recovers: the log line is lost, but the process goes on.
package safelog

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/hibiken/asynq"
)

// New returns a logger that passes each line to log, and recovers log's panics.
func New(log *slog.Logger) *slog.Logger {
	if _, safe := log.Handler().(handler); safe {
		return log
	}
	return slog.New(handler{log.Handler()})
}

type handler struct{ next slog.Handler }

// Enabled implements slog.Handler.
func (h handler) Enabled(ctx context.Context, level slog.Level) (enabled bool) {
	defer func() { _ = recover() }()
	return h.next.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h handler) Handle(ctx context.Context, r slog.Record) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("the program's log handler panicked: %v", value)
		}
	}()
	return h.next.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h handler) WithAttrs(attrs []slog.Attr) (next slog.Handler) {
	next = h
	defer func() { _ = recover() }()
	return handler{h.next.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h handler) WithGroup(name string) (next slog.Handler) {
	next = h
	defer func() { _ = recover() }()
	return handler{h.next.WithGroup(name)}
}

// Asynq returns an asynq.Logger that passes each line to log, and recovers log's panics.
func Asynq(log asynq.Logger) asynq.Logger { return asynqLogger{log} }

type asynqLogger struct{ next asynq.Logger }

func guard(log func(args ...any), args []any) {
	defer func() { _ = recover() }()
	log(args...)
}

func (l asynqLogger) Debug(args ...any) { guard(l.next.Debug, args) }
func (l asynqLogger) Info(args ...any)  { guard(l.next.Info, args) }
func (l asynqLogger) Warn(args ...any)  { guard(l.next.Warn, args) }
func (l asynqLogger) Error(args ...any) { guard(l.next.Error, args) }
func (l asynqLogger) Fatal(args ...any) { guard(l.next.Fatal, args) }
