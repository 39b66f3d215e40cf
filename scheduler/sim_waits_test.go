package scheduler

import (
	"slices"
	"time"

	"github.com/headgate/headgate/throttle"
)

// heals is how long a trouble's traces may have lanes wait.
var heals = map[string]time.Duration{
	"limits paused": second, "queues paused": 3 * second, "keys blocked": second, "limits hung": 10 * second,
	"limits changed": 2 * second, "limits redefined": 2 * second, "keys set": 2 * second, "keys unset": 2 * second, "limits opened": 2 * second,
	"jobs deleted": 5 * second, "jobs archived": 5 * second, "jobs run by hand": 5 * second, "words lost": 6 * second, "rules changed": 5 * second, "failovers": 10 * second,
	"answers lost": 40 * second, "processes died": 45 * second, "processes hung": 45 * second, "processes left": 10 * second, "queues hung": 45 * second,
	"limiters hung": 10 * second, "data lost": 65 * second, "clocks stepped": 65 * second, "records changed": 65 * second,
	"permits reserved": 65 * second, "versions changed": 10 * second,
}

const second = time.Second

// disturb has the waits of lanes be nobody's fault for a while.
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

// undisturbedFrom reports whether nothing disturbed any wait from one moment to another.
func (w *sim) undisturbedFrom(from, to time.Time) bool {
	return !slices.ContainsFunc(w.events, func(e simEvent) bool {
		return !e.at.After(to) && !e.at.Add(e.lasts+heals[e.kind]).Before(from)
	})
}

// judgeWaits sees that no lane waited for more than 6 rounds while nothing explains it. Two
// that are one for the limiter have their turns in one line.
func (w *sim) judgeWaits() {
	w.history.End(w.now())
	for i, l := range w.lanes {
		is := func(o *simLane) bool { return o.is(l.queue, l.meters()) }
		if slices.ContainsFunc(w.lanes[:i], is) || slices.ContainsFunc(w.lanes[i+1:], is) || w.mayStarve(l) {
			continue
		}
		its := w.history.Lane(l.name)
		waited := time.Duration(its.Worst) * time.Microsecond
		rounds := waited.Seconds() / w.round(l).Seconds()
		w.worst = max(w.worst, rounds)
		if rounds > 6 {
			w.breaks(w.near(l), its.WorstAt-its.Worst, its.WorstAt, "%s waited %s, %.1f rounds", l.name, waited, rounds)
		}
	}
}

// mayStarve reports whether nobody knows for how long a lane should wait: a strict queue goes
// before its own, its jobs needed something else before, or one was archived unasked, when
// its deadline had passed.
func (w *sim) mayStarve(l *simLane) bool {
	for queue, weight := range w.config.Queues {
		if w.has(strict) && queue != l.queue && weight >= w.config.Queues[l.queue] {
			return true
		}
	}
	for _, job := range w.jobs {
		if job.lane == l && job.admits == 0 && !job.deleted && job.ended.IsZero() {
			return true
		}
	}
	return !l.ruled.IsZero()
}

// round is what a full round of a lane's slowest meter takes: a turn of every lane
// that needs it. A turn takes as long as its permits need to come again, or as
// its handler runs; and the workers a poll, and the handlers of all lanes.
func (w *sim) round(l *simLane) (round time.Duration) {
	workers := time.Duration(0)
	for _, o := range w.lanes {
		workers += o.takes + w.config.TaskCheckInterval
	}
	for _, need := range l.parsed {
		sum := workers
		for _, o := range w.lanes {
			for _, n := range o.parsed {
				if n.Limit == need.Limit && n.Key == need.Key {
					sum += w.turn(o, w.dearest(o, n))
				}
			}
		}
		for _, c := range w.direct {
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

// turn is how long a lane's turn keeps a meter busy, by the slowest that its limit has been.
func (w *sim) turn(l *simLane, n throttle.Need) time.Duration {
	longest := w.turnOf(l, n, w.defined(n.Limit))
	for _, e := range w.events {
		if e.limit != nil && e.limit.Name == n.Limit {
			longest = max(longest, w.turnOf(l, n, *e.limit))
		}
	}
	return longest
}

// turnOf is what a turn takes of a limit. A window gives all its permits at once, once each
// period.
func (w *sim) turnOf(l *simLane, n throttle.Need, limit throttle.Limit) time.Duration {
	switch limit.Kind {
	case throttle.Concurrency:
		return l.takes + w.config.TaskCheckInterval
	case throttle.Funnel, throttle.TokenBucket:
		return time.Duration(n.Cost) * limit.Rate.Per / time.Duration(limit.Rate.N)
	}
	return limit.Rate.Per
}
