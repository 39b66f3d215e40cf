package scheduler

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// asynqServer and asynqClient are what a program uses of either package.
type (
	asynqServer interface {
		Start(h asynq.Handler) error
		Run(h asynq.Handler) error
		Stop()
		Shutdown()
		Ping() error
	}
	asynqClient interface {
		Enqueue(task *asynq.Task, opts ...asynq.Option) (*asynq.TaskInfo, error)
		EnqueueContext(ctx context.Context, task *asynq.Task, opts ...asynq.Option) (*asynq.TaskInfo, error)
		Ping() error
		Close() error
	}
)

// program is an asynq program that uses much of what asynq has. It records what happens, but not
// when.
type program struct {
	t     *testing.T
	mu    sync.Mutex
	lines []string
	busy  atomic.Int32 // attempts of the task "busy"
}

func (p *program) note(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines = append(p.lines, fmt.Sprintf(format, args...))
}

// middleware records every attempt and its error.
func (p *program) middleware(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		retried, _ := asynq.GetRetryCount(ctx)
		most, _ := asynq.GetMaxRetry(ctx)
		err := next.ProcessTask(ctx, task)
		p.note("attempt %s %q %d of %d: %v", task.Type(), task.Payload(), retried, most, err)
		return err
	})
}

// report is the ErrorHandler of asynq's documentation.
func (p *program) report(ctx context.Context, task *asynq.Task, err error) {
	retried, _ := asynq.GetRetryCount(ctx)
	most, _ := asynq.GetMaxRetry(ctx)
	text, _, _ := strings.Cut(err.Error(), "[") // a panic's file and line
	p.note("error %s %d: %s, last %t, panic %t", task.Type(), retried, text, retried >= most, asynq.IsPanicError(err))
}

var errBusy = errors.New("busy")

func (p *program) mux() *asynq.ServeMux {
	mux := asynq.NewServeMux()
	mux.Use(p.middleware)
	mux.HandleFunc("fine", func(_ context.Context, task *asynq.Task) error {
		_, err := task.ResultWriter().Write([]byte("done"))
		return err
	})
	mux.HandleFunc("tick", func(context.Context, *asynq.Task) error { return nil })
	mux.HandleFunc("batch", func(context.Context, *asynq.Task) error { return nil })
	mux.HandleFunc("fails", func(context.Context, *asynq.Task) error { return errors.New("boom") })
	mux.HandleFunc("panics", func(context.Context, *asynq.Task) error { panic("help") })
	mux.HandleFunc("hangs", func(ctx context.Context, _ *asynq.Task) error { <-ctx.Done(); return ctx.Err() })
	mux.HandleFunc("skips", func(context.Context, *asynq.Task) error { return fmt.Errorf("bad input: %w", asynq.SkipRetry) })
	mux.HandleFunc("revokes", func(context.Context, *asynq.Task) error { return fmt.Errorf("not needed: %w", asynq.RevokeTask) })
	mux.HandleFunc("busy", func(context.Context, *asynq.Task) error {
		if p.busy.Add(1) < 4 {
			return errBusy
		}
		return nil
	})
	return mux
}

// warnings notes what asynq warns of, such as that a job's retries are exhausted: a denial is no such case.
type warnings struct {
	silent
	*program
}

func (w warnings) Warn(args ...any) { w.note("warning: %s", fmt.Sprint(args...)) }

func (p *program) config() asynq.Config {
	return asynq.Config{
		Concurrency: 3, Logger: warnings{program: p}, TaskCheckInterval: 500 * time.Millisecond,
		Queues:           map[string]int{"default": 1, "other": 2},
		ErrorHandler:     asynq.ErrorHandlerFunc(p.report),
		IsFailure:        func(err error) bool { return !errors.Is(err, errBusy) },
		RetryDelayFunc:   func(int, error, *asynq.Task) time.Duration { return 5 * time.Second },
		GroupGracePeriod: 3 * time.Second,
		GroupAggregator: asynq.GroupAggregatorFunc(func(_ string, tasks []*asynq.Task) *asynq.Task {
			var parts [][]byte
			for _, task := range tasks {
				parts = append(parts, task.Payload())
			}
			slices.SortFunc(parts, bytes.Compare)
			return asynq.NewTask("batch", bytes.Join(parts, []byte("+")))
		}),
	}
}

func (p *program) enqueue(client asynqClient) {
	add := func(typename, payload string, opts ...asynq.Option) {
		info, err := client.Enqueue(asynq.NewTask(typename, []byte(payload), asynq.MaxRetry(1)), opts...)
		if err != nil {
			p.note("enqueue %s: %v", typename, err)
			return
		}
		p.note("enqueue %s: %s with %d retries", typename, info.State, info.MaxRetry)
	}
	add("fine", "1", asynq.TaskID("fine"), asynq.Retention(time.Hour), asynq.MaxRetry(0))
	add("fine", "2", asynq.TaskID("fine"))
	add("fine", "3", asynq.TaskID("later"), asynq.ProcessIn(time.Minute), asynq.MaxRetry(0), asynq.Retention(time.Hour))
	add("fine", "4", asynq.TaskID("unique"), asynq.Unique(time.Hour), asynq.MaxRetry(0))
	add("fine", "4", asynq.TaskID("duplicate"), asynq.Unique(time.Hour))
	add("fails", "", asynq.TaskID("fails at once"), asynq.MaxRetry(0))
	add("fails", "", asynq.TaskID("fails"), asynq.MaxRetry(2))
	add("panics", "", asynq.TaskID("panics"))
	add("panics", "", asynq.TaskID("panics at once"), asynq.MaxRetry(0), asynq.Queue("other"))
	add("hangs", "", asynq.TaskID("hangs"), asynq.Timeout(2*time.Second))
	add("hangs", "", asynq.TaskID("hangs at once"), asynq.Timeout(2*time.Second), asynq.MaxRetry(0))
	add("skips", "", asynq.TaskID("skips"))
	add("revokes", "", asynq.TaskID("revokes"))
	add("busy", "", asynq.TaskID("busy"), asynq.Retention(time.Hour))
	for _, payload := range []string{"a", "b", "c"} {
		add("fine", payload, asynq.Group("letters"))
	}
}

// run runs the program for some minutes and returns its record, and then what asynq's Inspector
// shows of its jobs.
func (p *program) run(rdb redis.UniversalClient, server asynqServer, client asynqClient) []string {
	p.enqueue(client)
	periodic := asynq.NewSchedulerFromRedisClient(rdb, &asynq.SchedulerOpts{Logger: silent{}})
	if _, err := periodic.Register("@every 1m", asynq.NewTask("tick", nil), asynq.MaxRetry(0)); err != nil {
		p.t.Fatal(err)
	}
	for _, err := range []error{client.Ping(), server.Ping(), periodic.Start(), server.Start(p.mux())} {
		if err != nil {
			p.t.Fatal(err)
		}
	}
	time.Sleep(5*time.Minute + 30*time.Second)
	periodic.Shutdown()
	server.Stop()
	server.Shutdown()
	if err := server.Start(p.mux()); !errors.Is(err, asynq.ErrServerClosed) {
		p.t.Errorf("started again: %v, want ErrServerClosed", err)
	}
	p.inspect(asynq.NewInspectorFromRedisClient(rdb))
	slices.Sort(p.lines)
	return p.lines
}

func (p *program) inspect(tasks *asynq.Inspector) {
	for _, queue := range []string{"default", "other"} {
		q, err := tasks.GetQueueInfo(queue)
		if err != nil {
			p.t.Fatal(err)
		}
		p.note("queue %s: %d jobs, %d archived, %d completed, %d processed, %d failed", queue, q.Size, q.Archived, q.Completed, q.ProcessedTotal, q.FailedTotal)
		archived, _ := tasks.ListArchivedTasks(queue)
		completed, _ := tasks.ListCompletedTasks(queue)
		for _, info := range append(archived, completed...) {
			text, _, _ := strings.Cut(info.LastErr, "[")
			if info.State == asynq.TaskStateCompleted {
				text = "" // asynq keeps the last error, and so the last denial
			}
			p.note("%s is %s after %d of %d retries: %s %s", info.ID, info.State, info.Retried, info.MaxRetry, text, info.Result)
		}
	}
}

// TestDropIn: a program that replaces two constructors and adds rules behaves as before, whether or
// not the limits deny.
func TestDropIn(t *testing.T) {
	slow(t)
	build := func(t *testing.T, f func(rdb redis.UniversalClient, p *program) (asynqServer, asynqClient)) (lines []string) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			_, rdb := redistest.Mini(t)
			p := &program{t: t}
			server, client := f(rdb, p)
			lines = p.run(rdb, server, client)
		})
		return lines
	}
	plain := build(t, func(rdb redis.UniversalClient, p *program) (asynqServer, asynqClient) {
		return asynq.NewServerFromRedisClient(rdb, p.config()), plainClient{asynq.NewClientFromRedisClient(rdb)}
	})
	for _, test := range []struct {
		name  string
		rate  throttle.Rate
		least int // jobs that must be denied
	}{
		{"never denied", throttle.PerSecond(1000), 0},
		{"denied", throttle.PerSecond(1), 12},
	} {
		t.Run(test.name, func(t *testing.T) {
			var limiter *spy
			limited := build(t, func(rdb redis.UniversalClient, p *program) (asynqServer, asynqClient) {
				limiter = newSpy(rdb, throttle.Options{})
				rules := Rules{
					Limits:  []throttle.Limit{{Name: "api", Kind: throttle.Funnel, Rate: test.rate, Capacity: 1}},
					RuleFor: func(context.Context, *asynq.Task) (Rule, error) { return needs("api"), nil },
				}
				server, err := NewServer(rdb, rules, p.config(), withSpy(limiter), WithLogger(slog.New(slog.DiscardHandler)))
				if err != nil {
					t.Fatal(err)
				}
				return server, NewClient(rdb)
			})
			if diff := cmp.Diff(plain, limited); diff != "" {
				t.Errorf("plain asynq (-) and headgate (+) differ:\n%s", diff)
			}
			if denied := len(limiter.denials); denied < test.least {
				t.Errorf("%d jobs were denied, want %d or more: the test shows nothing", denied, test.least)
			}
		})
	}
}

// plainClient is asynq's client of a shared connection, which cannot be closed.
type plainClient struct{ *asynq.Client }

func (plainClient) Close() error { return nil }

// TestNewServer_AsynqsOptions: a program that has asynq's options for Redis gets a client from
// them, as the README says.
func TestNewServer_AsynqsOptions(t *testing.T) {
	opt := asynq.RedisClientOpt{Addr: "127.0.0.1:1"}
	rdb := opt.MakeRedisClient().(redis.UniversalClient)
	defer rdb.Close()
	newServer(t, rdb, nil, asynq.Config{})
}
