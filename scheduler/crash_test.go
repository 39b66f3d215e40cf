package scheduler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// A process can be killed: from then on nothing that it does reaches Redis.
type process struct {
	*stack
	killed  chan struct{}
	kill    func()
	removed chan struct{} // closed when the test ends
}

// startProcess starts a worker process whose jobs run handle.
func startProcess(t *testing.T, m *miniredis.Miniredis, s settings, handle func(p *process) error) *process {
	t.Helper()
	p := &process{killed: make(chan struct{}), removed: make(chan struct{})}
	p.kill = sync.OnceFunc(func() { close(p.killed) })
	t.Cleanup(func() { time.Sleep(time.Second) }) // the client of one that is killed tries again before it ends
	rdb := redistest.MiniClient(t, m)
	rdb.AddHook(p)
	s.handle = func(context.Context, *asynq.Task) error { return handle(p) }
	p.stack = start(t, rdb, s)
	t.Cleanup(func() { close(p.removed) })
	return p
}

// die kills the process in the midst of a job.
func (p *process) die() error {
	p.kill()
	<-p.removed
	return nil
}

func (p *process) DialHook(next redis.DialHook) redis.DialHook { return next }

func (p *process) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return p.reach(func() error { return next(ctx, cmds) })
	}
}

func (p *process) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return p.reach(func() error { return next(ctx, cmd) })
	}
}

func (p *process) reach(redis func() error) error {
	select {
	case <-p.killed:
		<-p.removed
		return errors.New("the process was killed")
	default:
		return redis()
	}
}

// The first crashes of its worker cost a job nothing, on its last attempt too.
// After them each counts, so a job that kills its workers ends in the archive.
func TestCrashes(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	tests := []struct {
		name     string
		maxRetry int
		options  []Option
		deaths   int // processes that the job kills if it can
		runs     int
		archived bool
	}{
		{"one, on the last attempt", 0, nil, 1, 2, false},
		{"as many as are forgiven, on the last attempt", 0, nil, 3, 4, false},
		{"one more, on the last attempt", 0, nil, 100, 4, true},
		{"all, with retries", 3, nil, 100, 3 + 4, true},
		{"all, and none is forgiven", 1, []Option{WithForgivenCrashes(0)}, 100, 2, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, rdb := redistest.Mini(t)
				config := idle
				config.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return time.Second }
				s := settings{config: config, limits: []throttle.Limit{perMinute(60, 10)}, options: test.options}
				_, err := asynq.NewClientFromRedisClient(rdb).Enqueue(asynq.NewTask("job", nil), asynq.TaskID("it"), asynq.MaxRetry(test.maxRetry), asynq.Unique(time.Minute))
				if err != nil {
					t.Fatal(err)
				}
				var runs atomic.Int32
				for range test.runs + 2 {
					p := startProcess(t, m, s, func(p *process) error {
						if int(runs.Add(1)) <= test.deaths {
							return p.die()
						}
						return nil
					})
					time.Sleep(4 * time.Minute)
					p.mu.Lock()
					if len(p.reported) != 0 { // asynq's recoverer does not report either
						t.Errorf("reported: %v", p.reported)
					}
					p.mu.Unlock()
				}
				if int(runs.Load()) != test.runs {
					t.Errorf("ran %d times, want %d", runs.Load(), test.runs)
				}
				info, err := asynq.NewInspectorFromRedisClient(rdb).GetTaskInfo("default", "it")
				switch {
				case !test.archived && !errors.Is(err, asynq.ErrTaskNotFound) && !errors.Is(err, asynq.ErrQueueNotFound):
					t.Errorf("job: %+v, %v; want done", info, err)
				case test.archived && (err != nil || info.State != asynq.TaskStateArchived || !strings.Contains(info.LastErr, "its worker died")):
					t.Errorf("job: %+v, %v; want archived, and why", info, err)
				}
			})
		})
	}
}

// A job that its handler puts back spends no attempt, whichever it is on.
func TestRetryAfter(t *testing.T) {
	for _, maxRetry := range []int{0, 3} {
		t.Run(fmt.Sprint("max retry ", maxRetry), func(t *testing.T) {
			runs := 0
			handle := func(context.Context, *asynq.Task) error {
				if runs++; runs <= 3 {
					return fmt.Errorf("no room at the inn: %w", RetryAfter(90*time.Second))
				}
				return nil
			}
			virtual(t, settings{limits: []throttle.Limit{perMinute(60, 10)}, handle: handle}, func(t *testing.T, st *stack) {
				began := time.Now()
				id := st.enqueue(asynq.NewTask("job", nil, asynq.MaxRetry(maxRetry), asynq.Retention(time.Hour), asynq.Unique(30*time.Second)))
				time.Sleep(time.Minute)
				info := st.info(id)
				if info.State != asynq.TaskStateRetry || info.Retried != 0 || info.LastErr != "no room at the inn: retry after 1 min 30 s" {
					t.Errorf("after its first run: %+v, want put back, in these words", info)
				}
				if _, err := st.client.Enqueue(asynq.NewTask("job", nil), asynq.Unique(time.Second)); !errors.Is(err, asynq.ErrDuplicateTask) {
					t.Errorf("a second of it while it waits: %v, want ErrDuplicateTask", err)
				}
				time.Sleep(10 * time.Minute)
				if info = st.info(id); info.State != asynq.TaskStateCompleted || info.Retried != 0 {
					t.Errorf("in the end: %+v, want completed without a failure", info)
				}
				ran := st.ran()
				if len(ran) != 4 {
					t.Fatalf("ran %v, want 4 times", ran)
				}
				if took := ran[3].at.Sub(began); took < 3*90*time.Second {
					t.Errorf("4 runs within %s, want 90 s between two", took)
				}
				if len(st.reported) != 0 {
					t.Errorf("reported: %v", st.reported)
				}
			})
		})
	}
}

// A job that is put back for no time comes at once, not with asynq's next poll,
// and in front of those that have come since.
func TestRetryAfterNoTime(t *testing.T) {
	runs := 0
	handle := func(context.Context, *asynq.Task) error {
		if runs++; runs <= 3 {
			return RetryAfter(0)
		}
		return nil
	}
	fast := asynq.Config{Concurrency: 1}
	virtual(t, settings{config: fast, limits: []throttle.Limit{perMinute(60, 100)}, handle: handle}, func(t *testing.T, st *stack) {
		first := st.enqueue(NewTask("job", nil, asynq.MaxRetry(0)))
		st.enqueue(NewTask("job", nil, asynq.MaxRetry(0)))
		time.Sleep(10 * time.Second)
		ran := st.ran()
		if len(ran) != 5 || ran[3].id != first {
			t.Fatalf("ran %v, want the first job 4 times and then the other", ran)
		}
		if took := ran[3].at.Sub(ran[0].at); took > 100*time.Millisecond {
			t.Errorf("4 runs within %s, want no wait between them", took)
		}
		st.wantClean()
	})
}

// A job that goes on with another payload is the same job: its permits are
// those of the new payload, and nothing else of it changes.
func TestPutBackAs(t *testing.T) {
	var asked, ran []string
	rule := func(task *asynq.Task) (Rule, error) {
		asked = append(asked, string(task.Payload()))
		return Rule{Needs: []throttle.Need{{Limit: "api", Key: string(task.Payload())}}}, nil
	}
	handle := func(_ context.Context, task *asynq.Task) error {
		ran = append(ran, string(task.Payload()))
		if len(ran) == 1 {
			return fmt.Errorf("%w: it is at b now: %w", asynq.SkipRetry, PutBackAs([]byte("b")))
		}
		return nil
	}
	// One permit an hour for each key: under a's the second run would wait.
	hourly := throttle.Limit{Name: "api", Kind: throttle.Funnel, Rate: throttle.Every(time.Hour)}
	virtual(t, settings{limits: []throttle.Limit{hourly}, rule: rule, handle: handle}, func(t *testing.T, st *stack) {
		id := st.enqueue(asynq.NewTask("job", []byte("a"), asynq.MaxRetry(0), asynq.Retention(time.Hour), asynq.Timeout(time.Minute)))
		time.Sleep(2 * time.Minute)
		info := st.info(id)
		if info == nil || info.State != asynq.TaskStateCompleted || info.Retried != 0 || info.MaxRetry != 0 || info.Timeout != time.Minute {
			t.Fatalf("in the end: %+v, want completed with its options", info)
		}
		if got := fmt.Sprintf("%s %s %s", asked, ran, info.Payload); got != "[a b] [a b] b" {
			t.Errorf("asked, ran, payload: %s", got)
		}
		if len(st.reported) != 0 {
			t.Errorf("reported: %v", st.reported)
		}
	})
}
