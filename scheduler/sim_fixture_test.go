package scheduler

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/testutil/turnstest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// sim is one random world: limits, lanes, jobs, processes, and what happened.
type sim struct {
	t    *testing.T
	seed uint64
	simIngredients
	rand      *rand.Rand
	limiter   *miniredis.Miniredis
	clock     *simClock   // the limiter's
	deaf      atomic.Bool // words to who gives turns get lost
	hung      gate        // of the limiter's Redis
	stalled   gate        // of asynq's
	wires     wires       // to it
	queues    *miniredis.Miniredis
	limits    []throttle.Limit
	slow      *throttle.Limit // so slow that its jobs wait for minutes; in most worlds none is
	lanes     []*simLane
	processes []*simProcess
	direct    []*simCaller
	hand      *stack // of the operator; its server takes no jobs
	config    asynq.Config
	handlers  sync.WaitGroup // that have not returned

	mu      sync.Mutex
	began   time.Time
	history turnstest.History
	jobs    map[string]*simJob
	meters  map[string][]*admission
	events  []simEvent
	busy    time.Time // when all workers were last at work
	flushed time.Time // when the limiter's data were lost
	calm    time.Time // when the last trouble so far is healed
	worst   float64   // wait of a lane, in rounds
	broken  []simBreak
	turned  []simTurn
	shuts   []simShut
}

// simProcess dies, or loses answers, some calls after it was told to.
type simProcess struct {
	*stack
	*fuse
	index   int
	running int // handlers
	doomed  int // dies at so many calls from now; 0 where it lives on
	lossy   int // answers to lose
	leaves  bool
	hangs   gate
	since   time.Time // that it lives, and does not hang
}

func newSim(t *testing.T, seed uint64) *sim {
	w := &sim{t: t, seed: seed, simIngredients: newIngredients(seed), rand: rand.New(rand.NewPCG(seed, 2)), jobs: map[string]*simJob{}, meters: map[string][]*admission{}, began: time.Now()}
	w.history.Tell = true
	t.Cleanup(w.handlers.Wait) // the last: asynq has given some up, and the clock stands still once all has ended
	w.limiter, _ = redistest.Mini(t)
	w.clock = &simClock{redis: w.limiter}
	w.queues, _ = redistest.Mini(t)
	for i := range between(w.rand, 1, 4) {
		w.limits = append(w.limits, w.limit(fmt.Sprintf("limit%d", i)))
	}
	if w.rand.IntN(4) == 0 && w.limits[0].Kind != throttle.Concurrency {
		w.limits[0].Rate = throttle.PerMinute(between(w.rand, 3, 6))
		w.slow = &w.limits[0]
	}
	for i := range between(w.rand, 1, 6) {
		w.lanes = append(w.lanes, w.lane(i))
	}
	w.config = asynq.Config{
		Concurrency: between(w.rand, 2, 6), TaskCheckInterval: 50 * time.Millisecond,
		Queues:         map[string]int{"one": between(w.rand, 1, 3), "two": between(w.rand, 1, 3)},
		StrictPriority: w.has(strict),
		// asynq's own is left to chance.
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 2 * time.Second },
	}
	for range between(w.rand, 1, 3) {
		w.startProcess()
	}
	client, limiter := redistest.MiniClient(t, w.queues), redistest.MiniClient(t, w.limiter)
	limiter.AddHook(w.clock)
	w.hand = &stack{t: t, rdb: client, client: asynq.NewClientFromRedisClient(client), tasks: asynq.NewInspectorFromRedisClient(client)}
	w.hand.limits = limiter
	w.hand.limiter = &spy{DB: waitdb.New(throttle.New(w.hand.limits, throttle.Options{}))}
	w.hookLimiter()
	return w
}

var kinds = []throttle.Kind{
	throttle.Funnel, throttle.TokenBucket, throttle.FixedWindow, throttle.SlidingLog, throttle.SlidingWindow, throttle.Concurrency,
}

// limit makes one up, of any kind: none is so slow that the world would not end.
func (w *sim) limit(name string) throttle.Limit {
	l := throttle.Limit{Name: name, Kind: kinds[w.rand.IntN(len(kinds))]}
	switch l.Kind {
	case throttle.Concurrency:
		l.Capacity, l.Lease = between(w.rand, 1, 4), 10*time.Second
	case throttle.Funnel, throttle.TokenBucket:
		l.Rate, l.Capacity = throttle.PerSecond(between(w.rand, 3, 40)), between(w.rand, 1, 8)
	default:
		l.Rate = throttle.PerSecond(between(w.rand, 3, 40))
	}
	if w.has(costs) { // dear jobs are many permits
		if l.Rate.N *= 2; l.Capacity > 0 {
			l.Capacity *= 8
		}
	}
	return l
}

// capacityOf is the most permits that a limit gives at once.
func capacityOf(l throttle.Limit) int {
	if l.Capacity > 0 {
		return l.Capacity
	}
	return l.Rate.N
}

// startProcess starts one more. Its config is the first: what another has defined since is
// replaced.
func (w *sim) startProcess() {
	for i, limit := range w.limits {
		if w.redefined(limit) {
			w.note(simEvent{kind: "limits redefined", text: fmt.Sprintf("limit %s is %s again", limit.Name, limit), limit: &w.limits[i], whose: lanesOf(limit.Name)})
		}
	}
	p := &simProcess{index: len(w.processes), since: time.Now()}
	p.fuse = newFuse(func(redis.Cmder) bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		p.doomed = max(p.doomed-1, min(p.doomed, 1))
		return p.doomed == 1
	})
	queues, limiter := redistest.MiniClient(w.t, w.queues), redistest.MiniClient(w.t, w.limiter)
	limiter.AddHook(w.clock)
	limiter.AddHook(&w.wires)
	for _, rdb := range []redis.UniversalClient{queues, limiter} {
		rdb.AddHook(&p.hangs)
		rdb.AddHook(p.fuse)
		rdb.AddHook(redistest.Hook((&loser{w, p}).around))
	}
	queues.AddHook(redistest.Hook((&teller{w, p}).around))
	limiter.AddHook(redistest.Hook((&teller{w, p}).around))
	p.stack = start(w.t, queues, settings{
		config: w.config, redis: limiter, limits: w.limits, rule: w.rule, asked: w.asked, freed: w.freed,
		handle: func(ctx context.Context, task *asynq.Task) error { return w.handle(ctx, p, string(task.Payload())) },
	})
	p.stack.limiter.limited = w.limited
	w.t.Cleanup(func() { close(p.released) })
	w.processes = append(w.processes, p)
}

func (w *sim) now() int64 { return time.Since(w.began).Microseconds() }

// A loser loses answers: the command is carried out and its answer gets lost, or the caller has
// sent it sends it again a while later, as go-redis does.
type loser struct {
	w *sim
	p *simProcess
}

func (l *loser) around(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	err := next(ctx, cmd)
	l.w.mu.Lock()
	lost := l.p.lossy
	if lost > 0 && err == nil && strings.HasPrefix(cmd.Name(), "eval") {
		l.p.lossy--
	} else {
		lost = 0
	}
	l.w.mu.Unlock()
	switch {
	case lost == 0:
		return err
	case lost%2 == 0:
		time.Sleep(milliseconds(500 * lost))
		return next(ctx, cmd)
	}
	cmd.SetErr(errLost)
	return errLost
}
