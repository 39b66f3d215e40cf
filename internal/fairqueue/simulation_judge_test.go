package fairqueue

import "fmt"

// passes moves the clock, and sees that no meter was idle meanwhile.
func (w *simulation) passes(next int64) {
	for _, l := range w.lanes {
		ready := w.idle(l)
		if ready > w.now || l.idleSince == never {
			l.idleSince = ready
		}
		if idle := next - l.idleSince; idle > 50_000 {
			w.breaks(l, "all its meters were ready for %.6f s and it was not called", float64(idle)/1e6)
		}
	}
	w.now = next
}

// idle returns since when a lane could be called: all it needs is ready beyond
// what is reserved and held, it is behind no other lane and its queue takes.
func (w *simulation) idle(l *simLane) (at int64) {
	q := l.in
	at = w.now
	if l.waiting == 0 || q.stopped || len(l.granted) > 0 && int64(len(l.granted)) >= l.capacity() {
		return never
	}
	known := w.core.lanes[l.name]
	if known == nil {
		return at
	}
	if stopped := known.queue.stopped; stopped != q.passedOver {
		q.passedOver, q.since = stopped, w.now
	}
	if q.passedOver {
		return max(q.since, q.resumed) + 5*second
	}
	for i, n := range l.needs {
		held := int64(0)
		if i < len(known.needs) {
			of := known.needs[i]
			if f := of.first(); f != nil && w.core.before(f, of) {
				return never
			}
			held = w.core.held(of, w.now)
		}
		ready, _ := n.ready(n.reserved+held+n.cost, w.now)
		if n.paused {
			return never
		}
		at = max(at, ready)
	}
	return at
}

// left describes what is left when all should be done.
func (w *simulation) left() string {
	for _, l := range w.lanes {
		if l.waiting > 0 || len(l.granted) > 0 {
			return fmt.Sprintf("%q: %d jobs wait, %d are called", l.name, l.waiting, len(l.granted))
		}
	}
	for name, m := range w.meters {
		if m.reserved != 0 {
			return fmt.Sprintf("%d permits of %s are reserved", m.reserved, name)
		}
		if w.contended[name] > 0 {
			return fmt.Sprintf("%s is contended", name)
		}
	}
	c := w.core
	if len(c.lanes)+len(c.meters)+len(c.due)+len(c.expiries)+len(c.notifications) > 0 {
		return fmt.Sprintf("in the core: %d lanes, %d meters, %d due, %d to expire, %d to tell", len(c.lanes), len(c.meters), len(c.due), len(c.expiries), len(c.notifications))
	}
	return ""
}

// judge sees that no lane waited for more than so many rounds.
func (w *simulation) judge(rounds float64) {
	if l, n := w.worst(); n > rounds {
		w.now = w.history.Lane(l.name).WorstAt
		w.breaks(l, "waited %.1f rounds, %.3f s", n, float64(w.history.Lane(l.name).Worst)/1e6)
	}
}

// judgeShares sees that each lane had 0.8 of an equal share of its slowest meter.
func (w *simulation) judgeShares() {
	for _, l := range w.lanes {
		share := never
		for _, n := range l.needs {
			sum := int64(0)
			for _, o := range w.lanes {
				sum += o.turnAt(n.simMeter)
			}
			share = min(share, w.now/(sum+w.latency))
		}
		if int64(l.done) < share*8/10 {
			w.breaks(l, "had %d turns, its equal share is %d", l.done, share)
		}
	}
}

// roundsOf is a lane's worst wait in full rounds of its slowest meter: it has one turn, and
// every other lane that needs the meter as many as it has by its weights. No turn is divided:
// of one that has more than is due to it by then, the rest is not counted as waited for.
func (w *simulation) roundsOf(l *simLane) float64 {
	round, rest := int64(0), int64(0)
	for _, n := range l.needs {
		sum := n.window
		for _, o := range w.lanes {
			if o.in.stopped {
				continue
			}
			if busy := o.turnAt(n.simMeter); busy > 0 {
				turns := w.shareAt(o, n.simMeter) / w.shareAt(l, n.simMeter)
				due := int64(turns * float64(busy+w.latency))
				sum += due
				rest = max(rest, busy+w.latency-due)
			}
		}
		round = max(round, sum)
	}
	return float64(max(0, w.history.Lane(l.name).Worst-rest)) / float64(round)
}

// shareAt is which part of a meter's turns a lane has if all lanes have jobs.
func (w *simulation) shareAt(l *simLane, m *simMeter) float64 {
	queues, keys, lanes := map[string]float64{}, map[string]float64{}, 0.0
	for _, o := range w.lanes {
		if o.turnAt(m) == 0 {
			continue
		}
		queues[o.queue] = float64(o.in.Turns)
		if o.queue == l.queue {
			keys[o.key] = float64(o.weight)
			if o.key == l.key {
				lanes++
			}
		}
	}
	share := float64(l.in.Turns) * float64(l.weight) / lanes
	for _, of := range []map[string]float64{queues, keys} {
		sum := 0.0
		for _, weight := range of {
			sum += weight
		}
		share /= sum
	}
	return share
}

// turnAt is for how long a turn of a lane keeps a meter busy. A slot is kept too
// while the lane waits for its other meters.
func (l *simLane) turnAt(m *simMeter) (busy int64) {
	needs, others := false, int64(0)
	for _, n := range l.needs {
		if n.simMeter == m {
			needs, busy = true, n.cost*m.interval
		} else if m.lease > 0 {
			others = max(others, min(m.lease, n.refill(n.cost)))
		}
	}
	if !needs {
		return 0
	}
	return busy + others
}

// worst returns the lane that waited for most rounds, and how many.
func (w *simulation) worst() (worst *simLane, rounds float64) {
	for _, l := range w.lanes {
		if n := w.roundsOf(l); n > rounds || worst == nil {
			worst, rounds = l, n
		}
	}
	return worst, rounds
}
