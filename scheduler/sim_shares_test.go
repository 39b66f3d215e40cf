package scheduler

import (
	"slices"

	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/throttle"
)

// simTenants are the fairness keys that jobs may have, and what they weigh.
var simTenants = map[string]int{"": 1, "acme": 4, "a|b": 2}

// simTurn is that a job came to wait in a lane, or was called from it; or, of no lane, that
// one was passed over.
type simTurn struct {
	lane   string
	called bool
}

// lineOf is the lane of a job as the limiter names it.
func (w *sim) lineOf(job *simJob) string {
	rule := w.ruleOf(job)
	needs, _ := throttle.Normalize(rule.Needs...)
	meters := make([]string, len(needs))
	for i, n := range needs {
		meters[i] = n.Limit + "|" + n.Key
	}
	return fairqueue.Lane(job.lane.queue, meters, fairqueue.FairnessLine(rule.FairnessKey, rule.FairnessWeight))
}

// simShare is a part of those who take turns.
type simShare struct {
	name   string
	weight int
	has    func(lane string) bool
}

// judgeShares sees that queues, and in a queue its tenants, have turns by their weights.
func (w *sim) judgeShares() {
	if w.has(answers) || w.has(patience) || w.has(rules) || w.unheard() || !w.oneClock() {
		return
	}
	var queues []simShare
	for queue, weight := range w.config.Queues {
		q := simShare{queue, weight, func(lane string) bool { return fairqueue.Queue(lane) == queue }}
		var tenants []simShare
		for tenant, weight := range simTenants {
			tenants = append(tenants, simShare{queue + " " + tenant, weight, func(lane string) bool {
				key, _ := fairqueue.FairnessKey(lane)
				return key == tenant && q.has(lane)
			}})
		}
		w.judgeTurns(tenants)
		queues = append(queues, q)
	}
	if !w.has(strict) {
		w.judgeTurns(queues)
	}
}

// judgeTurns sees that of any two shares, while both wait at a meter, neither has more turns
// than it weighs, give or take a few; and a few more where a turn of one waits for more permits:
// one whose job comes late is several of the other's.
// Where a lane waits for other meters, too, nobody knows.
func (w *sim) judgeTurns(shares []simShare) {
	several := func(l *simLane) bool { return len(l.parsed) > 1 }
	for meter := range w.meters {
		lanes := w.lanesAt(meter)
		if slices.ContainsFunc(lanes, several) {
			continue
		}
		most := 3.0
		if w.has(costs) || slices.ContainsFunc(lanes, func(l *simLane) bool { return l.parsed[0].Cost != lanes[0].parsed[0].Cost }) {
			most = 6
		}
		for i, a := range shares {
			for _, b := range shares[:i] {
				if apart := w.apart(meter, a, b); apart > most {
					w.breaks(lanes, 0, w.now(), "at %s %s and %s are %.1f turns apart", meter, a.name, b.name, apart)
				}
			}
		}
	}
}

// apart is by how many turns of the lighter of two shares they were further apart, while
// both waited, than they weigh.
func (w *sim) apart(meter string, a, b simShare) (most float64) {
	waits := [2]int{}
	ahead, low, high := 0.0, 0.0, 0.0 // of both, a
	for _, t := range w.turned {
		side, turn := 0, 1/float64(a.weight)
		switch {
		case t.lane == "":
			ahead, low, high = 0, 0, 0
			continue
		case fairqueue.Meters(t.lane)[0] != meter:
			continue
		case b.has(t.lane):
			side, turn = 1, -1/float64(b.weight)
		case !a.has(t.lane):
			continue
		}
		if !t.called {
			waits[side]++
			continue
		}
		if waits[0] > 0 && waits[1] > 0 {
			ahead += turn
			low, high = min(low, ahead), max(high, ahead)
			most = max(most, (high-low)*float64(min(a.weight, b.weight)))
		}
		if waits[side]--; waits[side] == 0 {
			ahead, low, high = 0, 0, 0
		}
	}
	return most
}
