package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

func noNeeds(context.Context, *asynq.Task) (Rule, error) { return Rule{}, nil }

func TestNewServer_Errors(t *testing.T) {
	_, rdb := redistest.Mini(t)
	tests := []struct {
		name  string
		rules Rules
		cfg   asynq.Config
		opts  []Option
		want  string
	}{
		{"no rule", Rules{}, asynq.Config{}, nil, "For is nil"},
		{"a wrong limit", Rules{RuleFor: noNeeds, Limits: []throttle.Limit{{Name: "api", Kind: throttle.Funnel}}}, asynq.Config{}, nil, "api"},
		{"what asynq panics for", Rules{RuleFor: noNeeds}, asynq.Config{GroupGracePeriod: time.Millisecond}, nil, "want at least 1s"},
		{"a queue of two lines", Rules{RuleFor: noNeeds}, asynq.Config{Queues: map[string]int{"a\nb": 1}}, nil, `queue "a\nb": want a name without line breaks`},
		{"a queue that outweighs memory", Rules{RuleFor: noNeeds}, asynq.Config{Queues: map[string]int{"a": 1_000_000_000, "b": 1}}, nil, "queue a: weight 1000000000: want at most 10000"},
		{"fewer crashes than none", Rules{RuleFor: noNeeds}, asynq.Config{}, []Option{WithForgivenCrashes(-1)}, "want 0 or more"},
	}
	for _, test := range tests {
		if _, err := NewServer(rdb, test.rules, test.cfg, test.opts...); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want an error with %q", test.name, err, test.want)
		}
	}
}

// Constructors start nothing: a bubble ends only when all its goroutines have.
func TestNewServer_StartsNothing(t *testing.T) {
	m, _ := redistest.Mini(t)
	synctest.Test(t, func(t *testing.T) {
		rdb := redistest.MiniClient(t, m)
		if _, err := NewServer(rdb, Rules{RuleFor: noNeeds}, asynq.Config{Logger: silent{}}); err != nil {
			t.Error(err)
		}
		NewClient(rdb)
	})
}

// A server answers as asynq's does to calls at the wrong time.
func TestServer_States(t *testing.T) {
	handler := asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil })
	calls := map[string]func(s asynqServer) error{
		"shutdown of a new one": func(s asynqServer) error { s.Stop(); s.Shutdown(); return s.Start(handler) },
		"no handler":            func(s asynqServer) error { return s.Start(nil) },
		"no handler to run":     func(s asynqServer) error { return s.Run(nil) },
		"started twice":         func(s asynqServer) error { return errors.Join(s.Start(handler), s.Start(handler)) },
		"run while it runs":     func(s asynqServer) error { return errors.Join(s.Start(handler), s.Run(handler)) },
		"stopped and started": func(s asynqServer) error {
			err := s.Start(handler)
			s.Stop()
			return errors.Join(err, s.Start(handler))
		},
		"shut down twice": func(s asynqServer) error {
			err := s.Start(handler)
			s.Shutdown()
			s.Shutdown()
			return errors.Join(err, s.Ping())
		},
		"run after shutdown": func(s asynqServer) error {
			err := s.Start(handler)
			s.Shutdown()
			return errors.Join(err, s.Run(handler))
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			answer := func(build func(t *testing.T) asynqServer) (text string) {
				synctest.Test(t, func(t *testing.T) {
					s := build(t)
					defer s.Shutdown()
					text = fmt.Sprint(call(s))
				})
				return text
			}
			cfg := asynq.Config{Logger: silent{}}
			want := answer(func(t *testing.T) asynqServer {
				_, rdb := redistest.Mini(t)
				return asynq.NewServerFromRedisClient(rdb, cfg)
			})
			got := answer(func(t *testing.T) asynqServer {
				_, rdb := redistest.Mini(t)
				s, err := NewServer(rdb, Rules{RuleFor: noNeeds}, cfg)
				if err != nil {
					t.Fatal(err)
				}
				return s
			})
			if got != want {
				t.Errorf("answers %q, asynq's %q", got, want)
			}
		})
	}
}

// The delays between attempts are asynq's unless the program or a rule sets
// others; a rule is worked out once for each attempt, and handlers can see it.
func TestServer_RetryDelays(t *testing.T) {
	minute := &RetryPolicy{Backoff: Backoff{Growth: GrowthConstant, Base: time.Minute, Jitter: JitterNone}}
	own := func(int, error, *asynq.Task) time.Duration { return 10 * time.Minute }
	tests := []struct {
		name     string
		program  asynq.RetryDelayFunc
		rule     *RetryPolicy
		from, to time.Duration
	}{
		{"asynq's", nil, nil, 15 * time.Second, 45 * time.Second},
		{"the program's", own, nil, 10 * time.Minute, 10*time.Minute + time.Second},
		{"the rule's", nil, minute, time.Minute, time.Minute + time.Second},
		{"the rule's before the program's", own, minute, time.Minute, time.Minute + time.Second},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			config := idle
			config.RetryDelayFunc = test.program
			asked := 0
			var seen Rule
			s := settings{
				config: config,
				rule:   func(*asynq.Task) (Rule, error) { asked++; return Rule{MaxWait: 77, Retry: test.rule}, nil },
				handle: func(ctx context.Context, _ *asynq.Task) error { seen, _ = GetRule(ctx); return errors.New("boom") },
			}
			virtual(t, s, func(t *testing.T, st *stack) {
				id := st.enqueue(asynq.NewTask("job", nil))
				time.Sleep(15 * time.Second)
				ran := st.ran()
				if len(ran) != 1 || asked != 1 || seen.MaxWait != 77 {
					t.Fatalf("ran %v, the rule was asked for %d times, the handler saw %+v", ran, asked, seen)
				}
				delay := st.info(id).NextProcessAt.Sub(ran[0].at) + time.Second // asynq cuts to seconds
				if delay < test.from || delay > test.to {
					t.Errorf("comes again after %s, want %s to %s", delay, test.from, test.to)
				}
			})
		})
	}
	if _, ok := GetRule(t.Context()); ok {
		t.Error("a rule outside of a handler")
	}
}

// keeping is a logger that keeps what it is told.
type keeping struct {
	mu    sync.Mutex
	lines []string
}

func (k *keeping) add(level string, args []any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lines = append(k.lines, level+" "+fmt.Sprint(args...))
}

func (k *keeping) Debug(...any)      {}
func (k *keeping) Info(...any)       {}
func (k *keeping) Warn(args ...any)  { k.add("WARN", args) }
func (k *keeping) Error(args ...any) { k.add("ERROR", args) }
func (k *keeping) Fatal(args ...any) { k.add("FATAL", args) }

// asynq says that a job's retries are exhausted where that is so, and not where
// the job was denied on its last attempt.
func TestServer_LogsNoDenials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Mini(t)
		var log keeping
		config := idle
		config.Logger = &log
		rules := Rules{
			Limits: []throttle.Limit{perMinute(1, 1)},
			RuleFor: func(context.Context, *asynq.Task) (Rule, error) {
				return Rule{Needs: []throttle.Need{{Limit: "api"}}}, nil
			},
		}
		server, err := NewServer(rdb, rules, config)
		if err != nil {
			t.Fatal(err)
		}
		client := NewClient(rdb)
		for _, id := range []string{"fails", "fine", "works"} {
			if _, err := client.Enqueue(asynq.NewTask(id, nil), asynq.TaskID(id), asynq.MaxRetry(0)); err != nil {
				t.Fatal(err)
			}
		}
		err = server.Start(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
			if task.Type() == "fails" {
				return errors.New("boom")
			}
			return nil
		}))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		server.Shutdown()
		if want := []string{"WARN Retry exhausted for task id=fails"}; !slices.Equal(log.lines, want) {
			t.Errorf("logged %q, want %q", log.lines, want)
		}
	})
}
