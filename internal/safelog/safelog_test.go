package safelog

import (
	"context"
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
