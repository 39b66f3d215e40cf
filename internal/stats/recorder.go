// Package stats records what the processes of a scope do. Once a second each process's Recorder
// writes a summary to a stream in Redis. The stream has the last 16 minutes.
package stats

import (
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/script"
	"github.com/headgate/headgate/internal/version"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// Recorder counts what one process does. Its methods are safe for concurrent use. Set the fields
// from Disabled to RuleFor before Start.
type Recorder struct {
	rdb       redis.UniversalClient
	prefix    string // of the scope's keys
	processID string

	// Disabled makes Start write nothing.
	Disabled bool
	// Concurrency is the number of jobs that the process can run at once.
	Concurrency int
	// Queues is the Redis of the queues. The default is the Redis of the scope.
	Queues redis.UniversalClient
	// ServedQueues are the queues from which this process takes jobs.
	ServedQueues []string
	// RuleFor returns the requirements of pending jobs. Nil means that all are unknown.
	RuleFor RuleFunc
	// State returns the state of the process: see Process. Nil means that it is always StateRunning.
	State func() State
	// SetDrained is called when an operator drains the process, and when its drain ends. Nil means that
	// another Recorder of the process is told.
	SetDrained func(drained bool)

	mu     sync.Mutex // guards self, limits, tasks, stuck and unsent, and what they point to
	self   Process    // this process, without the counts of its jobs
	limits map[string]*LimitCounts
	tasks  map[Task]*TaskCounts
	stuck  map[StuckJob]bool
	unsent *Summary // counts since the last summary was written

	drainOrder string // the ID of the order that drains the process, or empty; only run uses it

	processChanged atomic.Bool // reportAlive is due at once

	Lateness        *Histogram // time for which the permits of a waiting job were free before the job took them
	Wait            *Histogram // time from the first denial of a job until it took its permits
	Denials         *Histogram // number of denials of each allowed job
	LimiterCalls    *Histogram // durations of calls to the limiter
	LimiterFailures atomic.Int64
	Rounds          *Histogram   // durations of the dispatcher's rounds in this process
	Ungranted       atomic.Int64 // denied jobs that later took permits without a reservation
	IsLeader        atomic.Bool  // this process is the dispatcher of its scope
	PollingFallback atomic.Bool  // this process cannot promote granted jobs, so they run late, after asynq's polls
	FailedWrites    atomic.Int64 // writes of this Recorder to Redis that failed
}

// RecordersOf returns the Recorders of a *scheduler.Server: first that of its limiter's scope, then
// one for each shard. Package scheduler sets this variable.
var RecordersOf func(server any) []*Recorder

// New returns a Recorder that writes to a scope. prefix is the prefix of the scope's keys,
// hg:{scope}:.
func New(rdb redis.UniversalClient, prefix string) *Recorder {
	host, _ := os.Hostname()
	return &Recorder{
		rdb: rdb, Queues: rdb, prefix: prefix, processID: uuid.NewString(),
		self:   Process{Host: host, PID: os.Getpid(), Version: version.Headgate(), Started: time.Now()},
		limits: map[string]*LimitCounts{}, tasks: map[Task]*TaskCounts{}, stuck: map[StuckJob]bool{}, unsent: newSummary(),
		Lateness: newHistogram(latencyBounds), Wait: newHistogram(waitBounds), Denials: newHistogram(denialBounds),
		LimiterCalls: newHistogram(latencyBounds), Rounds: newHistogram(latencyBounds),
	}
}

// ShareProcess makes the Recorder describe the process of the other Recorder. Call it before Start.
func (r *Recorder) ShareProcess(other *Recorder) { r.processID, r.self = other.processID, other.self }

// SetConfig sets the name of the config that the process runs with. It may be called at any time.
func (r *Recorder) SetConfig(config string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.self.Config = config
}

// NoteStuck adds a job to the stuck jobs of the process, until forget is called.
func (r *Recorder) NoteStuck(job StuckJob) (forget func()) {
	change := func(change func()) {
		r.mu.Lock()
		defer r.mu.Unlock()
		change()
		r.processChanged.Store(true)
	}
	change(func() { r.stuck[job] = true })
	return func() { change(func() { delete(r.stuck, job) }) }
}

// Redis returns the client and the name of the scope.
func (r *Recorder) Redis() (rdb redis.UniversalClient, scope string) {
	return r.rdb, script.Scope(r.prefix)
}

// CountDecision counts the limiter's decision about a job. An allowed job counts for each of its
// limits. Any other job counts only for the limit that decided.
func (r *Recorder) CountDecision(needs []throttle.Need, d waitdb.Decision) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d.Outcome != throttle.Allowed {
		c := r.limit(d.Limit)
		c.Decisions[d.Outcome]++
		if d.Outcome == throttle.Denied {
			c.RetryAfter.Observe(d.RetryAfter)
			s := r.unsent.Limits[c.Limit]
			s.Denied++
			r.unsent.Limits[c.Limit] = s
		}
		return
	}
	for _, n := range needs {
		c, cost := r.limit(n.Limit), int64(max(1, n.Cost))
		c.Decisions[throttle.Allowed]++
		c.Permits += cost
		s := r.unsent.Limits[c.Limit]
		s.Allowed++
		s.Permits += cost
		r.unsent.Limits[c.Limit] = s
		if n.Key == "" {
			c.Unkeyed += cost
		}
	}
	r.Denials.observe(float64(d.Denials))
	if d.Denials > 0 {
		r.Wait.Observe(d.Waited)
		if d.Late >= 0 {
			r.Lateness.Observe(d.Late)
		} else {
			r.Ungranted.Add(1)
		}
	}
}

// CountReturned counts permits that a job gave back. The number is negative if its call cost more
// than the job had taken.
func (r *Recorder) CountReturned(n throttle.Need, permits int) {
	if permits == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.limit(n.Limit)
	s := r.unsent.Limits[c.Limit]
	s.Permits -= int64(permits)
	if permits < n.Cost { // else the call was not made, and says nothing about the cost of others
		s.Settled += int64(permits)
	}
	r.unsent.Limits[c.Limit] = s
	if n.Key == "" && permits > 0 {
		c.Returned += int64(permits)
	}
}

// CountRateLimited counts a call that was rate limited upstream, once for each limit in blocked.
func (r *Recorder) CountRateLimited(blocked []throttle.Need) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, n := range blocked {
		if !slices.ContainsFunc(blocked[:i], func(earlier throttle.Need) bool { return earlier.Limit == n.Limit }) {
			r.limit(n.Limit).RateLimited++
		}
	}
}

// NotRun is the duration of an attempt whose handler was not called.
const NotRun = time.Duration(-1)

// CountStart counts a running job until CountEnd is called for it.
func (r *Recorder) CountStart(t Task) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.task(t).Running++
}

// CountEnd counts the end of an attempt. The parameter ran is how long the job ran, or NotRun.
func (r *Recorder) CountEnd(t Task, end AttemptEnd, ran time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.task(t)
	if ran != NotRun {
		c.Running--
		c.Duration.Observe(ran)
	}
	c.Ends[end]++
	if end == PutBack {
		return
	}
	q := r.unsent.Queues[c.Queue]
	if q.Ended++; end == Done {
		q.Done++
	}
	q.Ran += max(0, ran)
	r.unsent.Queues[c.Queue] = q
}

// Other replaces a name that cannot be a label, and each new name beyond maxNames names.
const Other = "other"

// Label returns the name, or Other if it has control characters, invalid UTF-8 or more than 100
// bytes.
func Label(name string) string {
	isControl := func(c rune) bool { return c < ' ' || c == 0x7f }
	if len(name) > 100 || !utf8.ValidString(name) || strings.ContainsFunc(name, isControl) {
		return Other
	}
	return name
}

func (r *Recorder) limit(name string) *LimitCounts {
	return countsOf(r.limits, Label(name), Other, func(name string) *LimitCounts {
		return &LimitCounts{Limit: name, RetryAfter: newHistogram(waitBounds)}
	})
}

func (r *Recorder) task(t Task) *TaskCounts {
	other := Task{Other, Other}
	if Label(t.Queue) != t.Queue || Label(t.Type) != t.Type {
		t = other
	}
	return countsOf(r.tasks, t, other, func(t Task) *TaskCounts {
		return &TaskCounts{Task: t, Duration: newHistogram(durationBounds)}
	})
}

// maxNames is the most limits, and the most tasks, that a Recorder counts by name. It bounds the
// stream in Redis to about 20 KB a second for each process.
const maxNames = 100

// countsOf returns the counts of a name. Beyond maxNames names, a new name shares the counts of
// other.
func countsOf[K comparable, C any](all map[K]*C, name, other K, create func(K) *C) *C {
	if all[name] == nil && len(all) >= maxNames {
		name = other
	}
	if all[name] == nil {
		all[name] = create(name)
	}
	return all[name]
}

// LimitCounts are the counts of a limit since the process started.
type LimitCounts struct {
	Limit       string
	Decisions   [int(throttle.Expired) + 1]int64 // by throttle.Outcome
	Permits     int64
	Unkeyed     int64 // permits taken without a key
	Returned    int64 // Unkeyed permits that were given back
	RateLimited int64 // calls that were rate limited upstream
	RetryAfter  *Histogram
}

// Limits returns the counts of every limit that was counted. Limits beyond maxNames are counted
// together under Other.
func (r *Recorder) Limits() []LimitCounts { return copyCounts(r, r.limits) }

// TaskCounts are the counts of a task since the process started.
type TaskCounts struct {
	Task
	Ends     AttemptCounts
	Running  int64 // now
	Duration *Histogram
}

// Tasks returns the counts of every task that had a job. Tasks beyond maxNames are counted together
// under Other.
func (r *Recorder) Tasks() []TaskCounts { return copyCounts(r, r.tasks) }

func copyCounts[K comparable, C any](r *Recorder, counts map[K]*C) (all []C) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range counts {
		all = append(all, *c)
	}
	return all
}

// Histogram counts values by upper bounds, as Prometheus does. It is safe for concurrent use.
type Histogram struct {
	bounds []float64
	mu     sync.Mutex
	counts []uint64 // number of values in each bucket; the last bucket has no bound
	sum    float64
}

// Upper bounds: numbers of denials in denialBounds, seconds in the others.
var (
	latencyBounds  = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	durationBounds = []float64{.001, .005, .01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600}
	waitBounds     = []float64{.01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600, 6 * 3600, 24 * 3600, 7 * 24 * 3600}
	denialBounds   = []float64{0, 1, 2, 3, 4, 5, 10, 20, 50}
)

func newHistogram(bounds []float64) *Histogram {
	return &Histogram{bounds: bounds, counts: make([]uint64, len(bounds)+1)}
}

// Observe counts a duration in seconds. A negative duration counts as 0.
func (h *Histogram) Observe(d time.Duration) { h.observe(max(0, d).Seconds()) }

func (h *Histogram) observe(v float64) {
	i, _ := slices.BinarySearch(h.bounds, v)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts[i]++
	h.sum += v
}

// Snapshot returns the number of observed values, their sum, and for each bound the number of
// values that are at most the bound.
func (h *Histogram) Snapshot() (count uint64, sum float64, buckets map[float64]uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	buckets = make(map[float64]uint64, len(h.bounds))
	for i, bound := range h.bounds {
		count += h.counts[i]
		buckets[bound] = count
	}
	return count + h.counts[len(h.bounds)], h.sum, buckets
}
