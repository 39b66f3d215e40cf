package cron

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

// check compares what was enqueued with what the oracle expects.
func (w *world) check() {
	want := w.expected()
	missing, extra, doubled, ticks := 0, 0, 0, 0
	for id, mode := range want {
		if w.q.added[id] == 0 {
			missing++
			w.Errorf("%s (%s) is missing", id, mode)
		}
	}
	for id, n := range w.q.added {
		ticks += n
		if n > 1 {
			doubled++
			w.Errorf("%s was enqueued %d times", id, n)
		}
		if want[id] == "" {
			extra++
			w.Errorf("%s was not expected", id)
		}
	}
	w.Logf("%d entries, %d replicas, %v: %d ticks expected, %d enqueued; %d missing, %d not expected, %d doubled",
		len(w.entries), len(w.replicas), fortnight, len(want), ticks, missing, extra, doubled)
	w.Logf("what happened: %v", w.happened)
	if len(want) < int(fortnight/time.Hour)*9 {
		w.Errorf("only %d ticks", len(want))
	}
}

// expected returns the IDs of all ticks that must be enqueued, each with its mode.
func (w *world) expected() map[string]string {
	want := map[string]string{}
	ticks := map[string][]time.Time{}
	for _, e := range w.entries {
		e.turn(false)
		for _, s := range e.stretches {
			key := e.Zone + s.line
			if ticks[key] == nil {
				ticks[key] = w.oracleTicks(e.Zone, s.line)
			}
			in := ticks[key]
			in = in[slices.IndexFunc(in, s.from.Before):]
			in = in[:max(0, slices.IndexFunc(in, s.to.Before))]
			for _, tick := range s.choose(e.Missed, in) {
				want[e.Name+"@"+strconv.FormatInt(tick.Unix(), 10)] = fmt.Sprint(s.mode, e.Missed, tick)
			}
		}
	}
	return want
}

// choose returns the ticks of a stretch that must be enqueued.
func (s stretch) choose(missed Missed, ticks []time.Time) []time.Time {
	switch {
	case s.mode == running, s.mode == outage && missed == MissedAll:
		return ticks
	case s.mode == outage && missed == MissedOnce:
		return ticks[max(0, len(ticks)-1):]
	default:
		return nil
	}
}

// oracleTicks lists a line's ticks in the fortnight, and a day after.
func (w *world) oracleTicks(zoneName, line string) []time.Time {
	end := w.begin.Add(fortnight + 24*time.Hour)
	if line != "@every 30m" {
		return newOracle(line).ticks(mustZone(w, zoneName), w.begin, end)
	}
	var ticks []time.Time
	for at := w.begin.Truncate(30 * time.Minute); at.Before(end); at = at.Add(30 * time.Minute) {
		ticks = append(ticks, at)
	}
	return ticks
}
