package scheduler

import (
	"context"
	"errors"
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
	needs       []throttle.Need
	takes       time.Duration // by its handler
	even        bool          // no job goes before others
	mayExpire   bool          // most jobs have a wait deadline, of up to patience
	patience    time.Duration
	jobs, open  int       // open: enqueued and not admitted
	ruleChanged time.Time // last
}

// simJob is a job, and what became of it.
type simJob struct {
	simOrder
	lane                  *simLane
	runs, denials, admits int
	denied                time.Time // last
	late                  int       // denials since workers were busy
	again                 int       // times that it had to ask again
	ends                  int       // runs after which it was done
	deleted               bool
	running               int       // handlers
	lostEnd, ranLong      bool      // whether the reply to a write-back of the job was lost, and whether its next attempt took minutes
	since                 time.Time // when its wait began, by the limiter's clock; zero if it does not wait
	expired               time.Time // when it learned that it is too late
	until                 time.Time // its deadline; zero is none
	waits                 string    // the lane that it waits in
	came, last            int64     // when it was enqueued, and when anything happened to it last
}

// simOrder is what a job is enqueued with, and what its handler does.
type simOrder struct {
	dear     float64 // its cost, as a part of what its limits give at once
	takes    time.Duration
	maxRetry int
	priority PriorityLevel
	maxWait  time.Duration
	deadline time.Duration // from when it is enqueued
	timeout  time.Duration
	outlives bool // its first handler outlives its Timeout, and it needs more from then on
	unique   time.Duration
	tenant   string
}

// admission is what one job took of one meter.
type admission struct {
	at, until time.Time
	byRedis   time.Time // when its permits began to exist, by the limiter's clock
	started   time.Time // when its handler began; zero if it did not
	left      time.Time // the same by the limiter's clock
	ended     time.Time // when its handler returned, or was told to stop; zero if its process died first
	cost      int
	holder    string
	job       string
	settles   int  // how many of its permits its job has not used, and will give back
	debt      bool // what a job needed in addition
	forgotten bool // the meter was reset or lost since
}

func (w *sim) lane(i int) *simLane {
	l := &simLane{queue: []string{"one", "two"}[w.rand.IntN(2)], jobs: between(w.rand, 1, 30)}
	if w.rand.IntN(3) == 0 {
		l.takes = milliseconds(between(w.rand, 1, 400))
	}
	l.needs = w.needs()
	l.name = fmt.Sprintf("lane %d", i)
	if w.has(settling) { // long enough for a fault
		l.takes = max(l.takes, milliseconds(200+int(l.takes.Milliseconds())))
	}
	l.even = w.rand.IntN(2) == 0
	if w.has(patience) {
		l.mayExpire, l.patience = w.rand.IntN(3) > 0, milliseconds(between(w.rand, 1000, 30_000))
	}
	return l
}

// key draws a key.
func (w *sim) key() string { return []string{"", "xn--mnchen-3ya.x", "::1"}[w.rand.IntN(3)] }

// needs draws what the jobs of a lane need at least.
func (w *sim) needs() (needs []throttle.Need) {
	for _, k := range w.rand.Perm(len(w.limits))[:between(w.rand, 1, min(3, len(w.limits)))] {
		limit := w.limits[k]
		need := throttle.Need{Limit: limit.Name, Key: w.key(), Cost: 1}
		if most := min(3, capacityOf(limit)); !w.has(costs) {
			need.Cost = between(w.rand, 1, most)
		}
		needs = append(needs, need)
	}
	return needs
}

// order draws what a job is to be.
func (w *sim) order(l *simLane, id string) (o simOrder) {
	r := w.dice(id, 0)
	o.priority = []PriorityLevel{PriorityNormal, PriorityNormal, PriorityNormal, PriorityHigh, PriorityLow}[r.IntN(5)]
	if l.even {
		o.priority = PriorityNormal
	}
	o.maxRetry, o.takes = r.IntN(2), l.takes
	if w.has(costs) && r.IntN(2) == 0 {
		o.dear = r.Float64()
	}
	if w.has(patience) && l.mayExpire && r.IntN(3) > 0 {
		o.maxWait = l.patience / 4 * time.Duration(between(r, 1, 4))
		if r.IntN(4) == 0 {
			o.maxWait, o.deadline = 0, (o.maxWait + 2*time.Second).Truncate(time.Second)
		}
	}
	if w.has(locks) {
		o.unique = time.Duration(between(r, 1, 30)) * time.Second
	}
	if w.isCrowd(l) {
		if o.dear = 0.1; r.IntN(8) == 0 {
			o.dear = settlersCost
		}
	}
	w.outlasts(l, &o, r)
	if w.has(timeouts) {
		o.timeout = o.takes.Truncate(time.Second) + time.Duration(between(r, 2, 4))*time.Second
		o.outlives = w.has(answers) && r.IntN(3) == 0
		if w.has(answers) {
			o.maxRetry = 10
		}
	}
	if w.has(fairness) {
		o.tenant = []string{"", "acme", "a|b"}[r.IntN(3)]
	}
	return o
}

// rule is what a job needs now.
func (w *sim) rule(task *asynq.Task) (Rule, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ruleOf(w.jobs[string(task.Payload())]), nil
}

func (w *sim) ruleOf(job *simJob) Rule {
	rule := Rule{Needs: slices.Clone(job.lane.needs), MaxWait: job.maxWait, FairnessKey: job.tenant, FairnessWeight: simTenants[job.tenant]}
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
		rule.Needs[i].Cost += int(math.Round(job.dear * float64(capacityOf(w.defined(n.Limit))-n.Cost)))
	}
	return rule
}

// jobID names the n-th job: some have names that could be keys, lines or numbers.
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
	w.noteJob(id, "enqueued")
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
	w.operator.enqueue(NewTask("job", []byte(id), Priority(job.priority)), opts...)
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

// asked notes what the limiter answered to a job.
func (w *sim) asked(asks waitdb.Job, needs []throttle.Need, d waitdb.Decision) {
	w.mu.Lock()
	defer w.mu.Unlock()
	job := w.jobs[asks.ID]
	switch d.Outcome {
	case throttle.Denied:
		if job.denials++; job.denials > 1 && (w.allBusy() || !w.busy.Before(job.denied)) {
			job.late++
		}
		job.waits = w.laneNameOf(job)
		if job.denied = time.Now(); job.since.IsZero() {
			job.since = d.At
		}
		w.noteJob(asks.ID, "denied for the %d. time by %s|%s: retry after %s", job.denials, d.Limit, d.Key, d.RetryAfter)
	case throttle.Allowed:
		if other := w.before(job); job.denials+job.again == 0 && !job.outlives && other != "" && !w.repliesLost() {
			w.breaks(w.sharing(job.lane), w.jobs[other].came, w.now(), "%s was allowed, and %s of %s waits", asks.ID, other, job.lane.name)
		}
		w.judgeDeadline(asks.ID, job, d)
		w.leaves(asks.ID)
		job.admits++
		job.since, job.waits = time.Time{}, ""
		for _, need := range needs {
			w.admit(need, d.Decision, asks.ID)
		}
	case throttle.Expired:
		w.noteJob(asks.ID, "answered: %s", d)
		w.judgeExpired(asks.ID, job, d)
	default:
		w.noteJob(asks.ID, "answered: %s", d)
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
func (w *sim) admit(need throttle.Need, d throttle.Decision, id string) {
	meter := need.Limit + "|" + need.Key
	a := &admission{at: time.Now(), byRedis: d.At.Add(d.BeginIn), cost: need.Cost, holder: d.Holder, job: id}
	a.forgotten = a.byRedis.Before(w.forgot[meter]) // the reply came late
	w.meters[meter] = append(w.meters[meter], a)
	w.judgeBlock(meter, id, d)
}

// freed notes that leases are given back.
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

// limited notes a 429 that was reported to the limiter.
func (w *sim) limited(j waitdb.Job, r waitdb.RateLimit, d waitdb.Decision) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if job := w.jobs[j.ID]; d.Outcome == throttle.Expired && job.hurries() {
		job.expired = time.Now()
	} else if d.Outcome != throttle.Denied {
		w.breaksFor(j.ID, "after a 429: %s", d)
	} else {
		job.since = d.At
	}
	w.disturb(d.RetryAfter + 2*time.Second)
	w.noteJob(j.ID, "got a 429 for %s: retry after %s", r.For, d.RetryAfter)
	for _, n := range r.Blocks {
		if r.For >= 0 {
			w.blocks = append(w.blocks, simBlock{n.Limit + "|" + n.Key, time.Now(), d.At.Add(r.For)})
		}
	}
}

// before returns a job that waits in the lane of another, since before now. A job whose record was
// lost, or whose rule has changed, has to ask once more.
func (w *sim) before(job *simJob) string {
	for _, key := range w.limiter.Keys() {
		if !strings.HasPrefix(key, scopePrefix+"lane:"+job.lane.queue+"\n") {
			continue
		}
		waiting, _ := w.limiter.ZMembers(key)
		for _, id := range waiting {
			if o := w.jobs[id]; o != nil && o.lane == job.lane && o.tenant == job.tenant && o.denied.After(latest(w.flushed, o.lane.ruleChanged)) && o.denied.Before(time.Now()) && !o.outlives {
				return id
			}
		}
	}
	return ""
}

// allBusy reports whether no worker is free. The workers of a process that hangs are not.
func (w *sim) allBusy() bool {
	return !slices.ContainsFunc(w.processes, func(p *simProcess) bool {
		return !p.dead() && !p.leaves && p.running < w.config.Concurrency && !time.Now().Before(p.since)
	})
}

// handle is what all jobs do.
func (w *sim) handle(ctx context.Context, p *simProcess, id string) error {
	w.mu.Lock()
	w.handlers.Add(1)
	defer w.handlers.Done()
	job := w.jobs[id]
	first := job.runs == 0
	job.runs++
	job.running++
	p.running++
	if job.running > 1 && job.lostEnd && !w.crashed() {
		w.breaksFor(id, "it runs twice at once")
	}
	w.noteJob(id, "running in process %d", p.index)
	taken := w.starts(ctx, id)
	if ctx.Err() != nil {
		w.breaksFor(id, "its handler began when its context was over: %v", ctx.Err())
	}
	w.mu.Unlock()
	settle := w.settlement(id, taken)
	context.AfterFunc(ctx, func() { w.ends(taken) })
	w.judgeLock(id)
	w.excuse(job)
	time.Sleep(job.takes)
	settle(ctx)
	w.runLong(job)
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
	job.running--
	w.mu.Unlock()
	w.ends(taken)
	return w.answer(ctx, id)
}

// starts notes when a job's call leaves, and under which permits, because that is what limits are
// for. By the limiter's clock that is not judged if the clock has stepped since. It returns what the job
// has taken.
func (w *sim) starts(ctx context.Context, id string) (its map[throttle.Need]*admission) {
	its = map[throttle.Need]*admission{}
	d, _ := GetDecision(ctx)
	if len(d.Taken) == 0 {
		w.breaksFor(id, "its handler began without permits")
	}
	from := d.At.Add(d.BeginIn)
	h, _ := ctx.Value(attemptKey{}).(*attempt)
	latest := latestStart(h.decision.Windowed, h.scope.Server)
	for _, taken := range d.Taken {
		all := w.meters[taken.Limit+"|"+taken.Key]
		i := slices.IndexFunc(all, func(a *admission) bool {
			return a.job == id && a.started.IsZero() && a.byRedis.Equal(from)
		})
		if i < 0 {
			w.breaksFor(id, "its handler began under permits of %s that it was not given, or twice", taken.Limit)
			continue
		}
		a := all[i]
		its[throttle.Need{Limit: taken.Limit, Key: taken.Key}] = a
		a.started, a.left = time.Now(), a.byRedis
		if ahead, steady := w.clock.now(a.started.Add(-10 * time.Second)); steady {
			a.left = a.started.Add(ahead)
			if late := a.left.Sub(a.byRedis); late > latest || late < 0 {
				w.breaksFor(id, "its handler began %s after its permits existed", late)
			}
		}
	}
	return its
}

// mostAnswers is how often a job may end in another way than that it is done.
const mostAnswers = 3

// answer is what a handler returns.
func (w *sim) answer(ctx context.Context, id string) error {
	w.mu.Lock()
	job := w.jobs[id]
	dice := w.dice(id, job.runs)
	done, much := !w.has(answers) || job.again >= mostAnswers, dice.IntN(3000)
	w.mu.Unlock()
	h, _ := ctx.Value(attemptKey{}).(*attempt)
	// A job that alone is refused a third time fails.
	mayRefuse := h.refusals.count < mostRefusals || h.retried < h.maxRetry
	rateLimited := func() {
		w.asksAgain(job)
		w.note(simEvent{kind: "429s", text: id + " gets a 429", explains: lanesAt(h.rule.blockedNeeds()...)})
	}
	if job.outlives && ctx.Err() != nil {
		rateLimited()
		return RateLimited(time.Now().Add(milliseconds(much)))
	}
	why := []string{"429", "429 \xff"}[dice.IntN(2)] // not all upstreams answer in UTF-8
	switch dice := dice.IntN(100); {
	case done, dice < 14 && !mayRefuse:
	case dice < 10:
		rateLimited()
		return fmt.Errorf("%s: %w", why, RateLimited(time.Now().Add(milliseconds(much))))
	case dice < 14:
		rateLimited()
		return RateLimited(time.Time{})
	case dice < 20:
		w.asksAgain(job)
		return fmt.Errorf("%s: %w", why, RetryAfter(0))
	case dice < 24:
		w.asksAgain(job)
		return RetryAfter(milliseconds(much))
	case dice < 30 && h.retried < h.maxRetry:
		w.asksAgain(job)
		return errors.New("failed")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	job.ends++
	return nil
}

// asksAgain notes that a job may be denied once more.
func (w *sim) asksAgain(job *simJob) {
	w.mu.Lock()
	defer w.mu.Unlock()
	job.again++
	job.denied = time.Now()
}
