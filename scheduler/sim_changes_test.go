package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/throttle"
)

// now is what is in force of a limit.
func (w *sim) inForce(name string) throttle.Limit {
	limit := w.defined(name)
	for _, e := range w.events {
		if e.limit != nil && e.meter == "" && e.limit.Name == name {
			limit = *e.limit
		}
	}
	return limit
}

// rate draws one for a limit, at which its dearest job can run.
func (w *sim) rate(limit throttle.Limit) throttle.Rate {
	least, most := 3, 40
	if w.has(costs) {
		least, most = 6, 80
	}
	if dearest := capacityOf(w.defined(limit.Name)); limit.Capacity == 0 && w.has(costs) {
		least, most = dearest, 2*dearest
	}
	return throttle.PerSecond(between(w.rand, least, most))
}

// anyMeter is one that counts by time, and not that of the slow limit.
func (w *sim) anyMeter() (limit throttle.Limit, key string, ok bool) {
	limit, ok = w.anyLimit()
	limit = w.inForce(limit.Name)
	slow := w.slow != nil && limit.Name == w.slow.Name
	return limit, w.host(), ok && !slow && limit.Kind != throttle.Concurrency
}

func (w *sim) setKey() {
	limit, key, ok := w.anyMeter()
	if !ok || w.changedKind(limit.Name) {
		return
	}
	limit.Rate = w.rate(limit)
	meter := throttle.Need{Limit: limit.Name, Key: key}
	w.note(simEvent{kind: "keys set", text: fmt.Sprintf("%s|%s is now %s", limit.Name, key, limit.Rate), limit: &limit, meter: limit.Name + "|" + key, whose: lanesAt(meter)})
	w.hand.must(w.hand.limiter.SetKey(w.t.Context(), limit.Name, key, throttle.Override{Rate: limit.Rate}))
}

// unsetKey has a key that was set count as its limit says.
func (w *sim) unsetKey() {
	i := slices.IndexFunc(w.events, func(e simEvent) bool { return e.kind == "keys set" })
	if _, ok := w.anyLimit(); !ok || i < 0 {
		w.setKey()
		return
	}
	e := w.events[i]
	limit, meter := w.inForce(e.limit.Name), throttle.Need{Limit: e.limit.Name, Key: strings.TrimPrefix(e.meter, e.limit.Name+"|")}
	w.note(simEvent{kind: "keys unset", text: e.meter + " is as its limit says", limit: &limit, meter: e.meter, unset: true, whose: lanesAt(meter)})
	w.hand.must(w.hand.limiter.UnsetKey(w.t.Context(), meter.Limit, meter.Key))
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
	w.unshut(meter)
	delete(w.meters, meter)
}

// unshut forgets what shut a meter: an operator has the last word.
func (w *sim) unshut(meter string) {
	w.shuts = slices.DeleteFunc(w.shuts, func(s simShut) bool { return s.meter == meter })
}

// blockKey shuts a meter for a while.
func (w *sim) blockKey() {
	limit, key, ok := w.anyMeter()
	if !ok {
		return
	}
	meter, wait := throttle.Need{Limit: limit.Name, Key: key}, w.while()
	w.note(simEvent{kind: "keys blocked", text: fmt.Sprintf("%s|%s is blocked for %s", limit.Name, key, wait), lasts: wait, whose: lanesAt(meter)})
	w.hand.must(w.hand.limiter.Block(w.t.Context(), limit.Name, key, time.Now().Add(wait)))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unshut(meter.Limit + "|" + meter.Key)
	if w.oneClock() {
		w.shuts = append(w.shuts, simShut{meter.Limit + "|" + meter.Key, time.Now(), time.Now().Add(wait)})
	}
}

// redefine has a config say otherwise of a limit, of whatever kind.
func (w *sim) redefine() {
	limit, ok := w.anyLimit()
	if !ok || w.slow != nil || slices.ContainsFunc(w.events, func(e simEvent) bool { return e.meter != "" && e.limit.Name == limit.Name }) {
		return
	}
	least := capacityOf(limit)
	for limit = w.limit(limit.Name); capacityOf(limit) < least; {
		limit = w.limit(limit.Name)
	}
	w.note(simEvent{kind: "limits redefined", text: fmt.Sprintf("limit %s is defined as %s", limit.Name, limit), limit: &limit, whose: lanesOf(limit.Name)})
	w.hand.must(w.hand.limiter.Define(w.t.Context(), limit))
}

// redefined reports whether another config than that of the processes has defined a limit.
func (w *sim) redefined(limit throttle.Limit) bool {
	is := false
	for _, e := range w.events {
		if e.lost && !e.stays {
			is = false
		} else if e.kind == "limits redefined" && e.limit.Name == limit.Name {
			is = e.limit.String() != limit.String()
		}
	}
	return is
}

// changedKind reports whether a limit was defined as another.
func (w *sim) changedKind(name string) bool {
	return slices.ContainsFunc(w.events, func(e simEvent) bool { return e.kind == "limits redefined" && e.limit.Name == name })
}
