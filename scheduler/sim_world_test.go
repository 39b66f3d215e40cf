package scheduler

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/turns/turnstest"
	"github.com/headgate/headgate/throttle"
)

// sim is one random world: limits, lanes, jobs, processes, and what happened.
type sim struct {
	t         *testing.T
	rand      *rand.Rand
	limiter   *miniredis.Miniredis
	clock     *simClock   // the limiter's
	deaf      atomic.Bool // words to who gives turns get lost
	queues    *miniredis.Miniredis
	limits    []throttle.Limit
	slow      *throttle.Limit // so slow that its jobs wait for minutes; in most worlds none is
	lanes     []*simLane
	processes []*simProcess
	hand      *stack // of the operator; its server takes no jobs
	config    asynq.Config

	mu      sync.Mutex
	began   time.Time
	history turnstest.History
	jobs    map[string]*simJob
	meters  map[string][]*admission
	events  []simEvent
	busy    time.Time // when all workers were last at work
	flushed time.Time // when the limiter's data were lost
	worst   float64   // wait of a lane, in rounds
	broken  []simBreak
	answers *rand.Rand // of handlers; nil where all are that the job is done
	shuts   []simShut
}

// simLane makes jobs that need the same.
type simLane struct {
	name, needs, queue string
	parsed             []throttle.Need
	takes              time.Duration // by its handler
	jobs, open         int           // open: enqueued and not admitted
}

type simJob struct {
	lane                  *simLane
	runs, denials, admits int
	denied                time.Time // last
	late                  int       // denials since workers were busy
	again                 int       // times that it had to ask anew
	ends                  int       // runs after which it was done
	deleted               bool
	came, last            int64 // when it was enqueued, and when anything happened to it last
}

// admission is what one job took of one meter.
type admission struct {
	at, until time.Time
	byRedis   time.Time // at, by the limiter's clock
	cost      int
	holder    string
	job       string
	debt      bool
}

// simProcess dies, or loses answers, some calls after it was told to.
type simProcess struct {
	*stack
	*fuse
	index   int
	running int // handlers
	doomed  int // dies at so many calls from now; 0 where it lives on
	lossy   int // answers to lose
}

func newSim(t *testing.T, seed uint64) *sim {
	w := &sim{t: t, rand: rand.New(rand.NewPCG(seed, 2)), jobs: map[string]*simJob{}, meters: map[string][]*admission{}, began: time.Now()}
	w.history.Tell = true
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
		Queues: map[string]int{"one": between(w.rand, 1, 3), "two": between(w.rand, 1, 3)},
	}
	for range between(w.rand, 1, 3) {
		w.startProcess()
	}
	client, limiter := redistest.MiniClient(t, w.queues), redistest.MiniClient(t, w.limiter)
	limiter.AddHook(w.clock)
	w.hand = &stack{t: t, rdb: client, client: asynq.NewClientFromRedisClient(client), tasks: asynq.NewInspectorFromRedisClient(client)}
	w.hand.limits = limiter
	w.hand.limiter = &spy{Lanes: throttle.NewLanes(throttle.New(w.hand.limits, throttle.RedisOptions{}))}
	w.loseWords()
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
	return l
}

func (w *sim) lane(i int) *simLane {
	l := &simLane{queue: []string{"one", "two"}[w.rand.IntN(2)], jobs: between(w.rand, 1, 30)}
	if w.rand.IntN(3) == 0 {
		l.takes = milliseconds(between(w.rand, 1, 400))
	}
	for _, k := range w.rand.Perm(len(w.limits))[:between(w.rand, 1, min(3, len(w.limits)))] {
		limit := w.limits[k]
		key := []string{"", "/a", "/b"}[w.rand.IntN(3)]
		l.needs += fmt.Sprintf("%s%s:%d ", limit.Name, key, between(w.rand, 1, min(3, capacityOf(limit))))
	}
	l.name = fmt.Sprintf("lane %d", i)
	rule, _ := ruleOfPayload(asynq.NewTask("job", []byte(l.needs)))
	l.parsed = rule.Needs
	return l
}

// capacityOf is the most permits that a limit gives at once.
func capacityOf(l throttle.Limit) int {
	if l.Capacity > 0 {
		return l.Capacity
	}
	return l.Rate.N
}

// startProcess starts one more.
func (w *sim) startProcess() {
	p := &simProcess{index: len(w.processes)}
	p.fuse = newFuse(func(redis.Cmder) bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		p.doomed = max(p.doomed-1, min(p.doomed, 1))
		return p.doomed == 1
	})
	queues, limiter := redistest.MiniClient(w.t, w.queues), redistest.MiniClient(w.t, w.limiter)
	queues.AddHook(idlePolls{w.queues})
	limiter.AddHook(w.clock)
	for _, rdb := range []redis.UniversalClient{queues, limiter} {
		rdb.AddHook(p.fuse)
		rdb.AddHook(&loser{w, p})
	}
	limiter.AddHook(&teller{w, p})
	p.stack = start(w.t, queues, settings{
		config: w.config, redis: limiter, limits: w.limits, rule: ruleOfPayload,
		asked: func(job throttle.Job, needs []throttle.Need, d throttle.Decision) { w.asked(job, needs, d) },
		freed: w.freed,
		handle: func(ctx context.Context, _ *asynq.Task) error {
			id, _ := asynq.GetTaskID(ctx)
			if err := w.handle(p, id); w.answers == nil {
				return err
			}
			return w.answer(ctx, id)
		},
	})
	p.stack.limiter.refused = w.refused
	w.t.Cleanup(func() { close(p.released) })
	w.processes = append(w.processes, p)
}

func (w *sim) now() int64 { return time.Since(w.began).Microseconds() }

// handle is what all jobs do.
func (w *sim) handle(p *simProcess, id string) error {
	w.mu.Lock()
	job := w.jobs[id]
	job.runs++
	p.running++
	w.tell(id, "running in process %d", p.index)
	w.mu.Unlock()
	time.Sleep(job.lane.takes)
	if p.dead() {
		<-p.released
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.allBusy() {
		w.busy = time.Now()
	}
	p.running--
	return nil
}

// allBusy reports whether no worker is free.
func (w *sim) allBusy() bool {
	return !slices.ContainsFunc(w.processes, func(p *simProcess) bool { return !p.dead() && p.running < w.config.Concurrency })
}

func (w *sim) asked(asks throttle.Job, needs []throttle.Need, d throttle.Decision) {
	w.mu.Lock()
	defer w.mu.Unlock()
	job := w.jobs[asks.ID]
	switch d.Outcome {
	case throttle.Denied:
		if job.denials++; job.denials > 1 && (w.allBusy() || !w.busy.Before(job.denied)) {
			job.late++
		}
		job.denied = time.Now()
		w.tell(asks.ID, "denied for the %d. time by %s|%s: retry after %s", job.denials, d.Limit, d.Key, d.RetryAfter)
	case throttle.Allowed:
		if other := w.before(job); job.denials+job.again == 0 && other != "" && !w.unheard() {
			w.breaks(w.near(job.lane), w.jobs[other].came, w.now(), "%s was let by, and %s of %s waits", asks.ID, other, job.lane.name)
		}
		if job.admits++; job.admits == 1 {
			job.lane.open--
		}
		w.history.Turn(w.now(), job.lane.name, asks.ID, job.lane.open > 0)
		for _, need := range needs {
			meter := need.Limit + "|" + need.Key
			w.meters[meter] = append(w.meters[meter], &admission{at: time.Now(), byRedis: d.At, cost: need.Cost, holder: d.Holder, job: asks.ID})
			w.judgeShut(meter, asks.ID, d)
		}
	default:
		w.tell(asks.ID, "told: %s", d)
		w.breaksFor(asks.ID, "%s", d)
	}
}

// unheard reports whether a job may have been denied and nobody heard of it.
func (w *sim) unheard() bool {
	return slices.ContainsFunc(w.events, func(e simEvent) bool { return e.crash || e.kind == "answers lost" })
}

// before returns a job that waits in the lane of another, since before now. One that the
// limiter's data were lost of has to come once more.
func (w *sim) before(job *simJob) string {
	for _, key := range w.limiter.Keys() {
		if !strings.HasPrefix(key, "hg:{default}:lane:"+job.lane.queue+"\n") {
			continue
		}
		waiting, _ := w.limiter.ZMembers(key)
		for _, id := range waiting {
			if o := w.jobs[id]; o != nil && o.lane == job.lane && o.denied.After(w.flushed) && o.denied.Before(time.Now()) {
				return id
			}
		}
	}
	return ""
}

func (w *sim) freed(holder string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, admissions := range w.meters {
		for _, a := range admissions {
			if a.holder == holder {
				a.until = time.Now()
			}
		}
	}
}

// enqueue adds a job to a lane.
func (w *sim) enqueue(l *simLane) {
	w.mu.Lock()
	id := fmt.Sprintf("job%d", len(w.jobs))
	w.jobs[id] = &simJob{lane: l, came: w.now()}
	if l.open++; l.open == 1 {
		w.history.Waits(w.now(), l.name)
	}
	w.tell(id, "enqueued")
	w.mu.Unlock()
	priority := []throttle.Priority{throttle.Normal, throttle.Normal, throttle.Normal, throttle.High, throttle.Low}[w.rand.IntN(5)]
	w.hand.enqueue(NewTask("job", []byte(l.needs), asynq.MaxRetry(w.rand.IntN(2)), Priority(priority)), asynq.TaskID(id), asynq.Queue(l.queue))
}

// A loser loses answers: the command is carried out and nobody hears of it.
type loser struct {
	w *sim
	p *simProcess
}

func (l *loser) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *loser) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (l *loser) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		l.w.mu.Lock()
		defer l.w.mu.Unlock()
		if l.p.lossy == 0 || err != nil || !strings.HasPrefix(cmd.Name(), "eval") {
			return err
		}
		l.p.lossy--
		cmd.SetErr(errLost)
		return errLost
	}
}
