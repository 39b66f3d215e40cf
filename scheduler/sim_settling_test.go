package scheduler

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/testutil/limittest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// limitOf is the limit of a meter.
func limitOf(meter string) string {
	limit, _, _ := strings.Cut(meter, "|")
	return limit
}

// addQuota gives a world of settling a limit that counts by time. A few jobs take all its permits.
func (w *sim) addQuota() {
	if !w.has(settling) {
		return
	}
	l := throttle.Limit{Name: w.limits[0].Name, Kind: timedKinds[w.seed%uint64(len(timedKinds))], Rate: throttle.PerSecond(20)}
	if l.Kind == throttle.Funnel || l.Kind == throttle.TokenBucket {
		l.Capacity = 40
	}
	w.limits[0] = l
}

var timedKinds = slices.DeleteFunc(slices.Clone(limittest.Kinds), func(k throttle.Kind) bool { return k == throttle.Concurrency })

// isCrowd reports whether a lane is the one whose meter is lost: few of its jobs settle, and the others
// use the meter up.
func (w *sim) isCrowd(l *simLane) bool { return w.has(settling) && l == w.lanes[len(w.lanes)-1] }

// crowded is the key that only the crowd needs.
const crowded = "crowded"

// settlersCost is what jobs of the crowd cost that settle, as a part of what the limit gives at once.
const settlersCost = 0.5

// settlement returns what a handler does at its end. In a world of settling, some jobs have used less
// than they took of a meter, or nothing, or more.
func (w *sim) settlement(id string, taken map[throttle.Need]*admission) func(ctx context.Context) {
	var its []throttle.Need // that count by time
	for need := range taken {
		if w.defined(need.Limit).Kind != throttle.Concurrency {
			its = append(its, need)
		}
	}
	job := w.jobs[id]
	dice := w.dice(id, -10-job.runs)
	settles := dice.IntN(2) == 0
	if w.isCrowd(job.lane) { // what other jobs take must stay taken, or the oracle does not see permits that come back twice
		settles = job.dear == settlersCost
	}
	if !w.has(settling) || len(its) == 0 || !settles {
		return func(context.Context) {}
	}
	slices.SortFunc(its, func(a, b throttle.Need) int { return cmp.Compare(a.Limit, b.Limit) })
	need := its[dice.IntN(len(its))]
	a := taken[need]
	cost := dice.IntN(a.cost)
	switch dice.IntN(5) {
	case 0:
		cost = a.cost + 1 + cost
	case 1, 2:
		cost = 0
	}
	if w.isCrowd(job.lane) {
		cost = 0
	}
	a.settles = a.cost - cost
	return func(ctx context.Context) { w.settle(ctx, id, need, a, cost) }
}

// settle settles what a job has used of a meter.
func (w *sim) settle(ctx context.Context, id string, need throttle.Need, a *admission, cost int) {
	if ctx.Err() != nil || w.changedKind(need.Limit) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second) // so that the job does not outlive its Timeout
	defer cancel()
	began := time.Now()
	err := Settle(ctx, need.Limit, cost)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noteJob(id, "settles %d of %d of %s|%s: %v", cost, a.cost, need.Limit, need.Key, err)
	if cost < a.cost {
		a.cost = cost
		return
	}
	// A debt is judged only if it is known when it was made.
	ahead, steady := w.clock.now(began)
	if err == nil && steady && time.Now().Equal(began) {
		meter := need.Limit + "|" + need.Key
		at := w.latestTaken(meter, began.Add(ahead))
		w.meters[meter] = append(w.meters[meter], &admission{at: began, byRedis: at, started: began, left: at, ended: began, cost: cost - a.cost, job: id, debt: true})
	}
}

// latestTaken returns the time from which all permits of a meter exist that were taken so far, those that
// were taken in advance included: a debt of now counts from then on, because only later permits wait
// for it.
func (w *sim) latestTaken(meter string, now time.Time) time.Time {
	last := now
	for _, a := range w.meters[meter] {
		if time.Since(a.at) <= 2*waitdb.Advance {
			last = latest(last, a.byRedis)
		}
	}
	return last
}

// forget notes that a meter was reset or lost: what it gave before does not count.
func (w *sim) forget(meter string) {
	ahead, _ := w.clock.now(time.Now())
	w.forgot[meter] = time.Now().Add(ahead)
	for _, a := range w.meters[meter] {
		a.forgotten = true
	}
}

// forgetBusyMeter resets the meter of the crowded lane, or loses it, while jobs run that are going to
// give permits back: a few times.
func (w *sim) forgetBusyMeter() {
	meter := w.limits[0].Name + "|" + crowded
	if w.changedKind(w.limits[0].Name) {
		return
	}
	for left := 200; left > 0; left-- {
		time.Sleep(20 * time.Millisecond)
		if w.comesBack(meter) > 4 { // fewer are not seen beside what comes back with time
			w.forgetMeter(meter, w.rand.IntN(2) == 0 && !w.lostLimits())
			left -= 20
		}
	}
}

// comesBack is how many permits of a meter running jobs are going to give back.
func (w *sim) comesBack(meter string) (sum int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.meters[meter] {
		if !a.forgotten && !a.started.IsZero() && a.ended.IsZero() {
			sum += a.settles
		}
	}
	return sum
}

func (w *sim) forgetMeter(meter string, reset bool) {
	limit := w.defined(limitOf(meter))
	_, key, _ := strings.Cut(meter, "|")
	text := meter + " is lost"
	if reset {
		text = meter + " is reset"
	}
	w.note(simEvent{kind: "meters reset", text: text, explains: lanesAt()})
	if reset {
		w.operator.must(w.operator.limiter.Reset(w.t.Context(), limit.Name, key))
	} else {
		w.limiter.Del(fmt.Sprintf("%sm:%s:%s", scopePrefix, limit.Kind, meter))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if reset {
		w.unblock(meter)
	}
	w.forget(meter)
}
