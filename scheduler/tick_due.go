package scheduler

import "time"

// missedAfter is how late a tick may come and still run whatever Missed says.
// It covers a restart, a Redis failover and clocks that differ.
const missedAfter = 30 * time.Second

// dueTick chooses what to do at now about the ticks after last: run is the
// first that is to run, or the zero time. passed is the newest tick that is
// due and dropped instead, or the zero time. A tick that runs is always newer
// than those dropped.
func dueTick(e Entry, rule *tickRule, last, now time.Time) (run, passed time.Time) {
	keep := 0
	switch e.Missed {
	case MissedOnce:
		keep = 1
	case MissedAll:
		keep = e.MissedMax
		if keep == 0 {
			keep = 100
		}
	}
	late := now.Add(-missedAfter - time.Nanosecond)
	missed := newestTicks(rule, last, late, max(keep, 1))
	first := rule.next(latest(last, late))
	if first.After(now) {
		first = time.Time{}
	}
	switch {
	case len(missed) == 0:
		return first, time.Time{}
	case e.Missed == MissedAll, e.Missed == MissedOnce && first.IsZero():
		return missed[0], time.Time{}
	default:
		return first, missed[len(missed)-1]
	}
}

// newestTicks gives the last n ticks in (after, upTo], oldest first. It looks
// back over ever longer stretches, because after may be long ago and the ticks
// in between too many to walk through.
func newestTicks(rule *tickRule, after, upTo time.Time, n int) []time.Time {
	if at := rule.next(after); at.IsZero() || at.After(upTo) {
		return nil
	}
	for span := time.Minute; ; span *= 2 {
		from := latest(after, upTo.Add(-span))
		var ticks []time.Time
		for at := rule.next(from); !at.IsZero() && !at.After(upTo); at = rule.next(at) {
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
