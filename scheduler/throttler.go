package scheduler

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/throttle"
)

// Action is what becomes of a job that cannot have its permits.
type Action int

// The actions. Archive is the zero value.
const (
	Archive Action = iota // keep it in asynq's archive, with the reason
	Drop                  // delete it
	Run                   // run it without a permit
)

// Rule is what one job needs before it runs. The zero value needs nothing.
type Rule struct {
	Needs    []throttle.Need
	Priority throttle.Priority
	// MaxWait is how long the job may wait for its permits; the zero value
	// means any time. OnMaxWait is what becomes of a job that would wait
	// longer, or past its own deadline.
	MaxWait   time.Duration
	OnMaxWait Action
	// OnNoLimit is what becomes of a job whose limit does not exist.
	OnNoLimit Action
	// Retry spaces the attempts of a job that fails. The zero value is
	// RetryPolicy's.
	Retry RetryPolicy
}

// Rules finds the rule of a task. A task for which it fails is archived with
// that error; it never runs unlimited.
type Rules func(ctx context.Context, task *asynq.Task) (Rule, error)

// Limiter is what the scheduler asks for permits. *throttle.Redis is one.
type Limiter interface {
	Acquire(ctx context.Context, job throttle.Job, needs ...throttle.Need) (throttle.Decision, error)
	Extend(ctx context.Context, holder string, needs ...throttle.Need) (bool, error)
	Free(ctx context.Context, holder string, needs ...throttle.Need) error
	Pump(ctx context.Context, process string, grant, ahead time.Duration) (called []throttle.Called, next time.Duration, active bool, err error)
	StopPump(ctx context.Context, process string) error
	Forget(ctx context.Context, jobs ...string) error
	Wakes(ctx context.Context) *redis.PubSub
}

// Options are optional: the zero value is right for most programs.
type Options struct {
	// Logger hears about outages and lost leases. The zero value means
	// slog.Default.
	Logger *slog.Logger
	// NoRelease leaves it to asynq's own polls to bring denied jobs back. Then
	// they come seconds late, and a job may be denied more than once.
	NoRelease bool
	// PumpInterval is the least time between two rounds of calling jobs back:
	// longer is cheaper, shorter is sooner. The zero value means 5 ms.
	PumpInterval time.Duration
}

// Throttler makes the jobs of asynq servers obey limits. Use its Config and
// its Middleware together. It is safe for concurrent use.
type Throttler struct {
	limiter  Limiter
	rules    Rules
	log      *slog.Logger
	interval time.Duration
	process  string
	client   *asynq.Client
	tasks    *asynq.Inspector
	releaser releaser
	release  atomic.Bool  // whether called jobs can be moved, and so come in time
	grant    atomic.Int64 // how long permits are kept for a called job
	down     atomic.Bool  // whether the limiter was unavailable when last asked
	stopped  <-chan struct{}
	stop     context.CancelFunc
	done     sync.WaitGroup
}

// New starts calling waiting jobs back, until Close. rdb is the Redis of the
// asynq queues; the limiter may live in another.
func New(rdb redis.UniversalClient, limiter Limiter, rules Rules, opts Options) *Throttler {
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	if opts.PumpInterval <= 0 {
		opts.PumpInterval = 5 * time.Millisecond
	}
	ctx, stop := context.WithCancel(context.Background())
	t := &Throttler{
		limiter: limiter, rules: rules, log: opts.Logger, interval: opts.PumpInterval,
		process: uuid.NewString(), client: asynq.NewClientFromRedisClient(rdb),
		tasks: asynq.NewInspectorFromRedisClient(rdb), releaser: releaser{rdb}, stopped: ctx.Done(), stop: stop,
	}
	t.release.Store(!opts.NoRelease)
	t.grant.Store(int64(minGrant))
	t.done.Go(func() { t.pump(ctx) })
	return t
}

// Close stops calling jobs back and lets another process take over at once.
// Jobs that wait then stay in asynq's retry set. Call it after the server's
// Shutdown: what still runs keeps its leases only until they end.
func (t *Throttler) Close() error {
	t.stop()
	t.done.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return t.limiter.StopPump(ctx, t.process)
}

// note logs the start and the end of an outage of the limiter once each.
func (t *Throttler) note(err error) {
	switch {
	case errors.Is(err, context.Canceled):
	case err != nil && !t.down.Swap(true):
		t.log.Error("limiter unavailable; jobs wait", "error", err)
	case err == nil && t.down.Load() && t.down.Swap(false):
		t.log.Info("limiter available again; jobs go on")
	}
}
