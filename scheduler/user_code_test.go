package scheduler

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// faultyProgram is a program whose functions call fault with their names.
type faultyProgram struct {
	*stack
	fault  func(function string)
	faulty string // the function that misbehaves now
	called bool   // whether it was called
}

// functions are the functions of a program that a server calls.
var functions = []string{"RuleFor", "BaseContext", "IsFailure", "RetryDelayFunc", "ErrorHandler", "HealthCheckFunc", "GroupAggregator", "Logger", "log handler"}

// newFaultyProgram starts a server whose jobs need one permit of the limit that their payload
// names. The faulty function calls misbehave.
func newFaultyProgram(t *testing.T, misbehave func()) *faultyProgram {
	t.Helper()
	p := &faultyProgram{}
	p.fault = func(function string) {
		if function == p.faulty {
			p.called = true
			misbehave()
		}
	}
	_, rdb := redistest.Mini(t)
	p.stack = &stack{t: t, rdb: rdb}
	p.connect(rdb)
	rules := Rules{
		Limits: []throttle.Limit{{Name: "slow", Kind: throttle.Funnel, Rate: throttle.Every(time.Hour)}, oneSlot, {Name: "calendar", Kind: throttle.FixedWindow, Rate: throttle.PerDay(1000)}},
		RuleFor: func(_ context.Context, task *asynq.Task) (Rule, error) {
			p.fault("RuleFor")
			return ruleOfPayload(task)
		},
	}
	config := asynq.Config{
		Concurrency: 4, TaskCheckInterval: time.Second, Logger: faultyLog{fault: func() { p.fault("Logger") }}, ShutdownTimeout: 10 * time.Second,
		BaseContext:         func() context.Context { p.fault("BaseContext"); return context.Background() },
		IsFailure:           func(error) bool { p.fault("IsFailure"); return true },
		RetryDelayFunc:      func(int, error, *asynq.Task) time.Duration { p.fault("RetryDelayFunc"); return time.Second },
		ErrorHandler:        asynq.ErrorHandlerFunc(func(context.Context, *asynq.Task, error) { p.fault("ErrorHandler") }),
		HealthCheckFunc:     func(error) { p.fault("HealthCheckFunc") },
		HealthCheckInterval: 10 * time.Second,
		GroupAggregator: asynq.GroupAggregatorFunc(func(string, []*asynq.Task) *asynq.Task {
			p.fault("GroupAggregator")
			return asynq.NewTask("job", nil)
		}),
		GroupGracePeriod: time.Second,
	}
	var err error
	p.server, err = NewServer(rdb, rules, config, WithLogger(slog.New(faultyLog{fault: func() { p.fault("log handler") }})))
	p.must(err)
	mux := asynq.NewServeMux()
	mux.HandleFunc("job", returns(nil))
	mux.HandleFunc("fails", returns(errors.New("it fails")))
	mux.HandleFunc("long", takes(25*time.Second))
	p.must(p.server.Start(mux))
	t.Cleanup(p.server.Shutdown)
	// One job runs and another waits, each for long.
	p.enqueueN(2, "slow")
	time.Sleep(5 * time.Second)
	return p
}

// faultyLog is a handler of slog and a logger of asynq, which write nothing.
type faultyLog struct {
	silent
	fault func()
}

func (l faultyLog) Enabled(context.Context, slog.Level) bool  { return true }
func (l faultyLog) Handle(context.Context, slog.Record) error { l.fault(); return nil }
func (l faultyLog) WithAttrs([]slog.Attr) slog.Handler        { return l }
func (l faultyLog) WithGroup(string) slog.Handler             { return l }
func (l faultyLog) Debug(...any)                              { l.fault() }
func (l faultyLog) Info(...any)                               { l.fault() }
func (l faultyLog) Warn(...any)                               { l.fault() }
func (l faultyLog) Error(...any)                              { l.fault() }

// TestUserCode_Misbehaves: the worker goes on if a function of the program panics or ends its
// goroutine, and if a logger hangs. The call fails. When the function works again, the next job runs.
func TestUserCode_Misbehaves(t *testing.T) {
	slow(t)
	for how, misbehave := range map[string]func(){
		"panics":             func() { panic("a fault") },
		"ends its goroutine": runtime.Goexit,
		"hangs":              func() { time.Sleep(time.Minute) },
	} {
		for _, function := range functions {
			if how == "hangs" && !strings.HasPrefix(strings.ToLower(function), "log") {
				continue // TestUserCode_NeverReturns and TestShutdown_Bounded test that
			}
			t.Run(function+" "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := newFaultyProgram(t, misbehave)
					p.faulty = function
					p.enqueue(asynq.NewTask("fails", []byte("slot"), asynq.MaxRetry(1)))
					p.enqueue(asynq.NewTask("long", []byte("slot"), asynq.MaxRetry(1)))
					p.enqueueN(1, "calendar", asynq.MaxRetry(1))
					p.enqueue(asynq.NewTask("job", nil, asynq.Group("group")))
					p.server.RulesChanged()
					time.Sleep(90 * time.Second)
					p.faulty = ""
					time.Sleep(30 * time.Second)
					if !p.called {
						t.Fatal("it was not called: the test shows nothing")
					}
					id := p.enqueueN(1, "calendar", asynq.Retention(time.Hour))[0]
					time.Sleep(30 * time.Second)
					p.wantJob(id, asynq.TaskStateCompleted, "")
				})
			})
		}
	}
}

// TestUserCode_NeverReturns: a job whose handler ends its goroutine, or whose rule never returns,
// fails at its own Timeout, as in asynq. Its worker and its slot are free then.
func TestUserCode_NeverReturns(t *testing.T) {
	var hang chan struct{}
	for name, test := range map[string]struct {
		rule, handle func()
		text         string
	}{
		"a handler that ends its goroutine": {func() {}, runtime.Goexit, "context deadline exceeded"},
		"a rule that never returns":         {func() { <-hang }, func() {}, "RuleFor has not returned: context deadline exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			faulty := true
			rule := func(*asynq.Task) (Rule, error) {
				if faulty {
					test.rule()
				}
				return needs("slot"), nil
			}
			handle := func(context.Context, *asynq.Task) error {
				if faulty {
					test.handle()
				}
				return nil
			}
			virtual(t, settings{config: asynq.Config{Concurrency: 1, TaskCheckInterval: time.Second}, limits: []throttle.Limit{oneSlot}, rule: rule, handle: handle}, func(t *testing.T, st *stack) {
				hang = make(chan struct{})
				defer close(hang)
				id := st.enqueueN(1, "", asynq.Timeout(20*time.Second))[0]
				time.Sleep(19 * time.Second)
				st.wantJob(id, asynq.TaskStateActive, "")
				time.Sleep(2 * time.Second)
				st.wantJob(id, asynq.TaskStateArchived, test.text)
				faulty = false
				next := st.enqueueN(1, "", asynq.Retention(time.Hour))[0]
				time.Sleep(5 * time.Second)
				st.wantJob(next, asynq.TaskStateCompleted, "")
			})
		})
	}
}

// TestShutdown_Bounded: a shutdown ends within its timeout, whichever function of the program's
// never returns.
func TestShutdown_Bounded(t *testing.T) {
	slow(t)
	const ofWaiting = "RuleFor of a waiting job"
	for _, function := range append([]string{ofWaiting}, functions[:7]...) {
		t.Run(function, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hang := make(chan struct{})
				p := newFaultyProgram(t, func() { <-hang })
				t.Cleanup(func() { close(hang) })
				most := 11 * time.Second // the timeout, and a little for Redis
				if p.faulty = function; function == ofWaiting {
					p.faulty, most = "RuleFor", time.Second // no job runs
				} else {
					for range 8 {
						p.enqueue(asynq.NewTask("fails", []byte("slot")))
					}
					p.enqueue(asynq.NewTask("job", nil, asynq.Group("group")))
				}
				p.server.RulesChanged()
				time.Sleep(20 * time.Second)
				began := time.Now()
				p.server.Shutdown()
				if took := time.Since(began); took > most || !p.called {
					t.Errorf("the shutdown took %s, want %s at most; the function was called: %v", took, most, p.called)
				}
			})
		})
	}
}
