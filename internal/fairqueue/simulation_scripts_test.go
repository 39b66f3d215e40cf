package fairqueue

import (
	"slices"
	"strconv"
)

// grant is grant.lua: it tries a batch of turns in the order given, and then returns how their
// lanes stand, beyond what was held in a lane's last turn that was tried.
func (w *simulation) grant(turns []Turn) []Result {
	w.batches++
	results := make([]Result, len(turns))
	refused, last := map[*simMeter]bool{}, map[*simLane]Turn{}
	for i, t := range turns {
		l := w.byName[t.Lane]
		if _, seen := last[l]; !seen {
			last[l] = t
		}
		if slices.ContainsFunc(l.needs, func(n simNeed) bool { return refused[n.simMeter] }) {
			results[i] = Result{Outcome: Skipped}
			w.skipped++
			continue
		}
		r := w.try(l, t)
		last[l] = t
		if r.Outcome == Refused {
			for _, n := range l.needs {
				refused[n.simMeter] = true
			}
		}
		results[i] = r
	}
	for i, t := range turns {
		if l := w.byName[t.Lane]; l.waiting > 0 {
			results[i].Next, results[i].MaxAdvance = w.next(l, last[l]), l.ahead()
		}
	}
	return results
}

func (w *simulation) try(l *simLane, t Turn) (r Result) {
	defer func() { r.Granted = len(l.granted) }()
	if l.waiting == 0 {
		return Result{Outcome: Empty}
	}
	if l.onTheirWay(w.now) >= l.capacity() {
		w.full++
		return Result{Outcome: Full}
	}
	at, horizon := w.now, w.now+min(t.Advance, l.ahead())
	for i, n := range l.needs {
		ready, _ := n.ready(n.reserved+t.Held[i]+n.cost, w.now)
		at = max(at, ready)
	}
	if at > horizon {
		w.refused++
		w.history.Note(w.now, l.name, "is refused")
		return Result{Outcome: Refused}
	}
	for _, n := range l.needs {
		n.reserved += n.cost
	}
	w.granted++
	w.judgeRank(l)
	if l.last > 0 {
		l.gap = max(l.gap, w.granted-l.last)
	}
	l.last = w.granted
	l.idleSince = never
	l.waiting--
	l.made++
	id := strconv.Itoa(l.made)
	w.history.Turn(w.now, l.name, id, l.waiting > 0)
	l.granted = append(l.granted, simGrant{id: id, at: at, until: at + grantLife})
	return Result{Outcome: Granted, Job: id, At: at, Until: at + grantLife, TakesEarly: l.early()}
}

// early reports whether a lane's jobs may have their permits before they exist.
func (l *simLane) early() bool { return len(l.needs) == 1 && l.needs[0].early() }

// ahead is how far ahead of their time a lane's jobs may be called.
func (l *simLane) ahead() int64 {
	if len(l.needs) > 1 {
		return 0
	}
	return l.needs[0].ahead(l.needs[0].cost)
}

// next is what the first job of a lane needs.
func (w *simulation) next(l *simLane, t Turn) []Need {
	needs := make([]Need, len(l.needs))
	for i, n := range l.needs {
		at, known := n.ready(n.reserved+t.Held[i]+n.cost, w.now)
		needs[i] = Need{Cost: n.cost, Ready: at, Known: known, Blocked: n.paused, Refill: n.refill(n.cost), PerRefill: n.together(n.cost)}
	}
	return needs
}

// capacity is how many jobs of a lane its meters can give at once.
func (l *simLane) capacity() int64 {
	least := never
	for _, n := range l.needs {
		least = min(least, n.simMeter.capacity/n.cost)
	}
	return least
}

// onTheirWay is how many granted jobs of a lane are: those called ahead are not yet
// promoted.
func (l *simLane) onTheirWay(now int64) (n int64) {
	for _, k := range l.granted {
		if k.at <= now {
			n++
		}
	}
	return n
}

// promote is promote.lua: it moves a granted job to the head of its queue.
func (w *simulation) promote(job GrantedJob) State {
	l := w.byName[job.Lane]
	i := slices.IndexFunc(l.granted, func(k simGrant) bool { return k.id == job.ID })
	switch {
	case i < 0:
		return StateActive
	case l.granted[i].pending:
		return StatePending
	}
	latency := 1 + w.rand.Int64N(max(1, w.latency))
	if w.faultRate > 0 {
		switch n := w.rand.IntN(1000); {
		case n < w.faultRate:
			w.history.Note(w.now, l.name, "job %s is promoted in vain", job.ID)
			return StateUnknown
		case n < 2*w.faultRate:
			w.history.Note(w.now, l.name, "job %s was deleted", job.ID)
			w.forget(l, i)
			return StateGone
		case n < 3*w.faultRate:
			latency = w.rand.Int64N(3_000_000)
			w.history.Note(w.now, l.name, "job %s arrives %.6f s late", job.ID, float64(latency)/1e6)
		}
	}
	l.granted[i].pending = true
	arrive := func() { w.at(w.now+latency, func() { w.arrive(l, job.ID) }) }
	if q := l.in; q.stopped {
		q.pending = append(q.pending, arrive)
	} else {
		arrive()
	}
	return StateMoved
}

func (w *simulation) forget(l *simLane, i int) {
	if l.granted[i].until > 0 {
		for _, n := range l.needs {
			n.reserved -= n.cost
		}
	}
	l.granted = slices.Delete(l.granted, i, i+1)
}

// arrive is acquire.lua for a granted job: it takes what is reserved for it, or where it
// arrived too late for that the oldest permits that are reserved for its lane; if none are
// left it waits again, as the first.
func (w *simulation) arrive(l *simLane, id string) {
	if l.in.stopped {
		q := l.in
		q.pending = append(q.pending, func() { w.at(w.now+1, func() { w.arrive(l, id) }) })
		return
	}
	own := slices.IndexFunc(l.granted, func(k simGrant) bool { return k.id == id })
	taken := -1
	for i, k := range l.granted {
		if k.until > 0 && (k.at <= w.now || i == own && l.early()) && (taken < 0 || i == own || taken != own && k.until < l.granted[taken].until) {
			taken = i
		}
	}
	wasFull := l.onTheirWay(w.now) >= l.capacity()
	if taken < 0 {
		w.denied++
		w.history.Note(w.now, l.name, "job %s arrives too late and waits again", id)
		w.forget(l, own)
		for _, n := range l.needs {
			w.core.Changed(w.now, n.name)
		}
		w.enqueue(l, 1)
	} else {
		w.history.Note(w.now, l.name, "job %s arrives and runs", id)
		l.granted[taken].swap(&l.granted[own])
		w.forget(l, own)
		w.takes(l)
	}
	if wasFull {
		w.core.Arrived(w.now, l.name)
	}
}

// swap exchanges what is reserved for two jobs.
func (k *simGrant) swap(o *simGrant) {
	k.at, k.until, o.at, o.until = o.at, o.until, k.at, k.until
}

// takes has a job run: rate meters give for good, slots return.
func (w *simulation) takes(l *simLane) {
	l.done++
	for _, n := range l.needs {
		n.take(n.cost, w.now)
		if n.lease > 0 {
			w.at(w.now+n.interval/2+w.rand.Int64N(n.interval), func() {
				n.count -= n.cost
				w.core.Changed(w.now, n.name)
			})
		}
	}
}

// enqueue has jobs join a lane; if no job waits they run at once.
func (w *simulation) enqueue(l *simLane, jobs int) {
	for ; jobs > 0 && w.runs(l); jobs-- {
		w.takes(l)
	}
	if jobs == 0 {
		return
	}
	l.waiting += jobs
	if l.waiting == jobs {
		w.number++
		l.number, l.since = w.number, w.now
		w.history.Waits(w.now, l.name)
		w.core.AddLane(l.name, w.number)
	}
}

func (w *simulation) enqueueAt(at int64, l *simLane, jobs int) {
	w.at(at, func() { w.enqueue(l, jobs) })
}

func (w *simulation) runs(l *simLane) bool {
	if l.waiting > 0 || l.in.stopped {
		return false
	}
	for _, n := range l.needs {
		if at, _ := n.ready(n.reserved+n.cost, w.now); w.contended[n.name] > 0 || at > w.now {
			return false
		}
	}
	return true
}

// expire is expire.lua: it takes back what is reserved for jobs that did not arrive.
func (w *simulation) expire(name string) {
	l := w.byName[name]
	var overdue []string
	for i, k := range l.granted {
		if k.until > 0 && k.until <= w.now {
			l.granted[i].until = 0
			for _, n := range l.needs {
				n.reserved -= n.cost
			}
			w.history.Note(w.now, name, "job %s did not arrive", k.id)
		}
		if l.granted[i].until == 0 {
			overdue = append(overdue, k.id)
		}
	}
	w.core.Expired(w.now, name, len(l.granted), overdue, l.waiting > 0)
}
