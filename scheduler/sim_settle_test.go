package scheduler

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/headgate/headgate/throttle"
)

// settle says what a job has truly cost of one of its needs: less, or more. What it
// gives back is judged as if it had never been taken, and what it takes as a debt.
func (w *sim) settle(ctx context.Context, id string, s simSettlement) {
	h, _ := attemptOf(ctx)
	h.reports.Lock()
	all, at := slices.Clone(h.decision.Taken), h.decision.At.Add(h.decision.BeginIn)
	h.reports.Unlock()
	taken := all[s.need%len(all)]
	w.mu.Lock()
	held := w.defined(taken.Limit).Kind == throttle.Concurrency || w.inForce(taken.Limit).Kind == throttle.Concurrency
	lost := h.began.Before(w.flushed)
	w.mu.Unlock()
	if held || lost { // what is held longer is judged by that, and a replica gives back what it has not heard of
		return
	}
	meter := taken.Limit + "|" + taken.Key
	cost := int(math.Round(s.part * float64(taken.Cost)))
	if cost > taken.Cost {
		w.note(simEvent{kind: "jobs charged", text: fmt.Sprintf("%s is charged %d of %s and not %d", id, cost, meter, taken.Cost), whose: lanesAt(taken)})
	} else if cost < taken.Cost {
		w.noteOf(id, "gives back %d of %d of %s", taken.Cost-cost, taken.Cost, meter)
		w.gaveBack(meter, id, at, taken.Cost-cost)
	}
	if Settle(ctx, taken.Limit, cost) != nil || cost <= taken.Cost {
		return
	}
	now := w.hand.limits.Time(context.Background()).Val()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.meters[meter] { // the clock may have stepped back
		now = latest(now, a.byRedis)
	}
	debt := &admission{at: time.Now(), byRedis: now, cost: cost - taken.Cost, debt: true, job: id, holder: at.String()}
	w.meters[meter] = append(w.meters[meter], debt)
}

// gaveBack has a job's permits count as if they had never been taken: those that it
// took as a debt last, and then those that it was admitted with.
func (w *sim) gaveBack(meter, id string, at time.Time, permits int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range slices.Backward(w.meters[meter]) {
		if a.job == id && (a.debt && a.holder == at.String() || !a.debt && a.byRedis.Equal(at)) {
			less := min(a.cost, permits)
			a.cost, permits = a.cost-less, permits-less
		}
	}
}
