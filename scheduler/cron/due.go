package cron

import (
	"cmp"
	"strconv"
	"time"
)

// missedAfter is how late a tick may come and still run whatever Missed says.
// It covers a restart and a failover of Redis, to a replica whose clock differs.
const missedAfter = 30 * time.Second

// dueTick chooses what to do at now about the ticks in (last, upTo]: run is the
// first that is to run, or the zero time; missed is the newest of those that
// are too late and are dropped, or the zero time. A tick that runs is newer
// than any that is dropped.
//
// It chooses one at a time. The state then moves past it, and the next call finds
// the rest: so with MissedAll the late ones run oldest first, and a process that
// stops halfway leaves the others to whoever goes on.
func dueTick(e Entry, by *timetable, last, upTo, now time.Time) (run, missed time.Time) {
	late := earliest(upTo, now.Add(-missedAfter-time.Nanosecond))
	timely := by.next(latest(last, late))
	if timely.After(upTo) {
		timely = time.Time{}
	}
	// Of the late ones the newest so many run.
	keep := 0
	switch {
	case e.Missed == MissedOnce && timely.IsZero():
		keep = 1
	case e.Missed == MissedAll:
		keep = cmp.Or(e.MissedMax, 100)
	}
	old := newestTicks(by, last, late, keep+1)
	if len(old) > keep {
		missed, old = old[0], old[1:]
	}
	if len(old) > 0 {
		return old[0], missed
	}
	return timely, missed
}

// countTicks says how many ticks there are in (after, upTo], of which upTo is one. Many
// are not counted to the end.
func countTicks(by *timetable, after, upTo time.Time) string {
	n := 1
	for at := by.next(after); at.Before(upTo); at = by.next(at) {
		if n++; n == 1000 {
			return "1000 or more"
		}
	}
	return strconv.Itoa(n)
}

// newestTicks gives the last n ticks in (after, upTo], oldest first. It looks
// back over ever longer stretches, because after may be long ago and the ticks
// in between too many to walk through: each second of a year, say. A timetable can
// only be walked forwards.
func newestTicks(by *timetable, after, upTo time.Time, n int) []time.Time {
	if at := by.next(after); at.IsZero() || at.After(upTo) {
		return nil
	}
	for span := time.Minute; ; span *= 2 {
		from := latest(after, upTo.Add(-span))
		var ticks []time.Time
		for at := by.next(from); !at.IsZero() && !at.After(upTo); at = by.next(at) {
			if len(ticks) == n {
				ticks = append(ticks[:0], ticks[1:]...)
			}
			ticks = append(ticks, at)
		}
		if len(ticks) == n || !from.After(after) {
			return ticks
		}
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
