package scheduler

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/limittest"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/testutil/turnstest"
	"github.com/headgate/headgate/throttle"
)

// ingredient is something that only some worlds have.
type ingredient string

const (
	costs       ingredient = "costs"        // the jobs of one lane cost from 1 to all that its limits give at once
	answers     ingredient = "answers"      // handlers get a 429, fail, and put jobs back
	patience    ingredient = "patience"     // jobs have a MaxWait or a Deadline
	timeouts    ingredient = "timeouts"     // and a Timeout, which some of them outlive
	locks       ingredient = "locks"        // jobs are Unique
	callers     ingredient = "callers"      // callers take permits without a queue
	strict      ingredient = "strict"       // one queue goes before the other
	rules       ingredient = "rules"        // what the jobs of a lane need changes
	changes     ingredient = "changes"      // operators set and unset keys, block them, reset meters and redefine limits
	outages     ingredient = "outages"      // the limiter and processes hang, others leave
	replicas    ingredient = "replicas"     // a replica takes over that lacks the last writes
	corruptions ingredient = "corruptions"  // records of the scope are changed by hand
	fairness    ingredient = "fairness"     // jobs have fairness keys
	writeBacks  ingredient = "write-backs"  // replies to write-backs get lost, and the next attempts of these jobs take minutes
	leases      ingredient = "leases"       // the leases of slots change, and some jobs outlast them
	settling    ingredient = "settling"     // jobs settle what they cost, and their meters are reset or lost meanwhile; makes jobs dear
	latePackets ingredient = "late packets" // first sendings of scripts arrive after their repeats
)

var ingredients = []ingredient{costs, answers, patience, timeouts, locks, callers, strict, rules, changes, outages, replicas, corruptions, fairness, writeBacks, leases, settling, latePackets}

// simIngredients are what a world is made of.
type simIngredients []ingredient

// newIngredients leaves a third of all worlds plain, because how long lanes wait is judged best
// there, and gives each other world a third of the ingredients.
func newIngredients(seed uint64) (m simIngredients) {
	r := rand.New(rand.NewPCG(seed, 11))
	if r.IntN(3) == 0 {
		return nil
	}
	for _, i := range ingredients {
		if r.IntN(3) == 0 {
			m = append(m, i)
		}
	}
	if m.has(callers) { // which ask for slots all the time that jobs outlast their leases: such a world takes too long
		m = slices.DeleteFunc(m, func(i ingredient) bool { return i == leases })
	}
	if m.has(settling) && !m.has(costs) { // jobs of one permit would give back too little to see
		m = append(m, costs)
	}
	return m
}

func (m simIngredients) has(i ingredient) bool { return slices.Contains(m, i) }

// sim is one random world: limits, lanes, jobs, processes, and what happened.
type sim struct {
	t    *testing.T
	seed uint64
	simIngredients
	rand        *rand.Rand
	queues      *miniredis.Miniredis
	limiter     *miniredis.Miniredis
	clock       *simClock   // the limiter's
	muted       atomic.Bool // notifications to the dispatcher get lost
	queuesGate  gate        // of asynq's Redis
	limiterGate gate        // of the limiter's
	wires       wires       // to it
	limits      []throttle.Limit
	slow        *throttle.Limit // so slow that its jobs wait for minutes; nil in most worlds
	lanes       []*simLane
	processes   []*simProcess
	callers     []*simCaller
	operator    *stack // its server takes no jobs
	config      asynq.Config
	handlers    sync.WaitGroup // that have not returned
	late        lateness
	began       time.Time

	mu      sync.Mutex
	history turnstest.History
	jobs    map[string]*simJob
	meters  map[string][]*admission
	forgot  map[string]time.Time // when a meter was reset or lost, by the limiter's clock
	outlast int                  // jobs that outlast their leases
	events  []simEvent
	busy    time.Time // when all workers were last at work
	flushed time.Time // when the limiter's data were lost
	calm    time.Time // when the last fault so far is healed
	broken  []simBreak
	blocks  []simBlock
}

// simProcess dies, or loses replies, after some more calls.
type simProcess struct {
	*stack
	*fuse
	index   int
	running int // handlers
	doomed  int // dies at so many calls from now; 0 if it lives on
	lossy   int // replies to lose
	late    delayer
	leaves  bool
	hangs   gate
	since   time.Time // that it lives, and does not hang
}

func newSim(t *testing.T, seed uint64) *sim {
	w := &sim{t: t, seed: seed, simIngredients: newIngredients(seed), rand: rand.New(rand.NewPCG(seed, 2)), jobs: map[string]*simJob{}, meters: map[string][]*admission{}, forgot: map[string]time.Time{}, began: time.Now()}
	w.history.Verbose = true
	t.Cleanup(w.handlers.Wait) // the last: asynq has given some up, and the clock stands still once all has ended
	w.limiter, _ = redistest.Mini(t)
	w.clock = &simClock{redis: w.limiter}
	w.queues, _ = redistest.Mini(t)
	for i := range between(w.rand, 1, 4) {
		w.limits = append(w.limits, w.limit(fmt.Sprintf("limit%d", i)))
	}
	w.addSlots()
	w.addQuota()
	if w.rand.IntN(4) == 0 && !w.has(settling) && w.limits[0].Kind != throttle.Concurrency {
		w.limits[0].Rate = throttle.PerMinute(between(w.rand, 3, 6))
		w.slow = &w.limits[0]
	}
	for i := range between(w.rand, 1, 6) {
		w.lanes = append(w.lanes, w.lane(i))
	}
	w.config = retrying(asynq.Config{
		Concurrency: between(w.rand, 2, 6), TaskCheckInterval: 50 * time.Millisecond,
		Queues:         map[string]int{"one": between(w.rand, 1, 3), "two": between(w.rand, 1, 3)},
		StrictPriority: w.has(strict),
	}, 2*time.Second) // asynq's own delay is random
	w.crowd()
	for range between(w.rand, 1, 3) {
		w.startProcess()
	}
	limiter := redistest.MiniClient(t, w.limiter)
	limiter.AddHook(before(w.clock.set))
	w.late.connect(w)
	limiter.AddHook(redistest.Hook(w.late.operator.around))
	w.operator = &stack{t: t, rdb: redistest.MiniClient(t, w.queues), limits: limiter, limiter: newSpy(limiter, throttle.Options{})}
	w.operator.connect(w.operator.rdb)
	w.hookRedises()
	return w
}

// limit draws a limit of any kind. None is so slow that the world would not end.
func (w *sim) limit(name string) throttle.Limit {
	l := throttle.Limit{Name: name, Kind: limittest.Kinds[w.rand.IntN(len(limittest.Kinds))]}
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

// defined is a limit as the config says.
func (w *sim) defined(name string) throttle.Limit {
	return w.limits[slices.IndexFunc(w.limits, func(l throttle.Limit) bool { return l.Name == name })]
}

// startProcess starts one more process. Its config is the first one: what another process has
// defined since is replaced.
func (w *sim) startProcess() {
	for i, limit := range w.limits {
		if w.redefined(limit) {
			w.note(simEvent{kind: "limits redefined", text: fmt.Sprintf("limit %s is %s again", limit.Name, limit), limit: &w.limits[i], explains: lanesOf(limit.Name)})
		}
	}
	p := &simProcess{index: len(w.processes), since: time.Now()}
	p.late.w = w
	p.fuse = newFuse(func(redis.Cmder) bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		p.doomed = max(p.doomed-1, min(p.doomed, 1))
		return p.doomed == 1
	})
	queues, limiter := redistest.MiniClient(w.t, w.queues), redistest.MiniClient(w.t, w.limiter)
	limiter.AddHook(before(w.clock.set))
	limiter.AddHook(&w.wires)
	for _, rdb := range []redis.UniversalClient{queues, limiter} {
		rdb.AddHook(before(p.hangs.wait))
		rdb.AddHook(p.fuse.hook())
		rdb.AddHook(redistest.Hook((&loser{w, p}).around))
		rdb.AddHook(redistest.Hook((&scribe{w, p}).around))
	}
	limiter.AddHook(redistest.Hook(p.late.around))
	p.stack = start(w.t, queues, settings{
		config: w.config, redis: limiter, limits: w.limits, rule: w.rule, asked: w.asked, freed: w.freed,
		handle: func(ctx context.Context, task *asynq.Task) error { return w.handle(ctx, p, string(task.Payload())) },
	})
	p.stack.limiter.limited = w.limited
	w.t.Cleanup(func() { close(p.released) })
	w.processes = append(w.processes, p)
}

func (w *sim) now() int64 { return time.Since(w.began).Microseconds() }

// dice are a job's own: what becomes of it does not depend on what other jobs drew, so that a world
// with one thing changed is the same in all others.
func (w *sim) dice(id string, times int) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id))
	return rand.New(rand.NewPCG(w.seed, h.Sum64()+uint64(times)))
}

// play enqueues jobs and lets faults happen for ten seconds, and then waits until all is done. Each
// of twenty steps has its own dice.
func (w *sim) play() {
	left := 0
	if w.rand.IntN(3) > 0 {
		left = between(w.rand, 1, 4+len(w.simIngredients))
	}
	stop := func() {}
	if w.has(callers) {
		stop = w.startCallers()
	}
	for _, l := range w.lanes {
		for range l.jobs/2 + 1 {
			w.enqueue(l)
		}
	}
	for step := range uint64(20) {
		w.rand = rand.New(rand.NewPCG(w.seed, 1000+step))
		time.Sleep(milliseconds(between(w.rand, 1, 1000)))
		l := w.lanes[w.rand.IntN(len(w.lanes))]
		for range between(w.rand, 0, 6) {
			w.enqueue(l)
		}
		if left > 0 && w.rand.IntN(3) == 0 {
			left--
			// Calls are at whole milliseconds: so it is known which of them came before the fault.
			time.Sleep(500 * time.Microsecond)
			w.fault()(w)
			time.Sleep(500 * time.Microsecond)
		}
		if step == 2 {
			w.sureFaults()
		}
	}
	if w.slow != nil {
		for range 65 { // by then all is healed that can be
			w.second()
		}
		w.judgeHealed()
		w.open()
	}
	seconds := 600
	if w.has(answers) { // 429s without a time may block a meter for minutes
		seconds = 3600
	}
	for i := range seconds {
		if w.second(); w.done() {
			break
		}
		if i == 20 {
			stop()
		}
		if i == 80 && w.has(writeBacks) {
			w.enqueue(w.lanes[0])
		}
	}
	stop()
	w.late.arrivals.Wait()
	time.Sleep(5 * time.Second)
	if len(w.events) > 0 {
		time.Sleep(65 * time.Second) // by then all is healed that can be
	}
}

// open makes the slow limit fast, so that the world ends.
func (w *sim) open() {
	limit := *w.slow
	limit.Rate = throttle.PerSecond(20)
	w.note(simEvent{kind: "limits opened", text: fmt.Sprintf("limit %s is now %s", limit.Name, limit), limit: &limit, explains: lanesOf(limit.Name)})
	w.operator.must(w.operator.limiter.Set(w.t.Context(), limit))
}

// done reports whether no queue has anything left but archived jobs.
func (w *sim) done() bool {
	for _, queue := range []string{"one", "two"} {
		q, err := w.operator.tasks.GetQueueInfo(queue)
		if err == nil && q.Size > q.Archived {
			return false
		}
	}
	return true
}

// simCaller takes permits of a meter without a queue, as often as it gets them.
type simCaller struct {
	limiter *throttle.Limiter
	need    throttle.Need // at most
	every   time.Duration
	rand    *rand.Rand
}

// startCallers lets one or two callers take permits beside the lanes until stop is called.
func (w *sim) startCallers() (stop func()) {
	var all sync.WaitGroup
	over := make(chan struct{})
	for i := range between(w.rand, 1, 2) {
		rdb := redistest.MiniClient(w.t, w.limiter)
		rdb.AddHook(before(w.clock.set))
		rdb.AddHook(&w.wires)
		l := w.lanes[w.rand.IntN(len(w.lanes))]
		c := &simCaller{
			limiter: throttle.New(rdb, throttle.Options{}), need: l.needs[w.rand.IntN(len(l.needs))],
			every: milliseconds(max(5, between(w.rand, 5, 300)/between(w.rand, 1, 10))), rand: rand.New(rand.NewPCG(w.seed, uint64(100+i))),
		}
		limit := w.defined(c.need.Limit)
		c.need.Cost = between(c.rand, 1, min(3, capacityOf(limit)))
		w.callers = append(w.callers, c)
		all.Go(func() {
			for {
				select {
				case <-over:
					return
				case <-time.After(c.every):
					w.call(c)
				}
			}
		})
	}
	return sync.OnceFunc(func() { close(over); all.Wait() })
}

// call is one call of a caller.
func (w *sim) call(c *simCaller) {
	d, err := c.limiter.AllowAll(w.t.Context(), c.need)
	if err != nil || !d.OK() {
		return
	}
	w.mu.Lock()
	w.history.Note(w.now(), "", "a caller takes %d of %s|%s", c.need.Cost, c.need.Limit, c.need.Key)
	w.admit(c.need, d, "")
	w.mu.Unlock()
	if d.Lease > 0 {
		time.Sleep(c.every)
		w.freed(d.Holder)
		_ = c.limiter.Free(w.t.Context(), d.Holder, c.need)
	}
}

func (c *simCaller) String() string {
	return fmt.Sprintf("takes %d of %s|%s each %s", c.need.Cost, c.need.Limit, c.need.Key, c.every)
}
