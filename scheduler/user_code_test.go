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
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// misbehave is what the program's code may do in place of returning.
var misbehave = map[string]func(){
	"panics":             func() { panic("a fault") },
	"ends its goroutine": runtime.Goexit,
}

// Whatever function of the program's misbehaves, and in whichever goroutine it is called, the
// worker lives: what was asked for has failed, and a job that asks when the function is well
// again runs.
func TestUserCode_Misbehaves(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	functions := []string{
		"For", "BaseContext", "IsFailure", "RetryDelayFunc", "ErrorHandler", "HealthCheckFunc", "GroupAggregator",
		"Logger", "log handler",
	}
	for _, function := range functions {
		for how, misbehaves := range misbehave {
			if how != "panics" && strings.HasPrefix(strings.ToLower(function), "log") {
				continue // a logger has no goroutine of its own
			}
			t.Run(function+" "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ill := "" // the function that misbehaves now
					called := false
					fault := func(now string) {
						if now == ill {
							called = true
							misbehaves()
						}
					}
					_, rdb := redistest.Mini(t)
					calendar := throttle.Limit{Name: "calendar", Kind: throttle.FixedWindow, Rate: throttle.PerDay(1000)}
					limits := []throttle.Limit{{Name: "slow", Kind: throttle.Funnel, Rate: throttle.Every(time.Hour)}, oneSlot, calendar}
					st := misbehavingServer(t, rdb, limits, fault)
					// One job runs and another waits, each for long.
					st.enqueue(asynq.NewTask("job", []byte("slow")))
					st.enqueue(asynq.NewTask("job", []byte("slow")))
					time.Sleep(5 * time.Second)
					ill = function
					st.enqueue(asynq.NewTask("fails", []byte("slot"), asynq.MaxRetry(1)))
					st.enqueue(asynq.NewTask("long", []byte("slot"), asynq.MaxRetry(1)))
					st.enqueue(asynq.NewTask("job", []byte("calendar"), asynq.MaxRetry(1)))
					st.enqueue(asynq.NewTask("job", nil, asynq.Group("group")))
					st.server.RulesChanged()
					time.Sleep(3 * time.Minute)
					ill = ""
					time.Sleep(time.Minute)
					if !called {
						t.Fatal("it was not called: the test shows nothing")
					}
					id := st.enqueue(asynq.NewTask("job", []byte("calendar"), asynq.Retention(time.Hour)))
					time.Sleep(time.Minute)
					if info := st.info(id); info == nil || info.State != asynq.TaskStateCompleted {
						t.Errorf("job: %+v, want that it runs once all is well", info)
					}
				})
			})
		}
	}
}

// faultyLog is a handler of slog and a logger of asynq, which write nothing.
type faultyLog struct {
	silent
	fault func()
}

func (l faultyLog) Enabled(context.Context, slog.Level) bool  { l.fault(); return true }
func (l faultyLog) Handle(context.Context, slog.Record) error { l.fault(); return nil }
func (l faultyLog) WithAttrs([]slog.Attr) slog.Handler        { return l }
func (l faultyLog) WithGroup(string) slog.Handler             { return l }
func (l faultyLog) Debug(...any)                              { l.fault() }
func (l faultyLog) Info(...any)                               { l.fault() }
func (l faultyLog) Warn(...any)                               { l.fault() }
func (l faultyLog) Error(...any)                              { l.fault() }

// misbehavingServer runs jobs that need one permit of the limit which their payload names.
func misbehavingServer(t *testing.T, rdb redis.UniversalClient, limits []throttle.Limit, fault func(string)) *stack {
	t.Helper()
	log := slog.New(faultyLog{fault: func() { fault("log handler") }})
	st := &stack{t: t, rdb: rdb, client: asynq.NewClientFromRedisClient(rdb), tasks: asynq.NewInspectorFromRedisClient(rdb)}
	rules := Rules{Limits: limits, RuleFor: func(_ context.Context, task *asynq.Task) (Rule, error) {
		fault("For")
		if len(task.Payload()) == 0 {
			return Rule{}, nil
		}
		return Rule{Needs: []throttle.Need{{Limit: string(task.Payload())}}}, nil
	}}
	config := asynq.Config{
		Concurrency: 4, TaskCheckInterval: time.Second, Logger: faultyLog{fault: func() { fault("Logger") }}, ShutdownTimeout: 10 * time.Second,
		BaseContext:         func() context.Context { fault("BaseContext"); return context.Background() },
		IsFailure:           func(error) bool { fault("IsFailure"); return true },
		RetryDelayFunc:      func(int, error, *asynq.Task) time.Duration { fault("RetryDelayFunc"); return time.Second },
		ErrorHandler:        asynq.ErrorHandlerFunc(func(context.Context, *asynq.Task, error) { fault("ErrorHandler") }),
		HealthCheckFunc:     func(error) { fault("HealthCheckFunc") },
		HealthCheckInterval: 10 * time.Second,
		GroupAggregator: asynq.GroupAggregatorFunc(func(string, []*asynq.Task) *asynq.Task {
			fault("GroupAggregator")
			return asynq.NewTask("job", nil)
		}),
		GroupGracePeriod: time.Second,
	}
	server, err := NewServer(rdb, rules, config, WithLogger(log))
	st.must(err)
	st.server = server
	mux := asynq.NewServeMux()
	mux.HandleFunc("job", func(context.Context, *asynq.Task) error { return nil })
	mux.HandleFunc("fails", func(context.Context, *asynq.Task) error { return errors.New("it fails") })
	mux.HandleFunc("long", func(context.Context, *asynq.Task) error { time.Sleep(25 * time.Second); return nil })
	st.must(server.Start(mux))
	t.Cleanup(server.Shutdown)
	return st
}

// A rule that panics for a job which waits fails that job, and no other.
func TestRulesChanged_RulePanics(t *testing.T) {
	var st *stack
	ill := false
	var contexts []any
	type key struct{}
	base := func() context.Context { return context.WithValue(context.Background(), key{}, "the program's") }
	config := quick
	config.BaseContext = base
	virtual(t, settings{config: config, limits: slowAndFast}, func(t *testing.T, is *stack) {
		st = is
		st.server.rules.RuleFor = func(ctx context.Context, task *asynq.Task) (Rule, error) {
			contexts = append(contexts, ctx.Value(key{}))
			if ill && string(task.Payload()) == "it" {
				panic("a fault")
			}
			return Rule{Needs: []throttle.Need{{Limit: "slow"}}}, nil
		}
		st.enqueue(needing("slow"))
		time.Sleep(time.Second)
		id := st.enqueue(asynq.NewTask("job", []byte("it"), asynq.MaxRetry(0)))
		other := st.enqueue(needing("slow"))
		time.Sleep(10 * time.Second)
		ill = true
		st.server.RulesChanged()
		time.Sleep(10 * time.Second)
		if info := st.info(id); info == nil || info.State != asynq.TaskStateArchived || !strings.Contains(info.LastErr, "a fault") {
			t.Errorf("job: %+v, want it archived with its panic", info)
		}
		if info := st.info(other); info == nil || info.State != asynq.TaskStateRetry || info.LastErr == "" {
			t.Errorf("another: %+v, want that it waits", info)
		}
		for _, value := range contexts {
			if value != "the program's" {
				t.Fatalf("a rule was asked with the values of another context than BaseContext: %v", contexts)
			}
		}
	})
}

// A job whose handler ends its goroutine, or whose rule never returns, fails at its own
// Timeout, and its slot and its lease are free then. So it does in asynq.
func TestUserCode_NeverReturns(t *testing.T) {
	hang := make(chan struct{})
	tests := map[string]struct {
		rule, handle func()
		text         string
	}{
		"a handler that ends its goroutine": {func() {}, runtime.Goexit, "context deadline exceeded"},
		"a rule that never returns":         {func() { <-hang }, func() {}, "rules: RuleFor has not returned: context deadline exceeded"},
	}
	for name, test := range tests {
		for _, limit := range []throttle.Limit{oneSlot, perMinute(6000, 10)} {
			t.Run(name+" under "+limit.Name, func(t *testing.T) {
				config := asynq.Config{Concurrency: 1, TaskCheckInterval: time.Second}
				ill := true
				rule := func(*asynq.Task) (Rule, error) {
					if ill {
						test.rule()
					}
					return Rule{Needs: []throttle.Need{{Limit: limit.Name}}}, nil
				}
				handle := func(context.Context, *asynq.Task) error {
					if ill {
						test.handle()
					}
					return nil
				}
				virtual(t, settings{config: config, limits: []throttle.Limit{limit}, rule: rule, handle: handle}, func(t *testing.T, st *stack) {
					hang = make(chan struct{})
					defer close(hang)
					id := st.enqueue(asynq.NewTask("job", nil, asynq.MaxRetry(0), asynq.Timeout(20*time.Second)))
					time.Sleep(19 * time.Second)
					if info := st.info(id); info == nil || info.State != asynq.TaskStateActive {
						t.Fatalf("after 19 s: %+v, want active", info)
					}
					time.Sleep(2 * time.Second)
					if info := st.info(id); info == nil || info.State != asynq.TaskStateArchived || info.LastErr != test.text {
						t.Errorf("after 21 s: %+v, want it archived for its Timeout", info)
					}
					ill = false
					next := st.enqueue(asynq.NewTask("job", nil, asynq.Retention(time.Hour)))
					time.Sleep(5 * time.Second)
					if info := st.info(next); info == nil || info.State != asynq.TaskStateCompleted {
						t.Errorf("the next: %+v, want that it runs in the free slot", info)
					}
				})
			})
		}
	}
}

// A shutdown ends within its timeout, whichever function of the program's never returns.
func TestShutdown_Bounded(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	functions := []string{
		"For of a waiting job", "For", "handler", "BaseContext", "IsFailure", "RetryDelayFunc", "ErrorHandler", "HealthCheckFunc", "GroupAggregator",
	}
	for _, function := range functions {
		t.Run(function, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hang, ill := make(chan struct{}), ""
				fault := func(now string) {
					if now == ill || ill == "For of a waiting job" && now == "For" {
						<-hang
					}
				}
				_, rdb := redistest.Mini(t)
				limits := []throttle.Limit{{Name: "slow", Kind: throttle.Funnel, Rate: throttle.Every(time.Hour)}, oneSlot}
				st := misbehavingServer(t, rdb, limits, fault)
				t.Cleanup(func() { close(hang) })
				for range 2 {
					st.enqueue(asynq.NewTask("job", []byte("slow")))
				}
				time.Sleep(5 * time.Second)
				ill = function
				if function != "For of a waiting job" {
					for range 8 {
						st.enqueue(asynq.NewTask("fails", []byte("slot")))
					}
					st.enqueue(asynq.NewTask("job", nil, asynq.Group("group")))
				}
				st.server.RulesChanged()
				time.Sleep(20 * time.Second)
				began := time.Now()
				st.server.Shutdown()
				if took := time.Since(began); took > 11*time.Second {
					t.Errorf("the shutdown took %s, want the timeout of 10 s at most, and a little for Redis", took)
				} else if function == "For of a waiting job" && took > time.Second {
					t.Errorf("the shutdown took %s, though no job ran", took)
				}
			})
		})
	}
}
