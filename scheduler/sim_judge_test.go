package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/throttle"
	"github.com/headgate/headgate/throttle/throttletest"
)

// shutdown has all processes leave.
func (w *sim) shutdown() {
	for _, p := range w.processes {
		if !p.dead() {
			p.server.Shutdown()
		}
	}
}

// judge says what is wrong with the history.
func (w *sim) judge() {
	w.shutdown()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.judgeJobs()
	w.judgeMeters()
	w.judgeWaits()
	w.judgeForecasts()
	w.judgeShares()
	for _, key := range w.hand.left() {
		w.breaks(w.lanes, 0, w.now(), "%q is left behind", key)
	}
}

// judgeJobs sees that each job ends once, or twice where a crash explains it, and
// that no more are denied again than something explains.
func (w *sim) judgeJobs() {
	crashes := 0
	for _, e := range w.events {
		if e.crash {
			crashes++
		}
	}
	for id, job := range w.jobs {
		over := job.deleted || !job.ended.IsZero() || !job.until.IsZero() && time.Now().After(job.until)
		switch {
		case job.runs == 0 && !over:
			w.breaksFor(id, "it never ran")
		case !over && (job.ends == 0 || job.ends > 1+crashes):
			w.breaksFor(id, "it ended %d times", job.ends)
		case !w.has(answers) && job.runs > 1+crashes:
			w.breaksFor(id, "it ran %d times", job.runs)
		}
		if explained := w.explained(job); job.denials > explained {
			w.breaksFor(id, "it was denied %d times, of which %d are explained", job.denials, explained)
		}
	}
	for _, queue := range []string{"one", "two"} {
		if q, err := w.hand.tasks.GetQueueInfo(queue); err == nil && q.Size > q.Archived {
			w.breaks(w.lanes, 0, w.now(), "queue %s: %+v", queue, *q)
		}
		archived, _ := w.hand.tasks.ListArchivedTasks(queue, asynq.PageSize(1000))
		for _, task := range archived {
			if job := w.jobs[task.ID]; job.ended.IsZero() && job.until.IsZero() {
				w.breaksFor(task.ID, "it is archived: %s", task.LastErr)
			}
		}
	}
}

// crashed sees that no job counts as one whose worker died unless one may have.
func (w *sim) crashed(id string) {
	w.tell(id, "taken for one whose worker died")
	if !w.unheard() {
		w.breaksFor(id, "its worker counts as dead")
	}
}

// judgeHealed sees that asynq and the limiter agree about who waits. A job may be on its
// way from one to the other, but not for two seconds.
func (w *sim) judgeHealed() {
	before := w.torn()
	if len(before) == 0 {
		return
	}
	time.Sleep(2 * time.Second)
	after := w.torn()
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, how := range after {
		if before[id] == how {
			w.breaksFor(id, "%s", how)
		}
	}
}

// torn lists the jobs that either asynq or the limiter has and the other does not, and how
// that is.
func (w *sim) torn() map[string]string {
	ctx, all := w.t.Context(), map[string]string{}
	waits := w.hand.limits.HGetAll(ctx, "hg:{default}:jobs").Val()
	for name := range waits {
		queue, id, _ := strings.Cut(name, "\n")
		state := w.hand.rdb.HGet(ctx, asynqdb.Hash(queue, id), "state").Val()
		if !slices.Contains([]string{"retry", "pending", "active"}, state) {
			all[id] = "it waits in the limiter, and asynq does not have it"
		}
	}
	for _, queue := range []string{"one", "two"} {
		for _, z := range w.hand.rdb.ZRangeWithScores(ctx, asynqdb.Key(queue, asynqdb.Retry), 0, -1).Val() {
			id := z.Member.(string)
			denied := w.hand.rdb.HGet(ctx, asynqdb.Hash(queue, id), "denied").Val() == fmt.Sprint(int64(z.Score))
			if denied && waits[queue+"\n"+id] == "" {
				all[id] = "it was denied and waits in asynq, and the limiter does not know it"
			}
		}
	}
	return all
}

// explained is how often a job may be denied: once, once more each time that it
// came while no worker was free or had been since it was denied before, and for
// each event that explains it.
func (w *sim) explained(job *simJob) int {
	times := 1 + job.late + job.again
	for _, e := range w.events {
		if e.whose == nil || e.whose(job.lane) {
			times += e.times
		}
	}
	return times
}

// judgeMeters asks the oracle about every meter, between the moments at which its
// limit changed or it was lost: about the permits that it gave, and about the jobs that
// started. Those may start as late as freshTime after their permits existed, and no later.
func (w *sim) judgeMeters() {
	for meter, admissions := range w.meters {
		name, _, _ := strings.Cut(meter, "|")
		limit := w.defined(name)
		from, own := w.began, false
		for _, e := range append(w.events, simEvent{at: time.Now(), lost: true}) {
			if !e.lost && (e.limit == nil || e.limit.Name != name) || e.meter != "" && e.meter != meter || own && !e.lost && e.meter == "" {
				continue
			}
			own = e.meter != "" && !e.unset || own && e.stays
			permits, starts := w.during(limit, admissions, from, e.at)
			for what, err := range map[string]error{"permits": throttletest.Check(limit, permits), "starts": throttletest.CheckStarts(limit, starts, freshTime)} {
				if err != nil {
					from, to := from.Sub(w.began), e.at.Sub(w.began)
					w.breaks(w.lanesAt(meter), from.Microseconds(), to.Microseconds(), "%s of meter %s, from %s to %s: %v", what, meter, from, to, err)
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

// defined is a limit as the config says.
func (w *sim) defined(name string) throttle.Limit {
	return w.limits[slices.IndexFunc(w.limits, func(l throttle.Limit) bool { return l.Name == name })]
}

// during lists what was admitted from one moment on and before another, as Redis's
// clock has it, and what started under that. Leases are held at the same time or not whatever the clock shows,
// but it decides when one ends that is not given back.
func (w *sim) during(limit throttle.Limit, admissions []*admission, from, to time.Time) (permits, starts []throttletest.Admission) {
	for _, a := range admissions {
		if a.at.Before(from) || !a.at.Before(to) {
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
		if a.debt {
			starts = append(starts, judged)
		} else if !a.started.IsZero() {
			if judged.At = a.left.UnixMicro(); limit.Kind == throttle.Concurrency {
				judged.At = min(a.started.UnixMicro(), judged.Until)
			}
			starts = append(starts, judged)
		}
	}
	return permits, starts
}
