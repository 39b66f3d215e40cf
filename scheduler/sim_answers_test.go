package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// mostAnswers is how often a job may say something else than that it is done.
const mostAnswers = 3

// answer is what a handler says in the end.
func (w *sim) answer(ctx context.Context, id string) error {
	w.mu.Lock()
	job := w.jobs[id]
	dice := w.dice(id, job.runs)
	done, much := !w.has(answers) || job.again >= mostAnswers, dice.IntN(3000)
	w.mu.Unlock()
	h, _ := attemptOf(ctx)
	if job.outlives && ctx.Err() != nil {
		w.refuse(job, id, h.rule.blockedNeeds())
		return RateLimited(time.Now().Add(milliseconds(much)))
	}
	why := []string{"429", "429 \xff"}[dice.IntN(2)] // not all sides answer in UTF-8
	switch dice := dice.IntN(100); {
	case done:
	case dice < 10:
		w.refuse(job, id, h.rule.blockedNeeds())
		return fmt.Errorf("%s: %w", why, RateLimited(time.Now().Add(milliseconds(much))))
	case dice < 14:
		w.refuse(job, id, h.rule.blockedNeeds())
		return RateLimited(time.Time{})
	case dice < 20:
		w.comesAgain(job)
		return fmt.Errorf("%s: %w", why, RetryAfter(0))
	case dice < 24:
		w.comesAgain(job)
		return RetryAfter(milliseconds(much))
	case dice < 30 && h.retried < h.maxRetry:
		w.comesAgain(job)
		return errors.New("failed")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	job.ends++
	return nil
}

// comesAgain notes that a job may be denied once more.
func (w *sim) comesAgain(job *simJob) {
	w.mu.Lock()
	defer w.mu.Unlock()
	job.again++
	job.denied = time.Now()
}

// refuse notes that the other side refuses a job's call.
func (w *sim) refuse(job *simJob, id string, shuts []throttle.Need) {
	w.comesAgain(job)
	w.note(simEvent{kind: "jobs refused", text: id + " is refused", whose: lanesAt(shuts...)})
}

// lanesAt are those that need one of the meters.
func lanesAt(meters ...throttle.Need) func(l *simLane) bool {
	return func(l *simLane) bool {
		return slices.ContainsFunc(l.parsed, func(n throttle.Need) bool {
			return slices.ContainsFunc(meters, func(m throttle.Need) bool { return m.Limit == n.Limit && m.Key == n.Key })
		})
	}
}

// simShut is a meter that the other side wants to be left alone.
type simShut struct {
	meter string
	at    time.Time
	until time.Time // by the limiter's clock
}

// limited notes a 429 of which the limiter was told.
func (w *sim) limited(j waitdb.Job, r waitdb.RateLimit, d waitdb.Decision) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if job := w.jobs[j.ID]; d.Outcome == throttle.Expired && job.hurries() {
		job.ended = time.Now()
	} else if d.Outcome != throttle.Denied {
		w.breaksFor(j.ID, "refused: %s", d)
	} else {
		job.since = d.At
	}
	w.disturb(d.RetryAfter + 2*time.Second)
	w.tell(j.ID, "refused for %s: retry after %s", r.For, d.RetryAfter)
	for _, n := range r.Blocks {
		if r.For >= 0 {
			w.shuts = append(w.shuts, simShut{n.Limit + "|" + n.Key, time.Now(), d.At.Add(r.For)})
		}
	}
}

// judgeShut sees that nobody is let by where the meter is shut.
func (w *sim) judgeShut(meter, id string, d throttle.Decision) {
	for _, s := range w.shuts {
		if s.meter == meter && time.Now().After(s.at) && d.At.Before(s.until) {
			w.breaksFor(id, "it was admitted at %s, which is shut for %s", meter, s.until.Sub(d.At))
		}
	}
}

// runByHand runs a waiting job by hand.
func (w *sim) runByHand() {
	for _, id := range w.ids() {
		job := w.jobs[id]
		info, err := w.hand.tasks.GetTaskInfo(job.lane.queue, id)
		if err != nil || info.State != asynq.TaskStateRetry || w.hand.tasks.RunTask(job.lane.queue, id) != nil {
			continue
		}
		w.note(simEvent{kind: "jobs run by hand", text: id + " is run by hand", whose: lanesAt()})
		w.comesAgain(job)
		return
	}
}

// archive archives a waiting job, and runs it later.
func (w *sim) archive() {
	for _, id := range w.ids() {
		job := w.jobs[id]
		if w.hand.tasks.ArchiveTask(job.lane.queue, id) != nil {
			continue
		}
		w.note(simEvent{kind: "jobs archived", text: id + " is archived", whose: lanesAt()})
		w.comesAgain(job)
		time.Sleep(w.while())
		w.hand.must(w.hand.tasks.RunTask(job.lane.queue, id))
		return
	}
}
