package safelog

import (
	"context"
	"io"
	"log/slog"
	"testing"
)

type panics struct{}

func (panics) Enabled(context.Context, slog.Level) bool  { panic("enabled") }
func (panics) Handle(context.Context, slog.Record) error { panic("handle") }
func (panics) WithAttrs([]slog.Attr) slog.Handler        { panic("attributes") }
func (panics) WithGroup(string) slog.Handler             { panic("group") }
func (panics) Debug(...any)                              { panic("debug") }
func (panics) Info(...any)                               { panic("info") }
func (panics) Warn(...any)                               { panic("warn") }
func (panics) Error(...any)                              { panic("error") }
func (panics) Fatal(...any)                              { panic("fatal") }

// TestPanicsEndNothing: each function of a logger may panic.
func TestPanicsEndNothing(t *testing.T) {
	log := New(slog.New(panics{}))
	log.With("a", 1).WithGroup("b").Error("line")
	if err := log.Handler().Handle(t.Context(), slog.Record{}); err == nil {
		t.Error("a line that is lost is no error")
	}
	if New(log) != log {
		t.Error("a safe logger is wrapped once more")
	}
	asynq := Asynq(panics{})
	for _, line := range []func(...any){asynq.Debug, asynq.Info, asynq.Warn, asynq.Error, asynq.Fatal} {
		line("line")
	}
}

// BenchmarkGuard measures a line that is left out for its level, as each job has some, with and
// without the guard.
func BenchmarkGuard(b *testing.B) {
	plain := slog.New(slog.NewTextHandler(io.Discard, nil))
	for name, log := range map[string]*slog.Logger{"plain": plain, "safe": New(plain)} {
		b.Run(name+"/debug", func(b *testing.B) {
			for b.Loop() {
				log.LogAttrs(b.Context(), slog.LevelDebug, "job denied", slog.String("id", "id"))
			}
		})
		b.Run(name+"/warn", func(b *testing.B) {
			for b.Loop() {
				log.LogAttrs(b.Context(), slog.LevelWarn, "job failed", slog.String("id", "id"))
			}
		})
	}
}
