package scheduler

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/testutil/redistest"
)

// lostEnd loses the reply to the script by which a server ends its lease of the job "it". The
// server's client sends the script again.
type lostEnd struct {
	*stack
	between       func()         // what happens to the job before the repeat
	fetched       atomic.Bool    // whether the server has fetched the job: it fetches no other
	before, after map[string]any // what asynq keeps, without the repeat and with it
	repeated      chan struct{}
}

func (l *lostEnd) around(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	args := cmd.Args()
	if cmd.Name() != "evalsha" && cmd.Name() != "eval" {
		return next(ctx, cmd)
	}
	var keys []string
	for _, key := range args[3 : 3+args[2].(int)] {
		keys = append(keys, key.(string))
	}
	if strings.HasSuffix(keys[0], ":pending") && l.fetched.Load() {
		cmd.SetErr(redis.Nil)
		return redis.Nil
	}
	err := next(ctx, cmd)
	c := asynqdb.Recognize(keys, args[3+len(keys):])
	if nothing := cmd.(*redis.Cmd).Val() == int64(0); !c.EndsLease || c.ID != "it" || err != nil || nothing || l.before != nil {
		return err
	}
	l.between()
	l.before = l.contents()
	err = next(ctx, cmd)
	l.after = l.contents()
	close(l.repeated)
	return err
}

// contents are what asynq keeps, without what tells servers when to look.
func (l *lostEnd) contents() map[string]any {
	all := redistest.ContentsOf(l.t, l.rdb, asynqdb.Key("default", "*"))
	delete(all, markerKey("default"))
	delete(all, asynqdb.Key("default", asynqdb.Walked))
	return all
}

// fetch makes the job pending, whatever became of it, and has another worker fetch it.
func (l *lostEnd) fetch() {
	switch info, err := l.tasks.GetTaskInfo("default", "it"); {
	case errors.Is(err, asynq.ErrTaskNotFound):
		l.enqueue(asynq.NewTask("job", nil), asynq.TaskID("it"))
	case err != nil:
		l.t.Error(err)
	case info.State != asynq.TaskStatePending:
		l.must(l.tasks.RunTask("default", "it"))
	}
	d := asynqdb.NewDequeue("default", time.Now().Add(asynqdb.LeaseTime).Unix(), false)
	if jobs, err := asynqdb.New(l.rdb).Dequeue(context.Background(), d, 1); err != nil || len(jobs) != 1 {
		l.t.Errorf("another worker fetched %v, %v", jobs, err)
	}
}

// TestLostReply_EndOfLease: each script of asynq's by which a server ends its lease of a job is
// sent again, because its reply got lost. The repeat changes nothing, also if another worker has
// the job by then. The scripts of package asynqdb have such a test of their own.
func TestLostReply_EndOfLease(t *testing.T) {
	t.Parallel()
	opts := func(o ...asynq.Option) []asynq.Option { return o }
	failed := returns(errors.New("failed"))
	for name, test := range map[string]struct {
		opts     []asynq.Option
		handle   func(ctx context.Context, _ *asynq.Task) error // nil: a worker that died has the job
		shutdown bool
	}{
		"done":                  {handle: returns(nil)},
		"done, unique":          {handle: returns(nil), opts: opts(asynq.Unique(time.Hour))},
		"completed":             {handle: returns(nil), opts: opts(asynq.Retention(time.Hour))},
		"completed, unique":     {handle: returns(nil), opts: opts(asynq.Retention(time.Hour), asynq.Unique(time.Hour))},
		"failed":                {handle: failed},
		"archived":              {handle: failed, opts: opts(asynq.MaxRetry(0))},
		"given up":              {handle: func(ctx context.Context, _ *asynq.Task) error { <-ctx.Done(); return ctx.Err() }, shutdown: true},
		"failed by recoverer":   {},
		"archived by recoverer": {opts: opts(asynq.MaxRetry(0))},
	} {
		for _, fetched := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", fetched again"}[fetched], func(t *testing.T) {
				redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
					l := &lostEnd{between: func() {}, repeated: make(chan struct{})}
					if fetched {
						l.between = l.fetch
					}
					options := *rdb.(*redis.Client).Options()
					client := redis.NewClient(&options)
					client.AddHook(redistest.Hook(l.around))
					t.Cleanup(func() { _ = client.Close() })
					l.stack = &stack{t: t, rdb: rdb}
					l.connect(rdb)
					l.enqueue(asynq.NewTask("job", nil), append(slices.Clone(test.opts), asynq.TaskID("it"))...)
					if test.handle == nil {
						_, err := asynqdb.New(rdb).Dequeue(t.Context(), asynqdb.NewDequeue("default", time.Now().Add(-time.Hour).Unix(), false), 1)
						l.must(err)
						l.fetched.Store(true)
					}
					began := make(chan struct{}, 1)
					st := start(t, client, settings{
						config:  retrying(asynq.Config{Concurrency: 1, ShutdownTimeout: time.Millisecond}, time.Hour),
						options: []Option{unforgiven, polling},
						rule:    always(Rule{}),
						handle: func(ctx context.Context, task *asynq.Task) error {
							l.fetched.Store(true)
							began <- struct{}{}
							return test.handle(ctx, task)
						},
					})
					if test.shutdown {
						<-began
						st.server.Shutdown()
					}
					<-l.repeated
					if diff := cmp.Diff(l.before, l.after); diff != "" {
						t.Errorf("the repeat changed what asynq keeps: before (-), after (+)\n%s", diff)
					}
				})
			})
		}
	}
}
