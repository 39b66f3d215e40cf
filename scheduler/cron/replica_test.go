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
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/redistest"
)

// jobQueue replaces asynq's queues: a job is done when it is enqueued, and its ID is taken only
// during its Retention. So only the rules under test prevent a second job.
type jobQueue struct {
	mu    sync.Mutex
	taken map[string]time.Time
	order []string
	opts  []asynq.Option
	tasks []*asynq.Task
}

func newJobQueue() *jobQueue {
	return &jobQueue{taken: map[string]time.Time{}}
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
	end func() // stops it and waits until it has

	skew   time.Duration                   // error of Redis's time as it sees it
	faults int                             // how many in 1000 calls fail
	calls  atomic.Int64                    // calls made so far
	dies   atomic.Int64                    // the call at which it dies, 0 for never
	lost   bool                            // whether the last call still has its effect
	stall  func(*asynq.Task) time.Duration // a wait just before it enqueues
	queue  enqueuer
	scope  string // the zero value for the default

	mu     sync.Mutex
	random *rand.Rand // decides on faults
}

// bubble is a Redis in virtual time, which begins at midnight of 1 January 2000 in UTC, and the
// replicas that use it.
type bubble struct {
	*testing.T
	m       *miniredis.Miniredis
	q       *jobQueue
	started []*replica
}

func inBubble(t *testing.T, f func(b *bubble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m, _ := redistest.Mini(t)
		f(&bubble{T: t, m: m, q: newJobQueue()})
	})
}

// start runs a replica of entries until it is ended.
func (b *bubble) start(prepare func(*replica), entries ...Entry) *replica {
	b.Helper()
	r := b.replica(prepare, entries...)
	ctx, stop := context.WithCancel(b.Context())
	done := make(chan error)
	go func() { done <- r.Run(ctx); close(done) }()
	r.end = func() { stop(); b.must(<-done) }
	b.started = append(b.started, r)
	return r
}

// replica is start without Run.
func (b *bubble) replica(prepare func(*replica), entries ...Entry) *replica {
	b.Helper()
	r := &replica{queue: b.q, random: rand.New(rand.NewPCG(1, 2))}
	if prepare != nil {
		prepare(r)
	}
	rdb := redistest.MiniClient(b, b.m)
	rdb.AddHook(redistest.Hook(r.around))
	r.Runner = New(rdb, r, Options{Scope: r.scope, Log: slog.New(slog.DiscardHandler)})
	b.must(r.Set(entries))
	return r
}

func (b *bubble) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// list returns the status of a replica's first entry.
func (b *bubble) list(r *replica) Status {
	b.Helper()
	list, err := r.List(b.Context(), 2)
	b.must(err)
	return list[0]
}

// wantTicks ends all replicas, and fails unless the ticks of hourly at these hours were enqueued.
func (b *bubble) wantTicks(hours ...int) { b.Helper(); b.wantIDs(sweepIDs(hours...)) }

func (b *bubble) wantIDs(want []string) {
	b.Helper()
	for _, r := range b.started {
		r.end()
	}
	if diff := cmp.Diff(want, b.q.ids()); diff != "" {
		b.Errorf("enqueued (-want +got):\n%s", diff)
	}
}

// hourly returns an entry for tests.
func hourly(change func(*Entry)) Entry {
	e := Entry{Name: "sweep", Cron: "0 * * * *", Type: "sweep:all"}
	if change != nil {
		change(&e)
	}
	return e
}

// sweepKey is the state of hourly.
const sweepKey = "hg:{default}:cron:sweep"

func sweepIDs(hours ...int) (ids []string) {
	for _, hour := range hours {
		ids = append(ids, fmt.Sprintf("sweep@%d", time.Date(2000, 1, 1, hour, 0, 0, 0, time.UTC).Unix()))
	}
	return ids
}

// until sleeps until a moment of the bubble's first days.
func until(hour, minute int) {
	time.Sleep(time.Until(time.Date(2000, 1, 1, hour, minute, 0, 0, time.UTC)))
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

func (r *replica) QueueOf(task *asynq.Task, opts ...asynq.Option) (string, error) {
	if queue, ok := r.queue.(queueFinder); ok {
		return queue.QueueOf(task, opts...)
	}
	for _, option := range opts {
		if option.Type() == asynq.QueueOpt {
			return option.Value().(string), nil
		}
	}
	return "default", nil
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
