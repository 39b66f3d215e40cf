package cron

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/redistest"
)

// jobQueue replaces asynq's queues: a job is done when it is enqueued, and its ID is taken only
// during its Retention. So only the rules under test prevent a second job.
type jobQueue struct {
	mu    sync.Mutex
	taken map[string]time.Time
	added map[string]int
	order []string
	opts  []asynq.Option
	tasks []*asynq.Task
}

func newJobQueue() *jobQueue {
	return &jobQueue{taken: map[string]time.Time{}, added: map[string]int{}}
}

func (q *jobQueue) EnqueueContext(_ context.Context, task *asynq.Task, opts ...asynq.Option) (*asynq.TaskInfo, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var id string
	var retention time.Duration
	for _, option := range opts {
		switch option.Type() {
		case asynq.TaskIDOpt:
			id = option.Value().(string)
		case asynq.RetentionOpt:
			retention = option.Value().(time.Duration)
		}
	}
	if time.Now().Before(q.taken[id]) {
		return nil, asynq.ErrTaskIDConflict
	}
	q.taken[id] = time.Now().Add(retention)
	q.added[id]++
	q.order = append(q.order, id)
	q.opts, q.tasks = opts, append(q.tasks, task)
	return &asynq.TaskInfo{ID: id}, nil
}

// ids returns the IDs of the jobs, in order.
func (q *jobQueue) ids() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return append([]string(nil), q.order...)
}

var errInjected = errors.New("injected")

// replica is a Runner with a Redis client and an enqueuer that can fail, die and see another time.
type replica struct {
	*Runner
	stop context.CancelFunc
	done chan struct{}

	skew   time.Duration                   // error of Redis's time as it sees it
	faults int                             // how many in 1000 calls fail
	calls  atomic.Int64                    // calls made so far
	dies   atomic.Int64                    // the call at which it dies, 0 for never
	lost   bool                            // whether the last call still has its effect
	stall  func(*asynq.Task) time.Duration // a wait just before it enqueues
	queue  Enqueuer
	scope  string // the zero value for the default

	mu     sync.Mutex
	random *rand.Rand // decides on faults
}

// startReplica runs a replica of entries until it is stopped.
func startReplica(t testing.TB, m *miniredis.Miniredis, q Enqueuer, entries []Entry, prepare func(*replica)) *replica {
	t.Helper()
	r := newReplica(t, m, q, entries, prepare)
	ctx, stop := context.WithCancel(t.Context())
	r.stop, r.done = stop, make(chan struct{})
	go func() {
		defer close(r.done)
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	return r
}

// newReplica is startReplica without Run.
func newReplica(t testing.TB, m *miniredis.Miniredis, q Enqueuer, entries []Entry, prepare func(*replica)) *replica {
	t.Helper()
	r := &replica{queue: q, random: rand.New(rand.NewPCG(1, 2))}
	if prepare != nil {
		prepare(r)
	}
	rdb := redistest.MiniClient(t, m)
	rdb.AddHook(redistest.Hook(r.around))
	r.Runner = New(rdb, r, Options{Scope: r.scope, Log: slog.New(slog.DiscardHandler)})
	if err := r.Set(entries); err != nil {
		t.Fatal(err)
	}
	return r
}

// end stops the replica and waits until it has.
func (r *replica) end() {
	r.stop()
	<-r.done
}

// call makes a call with the faults of the replica.
func (r *replica) call(do func() error) error {
	n, dies := r.calls.Add(1), r.dies.Load()
	if dies > 0 && n >= dies {
		if n == dies && r.lost {
			_ = do()
		}
		return errInjected
	}
	fails := r.roll(1000) < r.faults
	if fails && r.roll(2) == 0 {
		return errInjected
	}
	if err := do(); err != nil {
		return err
	}
	if fails {
		return errInjected
	}
	return nil
}

func (r *replica) roll(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.random.IntN(n)
}

func (r *replica) EnqueueContext(ctx context.Context, task *asynq.Task, opts ...asynq.Option) (info *asynq.TaskInfo, err error) {
	if r.stall != nil {
		time.Sleep(r.stall(task))
	}
	err = r.call(func() error {
		info, err = r.queue.EnqueueContext(ctx, task, opts...)
		return err
	})
	return info, err
}

func (r *replica) around(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	if cmd.Name() == "hello" || cmd.Name() == "client" {
		return next(ctx, cmd) // a new connection
	}
	err := r.call(func() error { return next(ctx, cmd) })
	if err != nil {
		cmd.SetErr(err)
		return err
	}
	r.shiftTime(cmd)
	return nil
}

// shiftTime adds the skew to Redis's time as the replica sees it.
func (r *replica) shiftTime(cmd redis.Cmder) {
	script, ok := cmd.(*redis.Cmd)
	if !ok {
		return
	}
	if reply, err := script.Slice(); err == nil && len(reply) > 0 {
		if micros, err := strconv.ParseInt(fmt.Sprint(reply[0]), 10, 64); err == nil {
			reply[0] = strconv.FormatInt(micros+r.skew.Microseconds(), 10)
			script.SetVal(reply)
		}
	}
}
