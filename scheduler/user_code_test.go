package scheduler

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/trace"

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

// functions are the functions of a program that a server calls. faultyTasks says which jobs make it
// call some of them; TestUserCode_Traces and TestEnqueueAll_KeyOfMisbehaves test the others.
var functions = []string{
	"RuleFor", "BaseContext", "IsFailure", "RetryDelayFunc", "ErrorHandler", "HealthCheckFunc", "GroupAggregator",
	"ErrorClass.Is", "ErrorClass.Is at the timeout",
	"Error of the handler's error", "Is of the handler's error", "As of the handler's error", "Unwrap of the handler's error",
	"Error of the rule's error", "Is of the rule's error", "Unwrap of the rule's error",
	"Logger", "log handler",
}

// faultyTasks are the types of jobs that make a server call the program's functions, with their
// options.
var faultyTasks = map[string][]asynq.Option{
	"fails": nil, "long": {asynq.Timeout(40 * time.Second)}, "class": nil, "timeout": {asynq.Timeout(2 * time.Second)},
	"handler's error": nil, "rule's error": nil, "job": {asynq.Group("group")},
}

// faultyError is an error of the program whose methods may misbehave. Its text and its kinds are
// those of io.EOF.
type faultyError struct {
	of    string
	fault func(function string)
}

func (e faultyError) call(method string) { e.fault(method + " of the " + e.of) }
func (e faultyError) Error() string      { e.call("Error"); return "end" }
func (e faultyError) Is(error) bool      { e.call("Is"); return false }
func (e faultyError) As(any) bool        { e.call("As"); return false }
func (e faultyError) Unwrap() error      { e.call("Unwrap"); return io.EOF }

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
			if task.Type() == "rule's error" {
				return Rule{}, faultyError{task.Type(), p.fault}
			}
			rule, err := ruleOfPayload(task)
			if class, ok := map[string]string{"class": "ErrorClass.Is", "timeout": "ErrorClass.Is at the timeout"}[task.Type()]; ok {
				rule.Retry = &RetryPolicy{Classes: []ErrorClass{{Is: func(error) bool { p.fault(class); return true }}}}
			}
			return rule, err
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
			return asynq.NewTask("job", nil, asynq.Timeout(20*time.Second))
		}),
		GroupGracePeriod: time.Second,
	}
	var err error
	p.server, err = NewServer(rdb, rules, config, WithLogger(slog.New(faultyLog{fault: func() { p.fault("log handler") }})))
	p.must(err)
	mux := asynq.NewServeMux()
	mux.HandleFunc("job", returns(nil))
	mux.HandleFunc("fails", returns(errors.New("it fails")))
	mux.HandleFunc("class", returns(errors.New("it fails")))
	mux.HandleFunc("timeout", takes(4*time.Second))
	mux.HandleFunc("handler's error", returns(faultyError{"handler's error", p.fault}))
	mux.HandleFunc("rule's error", returns(nil))
	mux.HandleFunc("long", takes(25*time.Second))
	p.must(p.server.Start(mux))
	t.Cleanup(p.server.Shutdown)
	// One job runs and another waits, each for long.
	p.enqueueN(2, "slow", asynq.Timeout(20*time.Second))
	time.Sleep(5 * time.Second)
	return p
}

// enqueueAll enqueues a job of each type.
func (p *faultyProgram) enqueueAll() {
	for typename, opts := range faultyTasks {
		payload := ""
		if typename == "fails" || typename == "long" {
			payload = "slot"
		}
		p.enqueue(asynq.NewTask(typename, []byte(payload), asynq.MaxRetry(1), asynq.Timeout(20*time.Second)), opts...)
	}
	p.server.RulesChanged()
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

// TestUserCode_Misbehaves: the worker goes on if a function of the program panics, ends its
// goroutine or hangs. The call or its job fails. When the function works again, the next job runs,
// although earlier calls still hang.
func TestUserCode_Misbehaves(t *testing.T) {
	slow(t)
	for _, how := range []string{"panics", "ends its goroutine", "hangs"} {
		for _, function := range functions {
			t.Run(function+" "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					hang := make(chan struct{})
					p := newFaultyProgram(t, map[string]func(){"panics": func() { panic("a fault") }, "ends its goroutine": runtime.Goexit, "hangs": func() { <-hang }}[how])
					t.Cleanup(func() { close(hang) })
					p.faulty = function
					p.enqueueAll()
					p.enqueueN(1, "calendar", asynq.MaxRetry(1), asynq.Timeout(20*time.Second))
					time.Sleep(90 * time.Second)
					if strings.HasPrefix(strings.ToLower(function), "log") { // a logger that hangs gets no lines
						close(hang)
						hang = make(chan struct{})
					}
					p.faulty = ""
					time.Sleep(30 * time.Second)
					if !p.called {
						t.Fatal("it was not called: the test shows nothing")
					}
					id := p.enqueueN(1, "calendar", asynq.Retention(time.Hour))[0]
					time.Sleep(30 * time.Second)
					p.wantJob(id, asynq.TaskStateCompleted, "")
					if n := p.server.inFlight.occupiedSlots(); n > 0 {
						t.Errorf("%d worker slots are occupied, want them free", n)
					}
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
	for _, function := range append([]string{ofWaiting}, functions[:len(functions)-2]...) {
		t.Run(function, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hang := make(chan struct{})
				p := newFaultyProgram(t, func() { <-hang })
				t.Cleanup(func() { close(hang); time.Sleep(30 * time.Second) }) // handlers end before the bubble
				most := 11 * time.Second                                        // the timeout, and a little for Redis
				if p.faulty = function; function == ofWaiting {
					p.faulty, most = "RuleFor", time.Second // no job runs
				} else {
					for range 2 {
						p.enqueueAll()
					}
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

// misbehavingTraces is a propagator and a span processor of the program's OpenTelemetry.
type misbehavingTraces struct {
	propagation.TraceContext
	fault func(function string)
}

func (m misbehavingTraces) Inject(context.Context, propagation.TextMapCarrier) { m.fault("Inject") }
func (m misbehavingTraces) Extract(ctx context.Context, _ propagation.TextMapCarrier) context.Context {
	m.fault("Extract")
	return ctx
}
func (m misbehavingTraces) OnStart(context.Context, trace.ReadWriteSpan) { m.fault("OnStart") }
func (m misbehavingTraces) OnEnd(trace.ReadOnlySpan)                     { m.fault("OnEnd") }
func (misbehavingTraces) Shutdown(context.Context) error                 { return nil }
func (misbehavingTraces) ForceFlush(context.Context) error               { return nil }

// TestUserCode_Traces: a job whose OpenTelemetry misbehaves fails alone, or runs, and the server
// shuts down in time.
func TestUserCode_Traces(t *testing.T) {
	for _, how := range []string{"panics", "ends its goroutine", "hangs"} {
		for _, function := range []string{"Extract", "OnStart", "OnEnd"} {
			t.Run(function+" "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					hang := make(chan struct{})
					p := newFaultyProgram(t, map[string]func(){"panics": func() { panic("a fault") }, "ends its goroutine": runtime.Goexit, "hangs": func() { <-hang }}[how])
					recordTraces(t)
					traces := misbehavingTraces{fault: p.fault}
					otel.SetTracerProvider(trace.NewTracerProvider(trace.WithSpanProcessor(traces)))
					otel.SetTextMapPropagator(traces)
					p.faulty = function
					for range 8 {
						p.enqueue(asynq.NewTask("fails", nil, asynq.MaxRetry(0), asynq.Timeout(10*time.Second)))
					}
					time.Sleep(3 * time.Minute)
					if p.faulty = ""; !p.called {
						t.Fatal("it was not called: the test shows nothing")
					}
					id := p.enqueueN(1, "calendar", asynq.Retention(time.Hour))[0]
					time.Sleep(5 * time.Second)
					p.wantJob(id, asynq.TaskStateCompleted, "")
					p.server.Shutdown()
					close(hang)
				})
			})
		}
	}
}

// TestEnqueueAll_ProgramMisbehaves: if KeyOf or OpenTelemetry panics or ends its goroutine, that is
// the error of its task, and the other tasks are enqueued. If it hangs, the call ends with its context.
func TestEnqueueAll_ProgramMisbehaves(t *testing.T) {
	for how, misbehave := range map[string]func(hang chan struct{}){
		"panicked": func(chan struct{}) { panic("a fault") }, "ended its goroutine": func(chan struct{}) { runtime.Goexit() },
		"context deadline exceeded": func(hang chan struct{}) { <-hang },
	} {
		for _, function := range []string{"KeyOf", "Inject", "OnStart"} {
			synctest.Test(t, func(t *testing.T) {
				hang, bad := make(chan struct{}), function
				fault := func(called string) {
					if called == bad {
						bad = "" // the first task only
						misbehave(hang)
					}
				}
				_, rdb := redistest.Mini(t)
				recordTraces(t)
				traces := misbehavingTraces{fault: fault}
				otel.SetTracerProvider(trace.NewTracerProvider(trace.WithSpanProcessor(traces)))
				otel.SetTextMapPropagator(traces)
				client := NewClient(rdb, Shards{Queue: "crawl", Count: 2, KeyOf: func(*asynq.Task) (string, error) { fault("KeyOf"); return "a", nil }})
				client.log = slog.New(slog.DiscardHandler)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				failed := 0
				for _, r := range client.EnqueueAll(ctx, tasksFor(10, "crawl")...) {
					if r.Err != nil {
						if failed++; !strings.Contains(r.Err.Error(), how) {
							t.Errorf("%s: %v, want that it %s", function, r.Err, how)
						}
					}
				}
				if want := map[bool]int{true: 10, false: 1}[strings.HasPrefix(how, "context")]; failed != want {
					t.Errorf("%s %s: %d tasks failed, want %d", function, how, failed, want)
				}
				close(hang)
				if r := client.EnqueueAll(t.Context(), tasksFor(1, "crawl")...); r[0].Err != nil {
					t.Errorf("after %s %s: %v", function, how, r[0].Err)
				}
			})
		}
	}
}

// tasksFor returns n tasks for a queue.
func tasksFor(n int, queue string) (tasks []*asynq.Task) {
	for range n {
		tasks = append(tasks, asynq.NewTask("job", nil, asynq.Queue(queue)))
	}
	return tasks
}
