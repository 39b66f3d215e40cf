package safelog

import (
	"context"
	"log/slog"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// faulty is a logger. Each of its functions except Enabled calls the function that faulty is.
type faulty func()

func (f faulty) Enabled(context.Context, slog.Level) bool  { return true }
func (f faulty) Handle(context.Context, slog.Record) error { f(); return nil }
func (f faulty) WithAttrs([]slog.Attr) slog.Handler        { f(); return f }
func (f faulty) WithGroup(string) slog.Handler             { f(); return f }
func (f faulty) Debug(...any)                              { f() }
func (f faulty) Info(...any)                               { f() }
func (f faulty) Warn(...any)                               { f() }
func (f faulty) Error(...any)                              { f() }
func (f faulty) Fatal(...any)                              { f() }

// TestFaultsEndNothing: each function of a logger but Enabled may panic, end its goroutine or hang. A logger
// that hangs holds its callers up for hangTime in all, and gets lines again when it goes on.
func TestFaultsEndNothing(t *testing.T) {
	for name, test := range map[string]struct {
		fault func(hang chan struct{})
		took  time.Duration
	}{
		"panics":             {func(chan struct{}) { panic("a fault") }, 0},
		"ends its goroutine": {func(chan struct{}) { runtime.Goexit() }, 0},
		"hangs":              {func(hang chan struct{}) { <-hang }, 2 * hangTime}, // two loggers
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hang, lines, began := make(chan struct{}), 0, time.Now()
				f := faulty(func() {
					lines++
					test.fault(hang)
				})
				log, asynq := New(slog.New(f)), Asynq(f)
				log.With("a", 1).WithGroup("b").Error("line")
				if err := log.Handler().Handle(t.Context(), slog.Record{}); err == nil {
					t.Error("a line that is lost is no error")
				}
				if New(log) != log {
					t.Error("a safe logger is wrapped once more")
				}
				for _, line := range []func(...any){asynq.Debug, asynq.Info, asynq.Warn, asynq.Error, asynq.Fatal} {
					line("line")
				}
				if took := time.Since(began); took != test.took {
					t.Errorf("the lines took %s, want %s", took, test.took)
				}
				close(hang)
				synctest.Wait()
				before := lines
				asynq.Info("line")
				if lines != before+1 {
					t.Error("the logger gets no lines after the fault")
				}
			})
		})
	}
}
