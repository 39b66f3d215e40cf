package scheduler

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// simLane makes jobs that need the same.
type simLane struct {
	name, queue string
	parsed      []throttle.Need
	takes       time.Duration // by its handler
	even        bool          // no job goes before others
	impatient   bool
	patience    time.Duration
	jobs, open  int       // open: enqueued and not admitted
	ruled       time.Time // when its rule changed last
}

// simJob is one of them, and what became of it.
type simJob struct {
	simOrder
	lane                  *simLane
	runs, denials, admits int
	denied                time.Time // last
	late                  int       // denials since workers were busy
	again                 int       // times that it had to ask anew
	ends                  int       // runs after which it was done
	deleted               bool
	since                 time.Time // when its wait began, by the limiter's clock; zero where it does not wait
	ended                 time.Time // when it was told that it is too late
	until                 time.Time // until when it was enqueued to be done; zero is any time
	ran                   time.Time // when it ran first
	crowded               bool      // all workers were busy while it waited for that
	told                  int64     // when it was to run, as it was told first
	waits                 string    // the lane that it waits in
	came, last            int64     // when it was enqueued, and when anything happened to it last
}

// admission is what one job took of one meter.
type admission struct {
	at, until time.Time
	byRedis   time.Time // from when on its permits existed, by the limiter's clock
	started   time.Time // when its handler began; zero if it did not
	left      time.Time // the same by the limiter's clock
	cost      int
	holder    string
	job       string
	debt      bool
}

func (w *sim) lane(i int) *simLane {
	l := &simLane{queue: []string{"one", "two"}[w.rand.IntN(2)], jobs: between(w.rand, 1, 30)}
	if w.rand.IntN(3) == 0 {
		l.takes = milliseconds(between(w.rand, 1, 400))
	}
	l.parsed = w.needs()
	l.name = fmt.Sprintf("lane %d", i)
	l.even = w.rand.IntN(2) == 0
	if w.has(settles) {
		l.takes = milliseconds(between(w.rand, 1, 3000))
	}
	if w.has(patience) {
		l.impatient, l.patience = w.rand.IntN(3) > 0, milliseconds(between(w.rand, 1000, 30_000))
	}
	return l
}

// needs draws what the jobs of a lane need, where they cost as little as they can.
func (w *sim) needs() (needs []throttle.Need) {
	for _, k := range w.rand.Perm(len(w.limits))[:between(w.rand, 1, min(3, len(w.limits)))] {
		limit := w.limits[k]
		need := throttle.Need{Limit: limit.Name, Key: w.host(), Cost: 1}
		if most := min(3, capacityOf(limit)); !w.has(costs) {
			need.Cost = between(w.rand, 1, most)
		}
		needs = append(needs, need)
	}
	return needs
}

// rule is what a job needs now.
func (w *sim) rule(task *asynq.Task) (Rule, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ruleOf(w.jobs[string(task.Payload())]), nil
}

func (w *sim) ruleOf(job *simJob) Rule {
	rule := Rule{Needs: slices.Clone(job.lane.parsed), MaxWait: job.maxWait, FairnessKey: job.tenant, FairnessWeight: simTenants[job.tenant]}
	if job.dear > 0.5 {
		rule.OnMaxWait = ActionDrop
	}
	if job.outlives && job.runs > 0 {
		for _, limit := range w.limits {
			if !slices.ContainsFunc(rule.Needs, func(n throttle.Need) bool { return n.Limit == limit.Name }) {
				rule.Needs = append(rule.Needs, throttle.Need{Limit: limit.Name, Cost: 1})
				break
			}
		}
	}
	for i, n := range rule.Needs {
		rule.Needs[i].Key = keyOf(n.Key, job.form)
		rule.Needs[i].Cost += int(math.Round(job.dear * float64(capacityOf(w.defined(n.Limit))-n.Cost)))
	}
	return rule
}

// handle is what all jobs do.
func (w *sim) handle(ctx context.Context, p *simProcess, id string) error {
	w.mu.Lock()
	w.handlers.Add(1)
	defer w.handlers.Done()
	job := w.jobs[id]
	first := job.runs == 0
	if job.runs++; first {
		job.ran = time.Now()
		job.crowded = !w.busy.Before(w.began.Add(microseconds(job.came)))
	}
	p.running++
	w.tell(id, "running in process %d", p.index)
	w.starts(ctx, id)
	if ctx.Err() != nil {
		w.breaksFor(id, "its handler began when its context was over: %v", ctx.Err())
	}
	w.mu.Unlock()
	w.judgeLock(id)
	for _, s := range job.settles {
		time.Sleep(s.after)
		w.settle(ctx, id, s)
	}
	time.Sleep(job.takes / time.Duration(len(job.settles)+1))
	if job.outlives && first {
		over := job.timeout + milliseconds(w.dice(id, -1).IntN(10_000))
		w.mu.Lock()
		w.disturb(over + time.Second) // it may hold a lease that others wait for
		w.mu.Unlock()
		time.Sleep(over)
	}
	if p.dead() {
		<-p.released
	}
	w.mu.Lock()
	if w.allBusy() {
		w.busy = time.Now()
	}
	p.running--
	w.mu.Unlock()
	return w.answer(ctx, id)
}

// starts is the witness of what limits are for: it notes when a job's call leaves, and under
// which permits. By the limiter's clock that is not judged if the clock has stepped since.
func (w *sim) starts(ctx context.Context, id string) {
	d, _ := GetDecision(ctx)
	if len(d.Taken) == 0 {
		w.breaksFor(id, "its handler began without permits")
	}
	from := d.At.Add(d.BeginIn)
	for _, taken := range d.Taken {
		all := w.meters[taken.Limit+"|"+hostOf(taken.Key)]
		i := slices.IndexFunc(all, func(a *admission) bool {
			return a.job == id && !a.debt && a.started.IsZero() && a.byRedis.Equal(from)
		})
		if i < 0 {
			w.breaksFor(id, "its handler began under permits of %s that it was not given, or twice", taken.Limit)
			continue
		}
		a := all[i]
		a.started, a.left = time.Now(), a.byRedis
		if ahead, steady := w.clock.now(a.started.Add(-10 * time.Second)); steady {
			a.left = a.started.Add(ahead)
			if late := a.left.Sub(a.byRedis); late > freshTime || late < 0 {
				w.breaksFor(id, "its handler began %s after its permits existed", late)
			}
		}
	}
}

// allBusy reports whether no worker is free. Those of a process that hangs are not.
func (w *sim) allBusy() bool {
	return !slices.ContainsFunc(w.processes, func(p *simProcess) bool {
		return !p.dead() && !p.leaves && p.running < w.config.Concurrency && !time.Now().Before(p.since)
	})
}

func (w *sim) asked(asks waitdb.Job, needs []throttle.Need, d waitdb.Decision) {
	w.mu.Lock()
	defer w.mu.Unlock()
	job := w.jobs[asks.ID]
	switch d.Outcome {
	case throttle.Denied:
		if job.denials++; job.denials > 1 && (w.allBusy() || !w.busy.Before(job.denied)) {
			job.late++
		}
		if job.waits == "" {
			w.turned = append(w.turned, simTurn{lane: w.lineOf(job)})
		}
		job.waits = w.lineOf(job)
		if job.denied = time.Now(); job.since.IsZero() {
			job.since = d.At
		}
		if job.told == 0 {
			job.told = w.now() + d.RetryAfter.Microseconds()
		}
		w.tell(asks.ID, "denied for the %d. time by %s|%s: retry after %s", job.denials, d.Limit, d.Key, d.RetryAfter)
	case throttle.Allowed:
		if other := w.before(job); job.denials+job.again == 0 && !job.outlives && other != "" && !w.unheard() {
			w.breaks(w.near(job.lane), w.jobs[other].came, w.now(), "%s was let by, and %s of %s waits", asks.ID, other, job.lane.name)
		}
		w.judgePatience(asks.ID, job, d)
		w.leaves(asks.ID)
		job.admits++
		job.since, job.waits = time.Time{}, ""
		for _, need := range needs {
			w.admit(need, d.Decision, asks.ID)
		}
	case throttle.Expired:
		w.tell(asks.ID, "told: %s", d)
		w.tooLate(asks.ID, job, d)
	default:
		w.tell(asks.ID, "told: %s", d)
		w.breaksFor(asks.ID, "%s", d)
	}
}

// leaves notes that a job does not wait any more.
func (w *sim) leaves(id string) {
	l := w.jobs[id].lane
	if w.jobs[id].admits == 0 {
		l.open--
	}
	w.history.Turn(w.now(), l.name, id, l.open > 0)
}

// admit notes that permits of a meter were given.
func (w *sim) admit(need throttle.Need, d throttle.Decision, id string) *admission {
	meter := need.Limit + "|" + hostOf(need.Key)
	a := &admission{at: time.Now(), byRedis: d.At.Add(d.BeginIn), cost: need.Cost, holder: d.Holder, job: id}
	w.meters[meter] = append(w.meters[meter], a)
	w.judgeShut(meter, id, d)
	return a
}

// unheard reports whether a job may have been denied and nobody heard of it.
func (w *sim) unheard() bool {
	return slices.ContainsFunc(w.events, func(e simEvent) bool { return e.crash || e.unheard })
}

// before returns a job that waits in the lane of another, since before now. One that the
// limiter's data were lost of has to come once more, and one whose rule has changed.
func (w *sim) before(job *simJob) string {
	for _, key := range w.limiter.Keys() {
		if !strings.HasPrefix(key, "hg:{default}:lane:"+job.lane.queue+"\n") {
			continue
		}
		waiting, _ := w.limiter.ZMembers(key)
		for _, id := range waiting {
			if o := w.jobs[id]; o != nil && o.lane == job.lane && o.tenant == job.tenant && o.denied.After(latest(w.flushed, o.lane.ruled)) && o.denied.Before(time.Now()) && !o.outlives {
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

// jobID names the n-th job: some have names that would be keys, lines or numbers.
func jobID(n int) string {
	return fmt.Sprintf("job%d%s", n, []string{"", "", "", "", "\n2", "|limit0|", " {one}:t", "é\x00"}[n%8])
}

// enqueue adds a job to a lane.
func (w *sim) enqueue(l *simLane) {
	w.mu.Lock()
	id := jobID(len(w.jobs))
	job := &simJob{lane: l, simOrder: w.order(l, id), came: w.now()}
	w.jobs[id] = job
	if l.open++; l.open == 1 {
		w.history.Waits(w.now(), l.name)
	}
	w.tell(id, "enqueued")
	opts := []asynq.Option{asynq.TaskID(id), asynq.Queue(l.queue), asynq.MaxRetry(job.maxRetry)}
	if job.deadline > 0 {
		job.until = time.Now().Add(job.deadline).Truncate(time.Second) // as asynq keeps it
		opts = append(opts, asynq.Deadline(job.until))
	}
	if job.timeout > 0 {
		opts = append(opts, asynq.Timeout(job.timeout))
	}
	if job.unique > 0 {
		opts = append(opts, asynq.Unique(job.unique))
	}
	w.mu.Unlock()
	w.hand.enqueue(NewTask("job", []byte(id), Priority(job.priority)), opts...)
}

// ids lists the jobs, from a random one on.
func (w *sim) ids() (ids []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	first := w.rand.IntN(len(w.jobs))
	for i := range len(w.jobs) {
		ids = append(ids, jobID((first+i)%len(w.jobs)))
	}
	return ids
}
