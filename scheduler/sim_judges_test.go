package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
	"github.com/headgate/headgate/throttle/throttletest"
)

// judge shuts all processes down, and finds what is wrong with the history.
func (w *sim) judge() {
	for _, p := range w.processes {
		if !p.dead() {
			p.server.Shutdown()
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.judgeJobs()
	w.judgeMeters()
	w.judgeWaits()
	for _, key := range w.operator.left() {
		w.breaks(w.lanes, 0, w.now(), "%q is left behind", key)
	}
}

// Jobs.

// judgeJobs checks that each job ends once, or twice if a crash explains it, and that no job is
// denied again without an explanation.
func (w *sim) judgeJobs() {
	crashes := 0
	for _, e := range w.events {
		if e.crash {
			crashes++
		}
	}
	for id, job := range w.jobs {
		over := job.deleted || !job.expired.IsZero() || !job.until.IsZero() && time.Now().After(job.until)
		switch {
		case job.runs == 0 && !over:
			w.breaksFor(id, "it never ran")
		case !over && (job.ends == 0 || job.ends > 1+crashes):
			w.breaksFor(id, "it ended %d times", job.ends)
		case !w.has(answers) && job.runs > 1+crashes:
			w.breaksFor(id, "it ran %d times", job.runs)
		}
		// A job is denied once, once more each time that it came while no worker was free or had
		// been since its last denial, and for each event that explains it.
		explained := 1 + job.late + job.again
		for _, e := range w.events {
			if e.explains == nil || e.explains(job.lane) {
				explained += e.times
			}
		}
		if job.denials > explained {
			w.breaksFor(id, "it was denied %d times, and %d of them are explained", job.denials, explained)
		}
	}
	for _, queue := range []string{"one", "two"} {
		if q, err := w.operator.tasks.GetQueueInfo(queue); err == nil && q.Size > q.Archived {
			w.breaks(w.lanes, 0, w.now(), "queue %s: %+v", queue, *q)
		}
		archived, _ := w.operator.tasks.ListArchivedTasks(queue, asynq.PageSize(1000))
		for _, task := range archived {
			if job := w.jobs[task.ID]; job.expired.IsZero() && job.until.IsZero() {
				w.breaksFor(task.ID, "it is archived: %s", task.LastErr)
			}
		}
	}
}

// judgeCrash checks that a job counts as one whose worker died only if its worker may have died.
func (w *sim) judgeCrash(id string) {
	w.noteJob(id, "counts as a job whose worker died")
	if !w.repliesLost() {
		w.breaksFor(id, "its worker counts as dead")
	}
}

// judgeHealed checks that asynq and the limiter agree which jobs wait. A job may be on its way from
// one to the other, but not for two seconds.
func (w *sim) judgeHealed() {
	before := w.disagreements()
	if len(before) == 0 {
		return
	}
	time.Sleep(2 * time.Second)
	after := w.disagreements()
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, how := range after {
		if before[id] == how {
			w.breaksFor(id, "%s", how)
		}
	}
}

// disagreements lists the jobs that only asynq or only the limiter has, and how that is.
func (w *sim) disagreements() map[string]string {
	ctx, all := w.t.Context(), map[string]string{}
	waits := w.operator.limits.HGetAll(ctx, scopePrefix+"jobs").Val()
	for name := range waits {
		queue, id, _ := strings.Cut(name, "\n")
		state := w.operator.rdb.HGet(ctx, asynqdb.Hash(queue, id), "state").Val()
		if !slices.Contains([]string{"retry", "pending", "active"}, state) {
			all[id] = "it waits in the limiter, and asynq does not have it"
		}
	}
	for _, queue := range []string{"one", "two"} {
		for _, z := range w.operator.rdb.ZRangeWithScores(ctx, asynqdb.Key(queue, asynqdb.Retry), 0, -1).Val() {
			id := z.Member.(string)
			denied := w.operator.rdb.HGet(ctx, asynqdb.Hash(queue, id), "denied").Val() == fmt.Sprint(int64(z.Score))
			if denied && waits[queue+"\n"+id] == "" {
				all[id] = "it was denied and waits in asynq, and the limiter does not know it"
			}
		}
	}
	return all
}

// recoveryTime is how long after its lease has ended a dead worker's job may be away: recovery
// looks for it each 5 s, and watches its lease for 10 s.
const recoveryTime = 17 * time.Second

// second lets a second pass, and checks that the records of waiting jobs are in order, and that no
// dead worker has a job for too long while another worker lives. A job that too many workers have
// died of is left to asynq.
func (w *sim) second() {
	time.Sleep(time.Second)
	odd, err := disorder(w.t.Context(), w.operator.limits)
	w.mu.Lock()
	if damaged := slices.ContainsFunc(w.events, func(e simEvent) bool { return e.kind == "records changed" }); err != nil || len(odd) > 0 && !damaged {
		w.breaks(w.lanes, 0, w.now(), "not in order: %q, %v", odd, err)
	}
	lives := slices.ContainsFunc(w.processes, func(p *simProcess) bool {
		return !p.dead() && p.doomed == 0 && !p.leaves && time.Since(p.since) > recoveryTime
	})
	w.mu.Unlock()
	if !lives {
		return
	}
	ctx, db := w.t.Context(), asynqdb.DB{Redis: w.operator.rdb}
	for _, queue := range []string{"one", "two"} {
		leases, _ := db.Leases(ctx, queue, time.Now().Add(-recoveryTime))
		for _, lease := range leases {
			if died, _ := db.Redis.HGet(ctx, asynqdb.Hash(queue, lease.ID), "crashes").Int(); died >= forgivenCrashes {
				continue
			}
			w.mu.Lock()
			w.breaksFor(lease.ID, "its worker has died, and it is not back %s after its lease had ended", time.Since(time.Unix(lease.Ends, 0)))
			w.mu.Unlock()
		}
	}
}

// judgeLock checks that a running job keeps its Unique lock no longer than its producer asked for,
// from when the job was granted.
func (w *sim) judgeLock(id string) {
	w.mu.Lock()
	job := w.jobs[id]
	w.mu.Unlock()
	if job.unique == 0 {
		return
	}
	key := w.operator.rdb.HGet(w.t.Context(), asynqdb.Hash(job.lane.queue, id), "unique_key").Val()
	if left := w.operator.rdb.PTTL(w.t.Context(), key).Val(); left > job.unique+asynqdb.LockMargin+5*time.Second {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.breaksFor(id, "it runs, and its lock of %s lasts for another %s", job.unique, left)
	}
}

// judgeRule checks that the jobs of a lane whose rule changed a while ago wait for what the rule
// says now, once nothing else keeps them from asking.
func (w *sim) judgeRule(l *simLane) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := time.Now(); now.Before(w.calm.Add(time.Second)) || now.Before(w.busy.Add(5*time.Second)) || w.allBusy() {
		time.AfterFunc(2*time.Second, func() { w.judgeRule(l) })
		return
	}
	for id, job := range w.jobs {
		record := w.limiter.HGet(scopePrefix+"jobs", l.queue+"\n"+id)
		if now := w.laneNameOf(job); job.lane == l && job.waits != "" && job.waits != now && strings.HasSuffix(record, "\n"+job.waits) {
			w.breaksFor(id, "it waits in %q, and by its rule in %q", job.waits, now)
		}
	}
}

// Wait deadlines.

// waitDeadline is when a job's wait expires, by the limiter's clock; zero if it never does. The
// limiter gets a deadline that is a second earlier than the job's own.
func (j *simJob) waitDeadline() time.Time { return j.earlier(j.until.Add(-time.Second)) }

// earlier returns the end of a job's MaxWait, or another time if that is earlier.
func (j *simJob) earlier(until time.Time) (end time.Time) {
	if j.maxWait > 0 && !j.since.IsZero() {
		end = j.since.Add(j.maxWait)
	}
	if !j.until.IsZero() && (end.IsZero() || until.Before(end)) {
		end = until
	}
	return end
}

// hurries reports whether the job has a MaxWait or a deadline.
func (j *simJob) hurries() bool { return j.maxWait > 0 || !j.until.IsZero() }

// oneClock reports whether the limiter's clock is the processes', and the limiter has lost nothing:
// only then wait deadlines are judged.
func (w *sim) oneClock() bool {
	return !slices.ContainsFunc(w.events, func(e simEvent) bool {
		return e.lost || e.kind == "clocks stepped" || e.kind == "records changed"
	})
}

// judgeDeadline checks that no job is allowed after its wait deadline. If a reply was lost, it is
// not known since when the job waits. A job that never waited may be allowed in the last second
// before its deadline.
func (w *sim) judgeDeadline(id string, job *simJob, d waitdb.Decision) {
	if end := job.earlier(job.until); !end.IsZero() && d.At.Add(d.BeginIn).After(end) && w.oneClock() && !w.repliesLost() {
		w.breaksFor(id, "it was allowed %s after its wait deadline", d.At.Add(d.BeginIn).Sub(end))
	}
}

// judgeExpired checks that a job learns that it is too late within a second after its wait
// deadline, and not before: no job expires for an estimate.
func (w *sim) judgeExpired(id string, job *simJob, d waitdb.Decision) {
	end := job.waitDeadline()
	switch job.expired = time.Now(); {
	case !job.hurries():
		w.breaksFor(id, "it has no wait deadline: %s", d)
	case job.expired.Sub(end) > time.Second && !job.since.IsZero() && len(w.events) == 0 && !w.allBusy() && w.busy.Before(end):
		w.breaksFor(id, "it expired %s after its wait deadline", job.expired.Sub(end))
	case (end.IsZero() || end.Sub(job.expired) > time.Millisecond) && !w.has(answers) && !w.repliesLost() && w.oneClock():
		w.breaksFor(id, "it expired %s before its wait deadline", end.Sub(job.expired))
	}
	job.waits = ""
	w.leaves(id)
}

// judgeBlock checks that no job is allowed at a blocked meter.
func (w *sim) judgeBlock(meter, id string, d throttle.Decision) {
	for _, b := range w.blocks {
		if b.meter == meter && time.Now().After(b.at) && d.At.Before(b.until) {
			w.breaksFor(id, "it was allowed at %s, which is blocked for %s", meter, b.until.Sub(d.At))
		}
	}
}

// Meters.

// judgeMeters asks the oracle about every meter, between the moments at which its limit changed or
// it was lost: about the permits that it gave, and about the jobs that started. These may start up
// to latestStart after their permits existed, and no later.
func (w *sim) judgeMeters() {
	var servers []*Server
	for _, p := range w.processes {
		servers = append(servers, p.server)
	}
	for meter, admissions := range w.meters {
		name, _, _ := strings.Cut(meter, "|")
		limit := w.defined(name)
		w.judgeSlots(meter, admissions)
		from, own := w.began, false
		for _, e := range append(w.events, simEvent{at: time.Now(), lost: true}) {
			if !e.lost && (e.limit == nil || e.limit.Name != name) || e.meter != "" && e.meter != meter || own && !e.lost && e.meter == "" {
				continue
			}
			own = e.meter != "" || own && e.stays
			permits, starts := w.during(limit, admissions, from, e.at)
			late := latestStart(isWindow(limit), servers...)
			for what, err := range map[string]error{"permits": throttletest.Check(limit, permits), "starts": throttletest.CheckStarts(limit, starts, late)} {
				if err != nil {
					from, to := from.Sub(w.began), e.at.Sub(w.began)
					w.breaks(w.lanesAtMeter(meter), from.Microseconds(), to.Microseconds(), "%s of meter %s, from %s to %s: %v", what, meter, from, to, err)
				}
			}
			switch from = e.at; {
			case e.stays:
			case e.lost:
				limit = w.defined(name)
			default:
				limit = *e.limit
			}
		}
	}
}

// during lists what was admitted from one moment on and before another, by Redis's clock, and what
// started under that. Leases are held at the same time or not whatever the clock shows, but it
// decides when a lease ends that is not given back.
func (w *sim) during(limit throttle.Limit, admissions []*admission, from, to time.Time) (permits, starts []throttletest.Admission) {
	for _, a := range admissions {
		if a.forgotten || a.at.Before(from) || !a.at.Before(to) {
			continue
		}
		judged := throttletest.Admission{At: a.byRedis.UnixMicro(), Cost: a.cost, Debt: a.debt}
		if limit.Kind == throttle.Concurrency {
			until := w.clock.reaches(a.byRedis.Add(limit.Lease), a.at)
			if !a.until.IsZero() && a.until.Before(until) {
				until = a.until
			}
			judged.At, judged.Until = a.at.UnixMicro(), until.UnixMicro()
		}
		permits = append(permits, judged)
		if !a.started.IsZero() {
			if judged.At = a.left.UnixMicro(); limit.Kind == throttle.Concurrency {
				judged.At = min(a.started.UnixMicro(), judged.Until)
			}
			starts = append(starts, judged)
		}
	}
	return permits, starts
}

// Waits of lanes.

const second = time.Second

// heals is how long the effects of a fault may make lanes wait.
var heals = map[string]time.Duration{
	"limits paused": second, "queues paused": 3 * second, "keys blocked": second, "limits hung": 10 * second,
	"limits changed": 2 * second, "leases changed": 2 * second, "limits redefined": 2 * second, "keys set": 2 * second, "limits opened": 2 * second,
	"jobs deleted": 5 * second, "jobs archived": 5 * second, "jobs run by hand": 5 * second, "notifications lost": 6 * second, "rules changed": 5 * second, "failovers": 10 * second,
	"replies lost": 40 * second, "processes died": 45 * second, "processes hung": 45 * second, "processes left": 10 * second, "queues hung": 45 * second,
	"limiters hung": 10 * second, "data lost": 65 * second, "clocks stepped": 65 * second, "records changed": 65 * second,
}

// disturb excuses the waits of lanes for a while.
func (w *sim) disturb(d time.Duration) {
	if end := time.Now().Add(d); end.After(w.calm) {
		w.calm = end
	}
	for _, l := range w.lanes {
		w.history.Excuse(w.now(), l.name, true)
	}
	time.AfterFunc(d, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, l := range w.lanes {
			w.history.Excuse(w.now(), l.name, time.Now().Before(w.calm))
		}
	})
}

// judgeWaits checks that no lane waited for more than 6 rounds without an explanation. Two lanes
// that are one for the limiter share its turns.
func (w *sim) judgeWaits() {
	w.history.End(w.now())
	for i, l := range w.lanes {
		is := func(o *simLane) bool { return o.is(l.queue, l.meters()) }
		if slices.ContainsFunc(w.lanes[:i], is) || slices.ContainsFunc(w.lanes[i+1:], is) || w.mayStarve(l) {
			continue
		}
		its := w.history.Lane(l.name)
		waited := microseconds(its.Worst)
		rounds := waited.Seconds() / w.round(l).Seconds()
		if rounds > 6 {
			w.breaks(w.sharing(l), its.WorstAt-its.Worst, its.WorstAt, "%s waited %s, %.1f rounds", l.name, waited, rounds)
		}
	}
}

// mayStarve reports whether there is no bound for a lane's wait: a strict queue goes before its
// own, its jobs needed something else before, or a job was archived without asking after its
// deadline.
func (w *sim) mayStarve(l *simLane) bool {
	for queue, weight := range w.config.Queues {
		if w.has(strict) && queue != l.queue && weight >= w.config.Queues[l.queue] {
			return true
		}
	}
	for _, job := range w.jobs {
		if job.lane == l && job.admits == 0 && !job.deleted && job.expired.IsZero() {
			return true
		}
	}
	return !l.ruleChanged.IsZero()
}

// round is what a full round of a lane's slowest meter takes: a turn of every lane that needs it. A
// turn takes as long as its permits need to come again, or as its handler runs. Workers take a poll
// and the handlers of all lanes.
func (w *sim) round(l *simLane) (round time.Duration) {
	workers := time.Duration(0)
	for _, o := range w.lanes {
		workers += o.takes + w.config.TaskCheckInterval
	}
	for _, need := range l.needs {
		sum := workers
		for _, o := range w.lanes {
			for _, n := range o.needs {
				if n.Limit == need.Limit && n.Key == need.Key {
					sum += w.turn(o, w.dearest(o, n))
				}
			}
		}
		for _, c := range w.callers {
			if c.need.Limit == need.Limit && c.need.Key == need.Key {
				sum += w.turn(l, c.need)
			}
		}
		round = max(round, sum)
	}
	return round
}

// dearest is what the dearest job of a lane takes of a meter.
func (w *sim) dearest(l *simLane, n throttle.Need) throttle.Need {
	for _, job := range w.jobs {
		if job.lane == l {
			for _, o := range w.ruleOf(job).Needs {
				if o.Limit == n.Limit && o.Key == n.Key {
					n.Cost = max(n.Cost, o.Cost)
				}
			}
		}
	}
	return n
}

// turn is how long a lane's turn keeps a meter busy, by the slowest that its limit has been. A
// window gives all its permits at once, once each period.
func (w *sim) turn(l *simLane, n throttle.Need) (longest time.Duration) {
	limits := []throttle.Limit{w.defined(n.Limit)}
	for _, e := range w.events {
		if e.limit != nil && e.limit.Name == n.Limit {
			limits = append(limits, *e.limit)
		}
	}
	for _, limit := range limits {
		turn := limit.Rate.Per
		switch limit.Kind {
		case throttle.Concurrency:
			turn = l.takes + w.config.TaskCheckInterval
		case throttle.Funnel, throttle.TokenBucket:
			turn = time.Duration(n.Cost) * limit.Rate.Per / time.Duration(limit.Rate.N)
		}
		longest = max(longest, turn)
	}
	return longest
}

// simTenants are the fairness keys that jobs may have, and their weights.
var simTenants = map[string]int{"": 1, "acme": 4, "a|b": 2}

// laneNameOf is the lane of a job as the limiter names it.
func (w *sim) laneNameOf(job *simJob) string {
	rule := w.ruleOf(job)
	needs, _ := throttle.Normalize(rule.Needs...)
	meters := make([]string, len(needs))
	for i, n := range needs {
		meters[i] = n.Limit + "|" + n.Key
	}
	return fairqueue.Lane(job.lane.queue, meters, fairqueue.FairnessLine(rule.FairnessKey, rule.FairnessWeight))
}
