// Package stats keeps what happens in a scope for those who look on. Each
// process that runs jobs has a Recorder. It counts, and once a second writes to
// Redis what was new: a summary in a stream that reaches a quarter of an hour
// back, and totals since ever. Nothing in it decides anything.
package stats

import (
	"math"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/script"
	"github.com/headgate/headgate/throttle"
)

// Recorder counts what one process does. Its methods may be called at the same
// time, and cost next to nothing.
type Recorder struct {
	rdb     redis.UniversalClient
	prefix  string // of the scope's keys
	process string
	off     bool

	self   Process // but for what changes
	config atomic.Pointer[string]
	// Concurrency is how many jobs the process runs at once, to be told.
	Concurrency int

	// Queues is the Redis of the queues, to ask which are paused and what is pending. Nil is
	// that of the scope.
	Queues redis.UniversalClient
	// Serves are the queues that this process takes jobs from, and RuleOf is what their jobs
	// will ask for; nil if that is not known.
	ServedQueues []string
	RuleFor      RuleFunc

	mu     sync.Mutex // guards limits and tasks, and what they point to
	limits map[string]*LimitCounts
	tasks  map[Task]*TaskCounts

	// Of all jobs that waited: how long after it was there they took their permit,
	// for how long they had waited then, and how often they had been denied, which
	// counts those that did not wait too.
	Lateness, Wait, Denials *Histogram
	// Uncalled counts those of them that took permits which were not reserved: nobody
	// called them, or they came too late.
	Ungranted atomic.Int64
	// Calls is how long calls of the limiter took, FailedCalls how many failed.
	LimiterCalls    *Histogram
	LimiterFailures atomic.Int64
	// Rounds is how long each round of giving turns took, Leads whether this process
	// gives them, and Polling whether waiting jobs are left to asynq's polls.
	Rounds                        *Histogram
	IsDispatcher, PollingFallback atomic.Bool
	// Unwritten counts failed tries to write a summary.
	FailedWrites atomic.Int64

	decided   uint64    // how much had been decided at the last survey
	looked    time.Time // when that was
	rulesRest time.Time // until when no rules are asked for a survey, since they were too slow
	written   counted   // when a summary was written last
	sent      int       // how many summaries were sent, written or not
}

// patience bounds a call of Redis, so that a slow one holds up no shutdown.
const patience = 2 * time.Second

// counted is what was counted since the process began.
type counted struct {
	limits map[string]LimitSummary
	tasks  map[Task]TaskSummary
}

// Of is what a *scheduler.Server counts. That package sets it: a method would have a name
// of this package among what it exports.
var RecorderOf func(server any) *Recorder

// New returns a Recorder that writes to the scope with that prefix of its keys,
// hg:{scope}:. Nothing is written before Start.
func New(rdb redis.UniversalClient, prefix string) *Recorder {
	host, _ := os.Hostname()
	return &Recorder{
		rdb: rdb, prefix: prefix, process: uuid.NewString(),
		self:   Process{Host: host, PID: os.Getpid(), Version: version(), Started: time.Now()},
		limits: map[string]*LimitCounts{}, tasks: map[Task]*TaskCounts{},
		Lateness: newHistogram(latencies), Wait: newHistogram(waits), Denials: newHistogram(times),
		LimiterCalls: newHistogram(latencies), Rounds: newHistogram(latencies),
	}
}

// Off has Start write nothing: what that costs is measured against it.
func (r *Recorder) Disable() { r.off = true }

// Redis is where the scope is: the client, and what its keys begin with.
func (r *Recorder) Redis() (rdb redis.UniversalClient, scope string) {
	return r.rdb, script.Scope(r.prefix)
}

// Asked is told how long a call of the limiter took, and whether it failed.
func (r *Recorder) ObserveLimiterCall(took time.Duration, failed bool) {
	r.LimiterCalls.took(took)
	if failed {
		r.LimiterFailures.Add(1)
	}
}

// Decided is told the limiter's answer to a job. Permits count for every limit
// that gave some; another answer counts for the limit that decided.
func (r *Recorder) CountDecision(queue, id string, needs []throttle.Need, d throttle.Decision) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d.Outcome == throttle.Allowed {
		for _, n := range needs {
			c, cost := r.limit(n.Limit), int64(max(1, n.Cost))
			c.Decisions[throttle.Allowed]++
			c.Permits += cost
			if n.Key == "" {
				c.Unkeyed += cost
			}
		}
		r.Denials.observe(float64(d.Denials))
		if d.Denials > 0 {
			r.Wait.took(d.Waited)
		}
		switch {
		case d.Denials > 0 && d.Late >= 0:
			r.Lateness.took(d.Late)
		case d.Denials > 0:
			r.Ungranted.Add(1)
		}
		return
	}
	c := r.limit(d.Limit)
	c.Decisions[d.Outcome]++
	if d.Outcome == throttle.Denied {
		c.RetryAfter.took(d.RetryAfter)
		c.denial = &Denial{Queue: queue, ID: id[:min(len(id), maxID)], Key: d.Key, RetryAfter: d.RetryAfter, Unknown: d.Unknown}
	}
}

// Settled is told that of the permits that a job took so many were given back.
func (r *Recorder) CountReturned(n throttle.Need, returned int) {
	if n.Key == "" && returned > 0 {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.limit(n.Limit).Returned += int64(returned)
	}
}

// Refused is told that the other side refused a call that had its permits, and of
// which limits keys are shut for that: one of each counts.
func (r *Recorder) CountRateLimited(shut []throttle.Need) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, n := range shut {
		if !slices.ContainsFunc(shut[:i], func(before throttle.Need) bool { return before.Limit == n.Limit }) {
			r.limit(n.Limit).RateLimited++
		}
	}
}

// Began is told that a job runs. The function that it returns must be called once,
// at the end of that.
func (r *Recorder) StartJob(t Task) (ended func(End)) {
	began := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.task(t)
	c.Running++
	return func(end End) {
		r.mu.Lock()
		defer r.mu.Unlock()
		c.Running--
		c.Duration.took(time.Since(began))
		c.Ends[end]++
	}
}

// Ended is told that a job ended which did not run.
func (r *Recorder) CountEnd(t Task, end End) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.task(t).Ends[end]++
}

// Round is told how long this process took to give the turns that were due.
func (r *Recorder) ObserveRound(took time.Duration) { r.Rounds.took(took) }

func (r *Recorder) limit(name string) *LimitCounts {
	return countsOf(r.limits, Label(name), Other, func(name string) *LimitCounts {
		return &LimitCounts{Limit: name, RetryAfter: newHistogram(waits)}
	})
}

func (r *Recorder) task(t Task) *TaskCounts {
	other := Task{Other, Other}
	if !isLabel(t.Queue) || !isLabel(t.Type) {
		t = other
	}
	return countsOf(r.tasks, t, other, func(t Task) *TaskCounts {
		return &TaskCounts{Task: t, Duration: newHistogram(durations)}
	})
}

// maxNames is how many limits, and how many tasks, a Recorder counts by name.
const maxNames = 200

// countsOf is what is counted by a name, or by other where that would be one too many.
func countsOf[K comparable, C any](counts map[K]*C, name, other K, create func(K) *C) *C {
	n := len(counts)
	if counts[other] != nil {
		n--
	}
	if counts[name] == nil && n >= maxNames {
		name = other
	}
	if counts[name] == nil {
		counts[name] = create(name)
	}
	return counts[name]
}

// LimitCounts is what a process decided of a limit since it began.
type LimitCounts struct {
	Limit     string
	Decisions [int(throttle.TooLate) + 1]int64 // by throttle.Outcome
	Permits   int64
	// Unkeyed are the permits among them that were taken of the limit without a key,
	// and Returned those of them given back when their cost was settled.
	Unkeyed, Returned int64
	// Refused counts calls that had their permits, and the other side refused.
	RateLimited int64
	RetryAfter  *Histogram
	denial      *Denial // the last
}

// Limits is what was counted of every limit that a decision was about.
func (r *Recorder) Limits() []LimitCounts { return copied(r, r.limits) }

// TaskCounts is how a task's jobs ended in a process since it began. Busy is how
// many run now.
type TaskCounts struct {
	Task
	Ends     Counts
	Running  int64
	Duration *Histogram
}

// Tasks is what was counted of every task that had a job.
func (r *Recorder) Tasks() []TaskCounts { return copied(r, r.tasks) }

func copied[K comparable, C any](r *Recorder, counts map[K]*C) (all []C) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range counts {
		all = append(all, *c)
	}
	return all
}

// Histogram counts values by upper bounds, as Prometheus does.
type Histogram struct {
	bounds []float64
	counts []atomic.Uint64 // up to each bound, and above the one before; the last is above all
	sum    atomic.Uint64   // the bits of a float64
}

// The upper bounds, in seconds; of denials in times.
var (
	latencies = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	durations = []float64{.001, .005, .01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600}
	waits     = []float64{.01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600, 6 * 3600, 24 * 3600, 7 * 24 * 3600}
	times     = []float64{0, 1, 2, 3, 4, 5, 10, 20, 50}
)

func newHistogram(bounds []float64) *Histogram {
	return &Histogram{bounds: bounds, counts: make([]atomic.Uint64, len(bounds)+1)}
}

func (h *Histogram) observe(v float64) {
	i, _ := slices.BinarySearch(h.bounds, v)
	h.counts[i].Add(1)
	for {
		was := h.sum.Load()
		if h.sum.CompareAndSwap(was, math.Float64bits(math.Float64frombits(was)+v)) {
			return
		}
	}
}

func (h *Histogram) took(d time.Duration) { h.observe(max(0, d).Seconds()) }

func (h *Histogram) load() (counts []uint64, sum float64) {
	counts = make([]uint64, len(h.counts))
	for i := range counts {
		counts[i] = h.counts[i].Load()
	}
	return counts, math.Float64frombits(h.sum.Load())
}

// Snapshot is what was counted: how many values in all, their sum, and how many
// of them are at most each bound.
func (h *Histogram) Snapshot() (count uint64, sum float64, buckets map[float64]uint64) {
	counts, sum := h.load()
	buckets = make(map[float64]uint64, len(h.bounds))
	for i, bound := range h.bounds {
		count += counts[i]
		buckets[bound] = count
	}
	return count + counts[len(h.bounds)], sum, buckets
}
