package scheduler

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/throttle"
)

// TestSimulatedAnswers simulates worlds in which handlers are refused, fail, ask to
// come again and settle, and operators set keys, reset meters, and archive and run
// jobs: a fifth as many worlds as TestSimulation.
func TestSimulatedAnswers(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	var sum simFigures
	for seed := *first; seed < *first+uint64(*seeds+4)/5 && !t.Failed(); seed++ {
		synctest.Test(t, func(t *testing.T) {
			w := newSim(t, seed)
			w.answers = rand.New(rand.NewPCG(seed, 7))
			w.play()
			w.judge()
			if len(w.broken) > 0 {
				t.Errorf("seed %d:\n%s", seed, w.story())
			}
			w.count(&sum)
		})
	}
	t.Logf("%s", sum)
}

// mostAnswers is how often a job may say something else than that it is done.
const mostAnswers = 3

// answer is what a handler says in the end.
func (w *sim) answer(ctx context.Context, id string) error {
	w.mu.Lock()
	job, dice, much := w.jobs[id], w.answers.IntN(100), w.answers.IntN(3000)
	w.mu.Unlock()
	if job.again >= mostAnswers {
		dice = 100
	}
	h, _ := handlingOf(ctx)
	switch {
	case dice < 10:
		w.refuse(job, id, h.rule.shuts())
		return fmt.Errorf("429: %w", Blocked(time.Now().Add(milliseconds(much))))
	case dice < 14:
		w.refuse(job, id, h.rule.shuts())
		return Blocked(time.Time{})
	case dice < 20:
		w.comesAgain(job)
		return RetryAfter(0)
	case dice < 24:
		w.comesAgain(job)
		return RetryAfter(milliseconds(much))
	case dice < 30 && h.retried < h.maxRetry:
		w.comesAgain(job)
		return errors.New("failed")
	case dice < 40:
		w.settle(ctx, h, id, much)
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

// refused hears of a refusal that the limiter was told.
func (w *sim) refused(j throttle.Job, r throttle.Refusal, d throttle.Decision) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if d.Outcome != throttle.Denied {
		w.breaksFor(j.ID, "refused: %s", d)
	}
	w.tell(j.ID, "refused for %s: retry after %s", r.For, d.RetryAfter)
	for _, n := range r.Shuts {
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

// settle settles one of the job's needs, for less or for more. What it gives back is
// judged as if it had never been taken, and what it takes as a debt.
func (w *sim) settle(ctx context.Context, h *handling, id string, much int) {
	taken := h.decision.Taken[much%len(h.decision.Taken)]
	same := slices.IndexFunc(h.decision.Taken, func(t throttle.Taken) bool { return t.Limit == taken.Limit && t.Key != taken.Key })
	if same >= 0 || w.defined(taken.Limit).Kind == throttle.Concurrency {
		return
	}
	meter, cost := taken.Limit+"|"+taken.Key, much%(2*taken.Cost+1)
	if cost > taken.Cost {
		w.note(simEvent{kind: "jobs charged", text: fmt.Sprintf("%s is charged %d of %s and not %d", id, cost, meter, taken.Cost), whose: lanesAt(taken.Need)})
	}
	w.mu.Lock()
	for _, a := range w.meters[meter] {
		if a.job == id && a.byRedis.Equal(h.decision.At) {
			a.cost = min(a.cost, cost)
		}
	}
	w.mu.Unlock()
	if Settle(ctx, taken.Limit, cost) != nil || cost <= taken.Cost {
		return
	}
	now := w.hand.limits.Time(context.Background()).Val()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.meters[meter] { // the clock may have stepped back
		now = latest(now, a.byRedis)
	}
	debt := &admission{at: time.Now(), byRedis: now, cost: cost - taken.Cost, debt: true}
	w.meters[meter] = append(w.meters[meter], debt)
}

// answersTroubles happen beside the others where handlers have answers.
var answersTroubles = []func(w *sim){(*sim).setKey, (*sim).setKey, (*sim).resetMeter, (*sim).runByHand, (*sim).archive}

// anyMeter is one that counts by time, and not that of the slow limit.
func (w *sim) anyMeter() (limit throttle.Limit, key string, ok bool) {
	limit, ok = w.anyLimit()
	slow := w.slow != nil && limit.Name == w.slow.Name
	return limit, []string{"", "a", "b"}[w.rand.IntN(3)], ok && !slow && limit.Kind != throttle.Concurrency
}

func (w *sim) setKey() {
	limit, key, ok := w.anyMeter()
	if !ok {
		return
	}
	limit.Rate = throttle.PerSecond(between(w.rand, 3, 40))
	meter := throttle.Need{Limit: limit.Name, Key: key}
	w.note(simEvent{kind: "keys set", text: fmt.Sprintf("%s|%s is now %s", limit.Name, key, limit.Rate), limit: &limit, meter: limit.Name + "|" + key, whose: lanesAt(meter)})
	w.hand.must(w.hand.limiter.SetKey(w.t.Context(), limit.Name, key, throttle.Override{Rate: limit.Rate}))
}

func (w *sim) resetMeter() {
	limit, key, ok := w.anyMeter()
	if !ok {
		return
	}
	meter := limit.Name + "|" + key
	w.note(simEvent{kind: "meters reset", text: meter + " is reset", whose: lanesAt()})
	w.hand.must(w.hand.limiter.Reset(w.t.Context(), limit.Name, key))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shuts = slices.DeleteFunc(w.shuts, func(s simShut) bool { return s.meter == meter })
	delete(w.meters, meter)
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
