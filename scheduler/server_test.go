package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

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
		{"a limit twice", Rules{RuleFor: noNeeds, Limits: []throttle.Limit{
			{Name: "api", Kind: throttle.Funnel, Rate: throttle.PerSecond(1)},
			{Name: "api", Kind: throttle.FixedWindow, Rate: throttle.PerDay(1)},
		}}, asynq.Config{}, nil, "limit api is defined twice"},
		{"what asynq panics for", Rules{RuleFor: noNeeds}, asynq.Config{GroupGracePeriod: time.Millisecond}, nil, "want at least 1s"},
		{"a queue of two lines", Rules{RuleFor: noNeeds}, asynq.Config{Queues: map[string]int{"a\nb": 1}}, nil, `queue "a\nb": want a name without line breaks and without "}:"`},
		{"a queue that would end its own key", Rules{RuleFor: noNeeds}, asynq.Config{Queues: map[string]int{"a}:t:b": 1}}, nil, `queue "a}:t:b": want a name without line breaks and without "}:"`},
		{"a queue that outweighs memory", Rules{RuleFor: noNeeds}, asynq.Config{Queues: map[string]int{"a": 1_000_000_000, "b": 1}}, nil, "queue a: weight 1000000000: want at most 10000"},
	}
	for _, test := range tests {
		if _, err := NewServer(rdb, test.rules, test.cfg, test.opts...); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want an error with %q", test.name, err, test.want)
		}
	}
}

// TestNewServer_QueuesWithoutWeight: as in asynq, a queue without a name or a positive weight is not
// served, and the default queue is if there is no other.
func TestNewServer_QueuesWithoutWeight(t *testing.T) {
	for _, queues := range []map[string]int{{"x": 0}, {"x": -1}, {" ": 1}, {"default": 1, "x": 0}} {
		t.Run(fmt.Sprint(queues), func(t *testing.T) {
			_, rdb := redistest.Mini(t)
			s, ran := newServer(t, rdb, nil, asynq.Config{Concurrency: 1, Queues: queues}), make(chan string)
			handler := func(_ context.Context, task *asynq.Task) error { ran <- task.Type(); return nil }
			if err := s.Start(asynq.HandlerFunc(handler)); err != nil {
				t.Fatal(err)
			}
			client := NewClient(rdb)
			for _, queue := range []string{"x", "default"} {
				if _, err := client.Enqueue(asynq.NewTask(queue, nil), asynq.Queue(queue)); err != nil {
					t.Fatal(err)
				}
			}
			if got := <-ran; got != "default" || !slices.Equal(s.served, []string{"default"}) {
				t.Errorf("a job of queue %s ran, and the server serves %q", got, s.served)
			}
		})
	}
}

// TestNewServer_StartsNothing: constructors start no goroutines, without which a bubble ends.
func TestNewServer_StartsNothing(t *testing.T) {
	m, _ := redistest.Mini(t)
	synctest.Test(t, func(t *testing.T) {
		rdb := redistest.MiniClient(t, m)
		newServer(t, rdb, nil, asynq.Config{})
		NewClient(rdb)
	})
}

// TestServer_States: a server returns the same as asynq's to calls at the wrong time.
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
			answer := func(plain bool) (text string) {
				synctest.Test(t, func(t *testing.T) {
					_, rdb := redistest.Mini(t)
					var s asynqServer
					if cfg := (asynq.Config{Logger: silent{}}); plain {
						s = asynq.NewServerFromRedisClient(rdb, cfg)
					} else {
						s = newServer(t, rdb, nil, cfg)
					}
					defer s.Shutdown()
					text = fmt.Sprint(call(s))
				})
				return text
			}
			got, want := answer(false), answer(true)
			if got != want {
				t.Errorf("answers %q, asynq's %q", got, want)
			}
		})
	}
}

// TestServer_RetryDelays: the delays between attempts are asynq's unless the program or a rule sets
// others. A rule is asked for once for each attempt.
func TestServer_RetryDelays(t *testing.T) {
	minute := constantDelay(time.Minute)
	for name, test := range map[string]struct {
		config asynq.Config
		policy *RetryPolicy
		from   time.Duration
		more   time.Duration
	}{
		"asynq's":                       {idle, nil, 15 * time.Second, 30 * time.Second},
		"the program's":                 {retrying(idle, 10*time.Minute), nil, 10 * time.Minute, time.Second},
		"the rule's":                    {idle, minute, time.Minute, time.Second},
		"the rule's, not the program's": {retrying(idle, 10*time.Minute), minute, time.Minute, time.Second},
	} {
		asked := 0
		rule := func(*asynq.Task) (Rule, error) { asked++; return Rule{Retry: test.policy}, nil }
		virtual(t, settings{config: test.config, rule: rule, handle: returns(errors.New("boom"))}, func(t *testing.T, st *stack) {
			id := st.enqueueN(1, "", asynq.MaxRetry(1))[0]
			time.Sleep(15 * time.Second)
			st.wantRuns(1)
			delay := st.info(id).NextProcessAt.Sub(st.ran()[0].at) + time.Second // asynq cuts to seconds
			if delay < test.from || delay > test.from+test.more || asked != 1 {
				t.Errorf("%s: retried after %s, want %s; the rule was asked for %d times", name, delay, test.from, asked)
			}
		})
	}
	if _, ok := GetRule(t.Context()); ok {
		t.Error("a rule outside of a handler")
	}
}
