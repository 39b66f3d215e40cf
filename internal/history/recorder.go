package history

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/throttle"
)

// Recorder counts what one process does. Its methods may be called at the same
// time, and cost next to nothing.
type Recorder struct {
	rdb     redis.UniversalClient
	prefix  string // of the scope's keys
	process string
	off     bool

	self   Process
	config atomic.Pointer[string]
	// Concurrency is how many jobs the process runs at once, to be told.
	Concurrency int

	// Queues is the Redis of the queues, to ask which are paused. Nil is that of the scope.
	Queues redis.UniversalClient

	limits byName[string, limitCounters]
	tasks  byName[Task, taskCounters]

	// Of all jobs that waited: how long after it was there they took their permit,
	// for how long they had waited then, and how often they had been denied, which
	// counts those that did not wait too.
	Lateness, Wait, Denials *Histogram
	// Uncalled counts those of them that took permits which were not reserved: nobody
	// called them, or they came too late.
	Uncalled atomic.Int64
	// Calls is how long calls of the limiter took, FailedCalls how many failed.
	Calls       *Histogram
	FailedCalls atomic.Int64
	// Rounds is how long each round of giving turns took, Leads whether this process
	// gives them, and Polling whether waiting jobs are left to asynq's polls.
	Rounds         *Histogram
	Leads, Polling atomic.Bool
	// Unwritten counts failed tries to write a summary.
	Unwritten atomic.Int64

	survey  surveyor
	written counted // when a summary was written last
	sent    int     // how many summaries were sent, written or not
}

// Of is what a *scheduler.Server counts. That package sets it: a method would have a name
// of this package among what it exports.
var Of func(server any) *Recorder

// New returns a Recorder that writes to the scope with that prefix of its keys,
// hg:{scope}:. Nothing is written before Start.
func New(rdb redis.UniversalClient, prefix string) *Recorder {
	r := &Recorder{
		rdb: rdb, prefix: prefix, process: uuid.NewString(), self: self(),
		Lateness: newHistogram(latencies), Wait: newHistogram(waits), Denials: newHistogram(times),
		Calls: newHistogram(latencies), Rounds: newHistogram(latencies),
	}
	r.limits.other, r.limits.make = Other, func() *limitCounters {
		return &limitCounters{retryAfter: newHistogram(waits)}
	}
	r.tasks.other, r.tasks.make = Task{Other, Other}, func() *taskCounters {
		return &taskCounters{duration: newHistogram(durations)}
	}
	return r
}

// Off has it neither count nor write, from before Start on: what it costs is
// measured against that.
func (r *Recorder) Off() { r.off = true }

// Redis is where the scope is: the client, and what its keys begin with.
func (r *Recorder) Redis() (rdb redis.UniversalClient, scope string) {
	return r.rdb, lua.Scope(r.prefix)
}

// Asked is told how long a call of the limiter took, and whether it failed.
func (r *Recorder) Asked(took time.Duration, failed bool) {
	if r.off {
		return
	}
	r.Calls.took(took)
	if failed {
		r.FailedCalls.Add(1)
	}
}

// Decided is told the limiter's answer to a job. Permits count for every limit
// that gave some; another answer counts for the limit that decided.
func (r *Recorder) Decided(queue, id string, needs []throttle.Need, d throttle.Decision) {
	if r.off {
		return
	}
	if d.Outcome == throttle.Allowed {
		for _, n := range needs {
			c := r.limits.of(label(n.Limit))
			c.decisions[throttle.Allowed].Add(1)
			c.permits.Add(int64(max(1, n.Cost)))
			if n.Key == "" {
				c.unkeyed.Add(int64(max(1, n.Cost)))
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
			r.Uncalled.Add(1)
		}
		return
	}
	c := r.limits.of(label(d.Limit))
	c.decisions[d.Outcome].Add(1)
	if d.Outcome == throttle.Denied {
		c.retryAfter.took(d.RetryAfter)
		c.denial.Store(&Denial{Queue: queue, ID: id, Key: d.Key, RetryAfter: d.RetryAfter, Unknown: d.Unknown})
	}
}

// Settled is told that of the permits that a job took so many were given back.
func (r *Recorder) Settled(n throttle.Need, returned int) {
	if !r.off && n.Key == "" && returned > 0 {
		r.limits.of(label(n.Limit)).returned.Add(int64(returned))
	}
}

// Refused is told that the other side refused a call that had its permits, and of
// which limits keys are shut for that: one of each counts.
func (r *Recorder) Refused(shut []throttle.Need) {
	if r.off {
		return
	}
	var limits []string
	for _, n := range shut {
		if !slices.Contains(limits, n.Limit) {
			limits = append(limits, n.Limit)
			r.limits.of(label(n.Limit)).refused.Add(1)
		}
	}
}

// Began is told that a job runs. The function that it returns must be called once,
// at the end of that.
func (r *Recorder) Began(t Task) (ended func(End)) {
	if r.off {
		return func(End) {}
	}
	c := r.task(t)
	c.busy.Add(1)
	began := time.Now()
	return func(end End) {
		c.busy.Add(-1)
		c.duration.took(time.Since(began))
		c.ends[end].Add(1)
	}
}

// Ended is told that a job ended which did not run.
func (r *Recorder) Ended(t Task, end End) {
	if !r.off {
		r.task(t).ends[end].Add(1)
	}
}

func (r *Recorder) task(t Task) *taskCounters {
	if !isLabel(t.Queue) || !isLabel(t.Type) {
		t = r.tasks.other
	}
	return r.tasks.of(t)
}

// LimitCounts is what a process decided of a limit since it began.
type LimitCounts struct {
	Limit     string
	Decisions map[throttle.Outcome]int64
	Permits   int64
	// Unkeyed are the permits among them that were taken of the limit without a key,
	// and Returned those of them given back when their cost was settled.
	Unkeyed, Returned int64
	// Refused counts calls that had their permits, and the other side refused.
	Refused    int64
	RetryAfter *Histogram
}

// EachLimit calls f for every limit that a decision was about.
func (r *Recorder) EachLimit(f func(LimitCounts)) {
	r.limits.each(func(name string, c *limitCounters) {
		counts := LimitCounts{
			Limit: name, Decisions: map[throttle.Outcome]int64{}, Permits: c.permits.Load(),
			Unkeyed: c.unkeyed.Load(), Returned: c.returned.Load(), Refused: c.refused.Load(), RetryAfter: c.retryAfter,
		}
		for outcome := range c.decisions {
			counts.Decisions[throttle.Outcome(outcome)] = c.decisions[outcome].Load()
		}
		f(counts)
	})
}

// TaskCounts is how a task's jobs ended in a process since it began. Busy is how
// many run now.
type TaskCounts struct {
	Task
	Ends     Counts
	Busy     int64
	Duration *Histogram
}

// EachTask calls f for every task that had a job.
func (r *Recorder) EachTask(f func(TaskCounts)) {
	r.tasks.each(func(t Task, c *taskCounters) {
		counts := TaskCounts{Task: t, Busy: c.busy.Load(), Duration: c.duration}
		for end := range c.ends {
			counts.Ends[end] = c.ends[end].Load()
		}
		f(counts)
	})
}

// Round is told how long this process took to give the turns that were due.
func (r *Recorder) Round(took time.Duration) { r.Rounds.took(took) }
