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

// A lostEnd loses the answer to the script by which a server ends its lease of the job "it".
// The server's client sends the script again.
type lostEnd struct {
	*stack
	between       func(l *lostEnd)
	taken         atomic.Bool    // whether the server has taken the job: it takes no other
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
	if strings.HasSuffix(keys[0], ":pending") && l.taken.Load() {
		cmd.SetErr(redis.Nil)
		return redis.Nil
	}
	err := next(ctx, cmd)
	c := asynqdb.Recognize(keys, args[3+len(keys):])
	if nothing := cmd.(*redis.Cmd).Val() == int64(0); !c.EndsLease || c.ID != "it" || err != nil || nothing || l.before != nil {
		return err
	}
	l.between(l)
	l.before = l.contents()
	err = next(ctx, cmd)
	l.after = l.contents()
	close(l.repeated)
	return err
}

// contents are what asynq keeps, but for the marks that wake servers.
func (l *lostEnd) contents() map[string]any {
	all := redistest.ContentsOf(l.t, l.rdb, asynqdb.Key("default", "*"))
	delete(all, markerKey("default"))
	return all
}

// grant makes the job pending, whatever became of it.
func (l *lostEnd) grant() {
	switch info, err := l.tasks.GetTaskInfo("default", "it"); {
	case errors.Is(err, asynq.ErrTaskNotFound):
		if _, err := l.client.Enqueue(asynq.NewTask("job", nil), asynq.TaskID("it")); err != nil {
			l.t.Error(err)
		}
	case err != nil:
		l.t.Error(err)
	case info.State != asynq.TaskStatePending:
		if err := l.tasks.RunTask("default", "it"); err != nil {
			l.t.Error(err)
		}
	}
}

// begin has another worker take the job.
func (l *lostEnd) begin() {
	l.grant()
	d := asynqdb.NewDequeue("default", time.Now().Add(asynqdb.LeaseTime).Unix(), false)
	if jobs, err := asynqdb.New(l.rdb).Dequeue(context.Background(), d, 1); err != nil || len(jobs) != 1 {
		l.t.Errorf("another worker took %v, %v", jobs, err)
	}
}

// end has another worker run the job.
func (l *lostEnd) end() {
	l.begin()
	ctx := context.Background()
	l.rdb.LRem(ctx, asynqdb.Key("default", asynqdb.Active), 0, "it")
	l.rdb.ZRem(ctx, asynqdb.Key("default", asynqdb.Lease), "it")
	l.rdb.Del(ctx, asynqdb.Hash("default", "it"))
}

// TestLostReply_EndOfLease: each script by which a server ends its lease of a job is sent again,
// because its answer got lost. The repeat changes nothing, whatever became of the job
// meanwhile: above all if another worker has it.
func TestLostReply_EndOfLease(t *testing.T) {
	const crashed = "by asynq's recoverer"
	says := func(err error) func(context.Context) error { return func(context.Context) error { return err } }
	ends := map[string]struct {
		opts     []asynq.Option
		handle   func(ctx context.Context) error
		shutdown bool
		forgiven int
	}{
		"done":                {handle: says(nil)},
		"done, unique":        {handle: says(nil), opts: []asynq.Option{asynq.Unique(time.Hour)}},
		"completed":           {handle: says(nil), opts: []asynq.Option{asynq.Retention(time.Hour)}},
		"completed, unique":   {handle: says(nil), opts: []asynq.Option{asynq.Retention(time.Hour), asynq.Unique(time.Hour)}},
		"failed":              {handle: says(errors.New("failed"))},
		"archived":            {handle: says(errors.New("failed")), opts: []asynq.Option{asynq.MaxRetry(0)}},
		"put back":            {handle: says(RetryAfter(time.Hour))},
		"given up":            {handle: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, shutdown: true},
		"forgiven " + crashed: {forgiven: 1},
		"failed " + crashed:   {},
		"archived " + crashed: {opts: []asynq.Option{asynq.MaxRetry(0)}},
	}
	between := map[string]func(l *lostEnd){
		"nothing": func(*lostEnd) {}, "granted": (*lostEnd).grant, "begun": (*lostEnd).begin, "ended": (*lostEnd).end,
	}
	for name, tt := range ends {
		for what, happens := range between {
			t.Run(name+"/"+what, func(t *testing.T) {
				redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
					ctx := t.Context()
					l := &lostEnd{between: happens, repeated: make(chan struct{})}
					opts := *rdb.(*redis.Client).Options()
					client := redis.NewClient(&opts)
					client.AddHook(redistest.Hook(l.around))
					l.stack = &stack{t: t, rdb: rdb, client: asynq.NewClientFromRedisClient(rdb), tasks: asynq.NewInspectorFromRedisClient(rdb)}
					_, err := l.client.Enqueue(asynq.NewTask("job", nil), append(slices.Clone(tt.opts), asynq.TaskID("it"))...)
					l.must(err)
					if tt.handle == nil { // a worker that died has it
						_, err := asynqdb.New(rdb).Dequeue(ctx, asynqdb.NewDequeue("default", time.Now().Add(-time.Hour).Unix(), false), 1)
						l.must(err)
						l.taken.Store(true)
					}
					began := make(chan struct{}, 1)
					st := start(t, client, settings{
						config: asynq.Config{
							Concurrency: 1, ShutdownTimeout: time.Millisecond,
							RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Hour },
						},
						options: []Option{WithForgivenCrashes(tt.forgiven), WithPolling()},
						rule:    func(*asynq.Task) (Rule, error) { return Rule{}, nil },
						handle: func(ctx context.Context, _ *asynq.Task) error {
							l.taken.Store(true)
							began <- struct{}{}
							return tt.handle(ctx)
						},
					})
					if tt.shutdown {
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
