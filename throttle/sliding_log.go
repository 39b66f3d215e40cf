package throttle

import "slices"

// slidingLog counts for a sliding log: at most n permits in every window of one
// period, exactly. It keeps the times of the last n permits, oldest first. A
// k-th permit exists once the (n-k+1)-th newest time is a whole period old. So it
// costs 8 bytes a permit, and readyAt looks at one of them: O(1).
type slidingLog struct {
	n, period int64
	times     []int64
}

// define tells the meter the limit. The times that it has stay: they are judged by
// whatever the limit is now.
func (l *slidingLog) define(r *activeLimit) { l.n, l.period = int64(r.Rate.N), r.periodUS() }

func (l slidingLog) clone() meter { return &l }

// readyAt looks up the one time that must have left the window. Where k is above n,
// each n of them take a whole period more.
func (l *slidingLog) readyAt(now, k int64) int64 {
	if k == 0 {
		return now
	}
	within, wait := rounds(k, l.n, l.period)
	at := now
	if i := int64(len(l.times)) - (l.n - within + 1); i >= 0 {
		at = max(now, l.times[i]+l.period)
	}
	return min(far, at+wait)
}

// take records the time k times, and forgets those of which n are newer. Its mark is
// that time.
func (l *slidingLog) take(now, k int64) mark {
	at := l.record(now, k)
	if old := int64(len(l.times)) - l.n; old > 0 {
		l.times = l.times[old:]
	}
	return mark{at}
}

// record notes the time k times. When the clock was set back it is the last time again,
// so that the log stays in order. Beyond n the log is in debt until so many are a period
// old.
func (l *slidingLog) record(now, k int64) int64 {
	if len(l.times) > 0 {
		now = max(now, l.times[len(l.times)-1])
	}
	for range k {
		l.times = append(l.times, now)
	}
	return now
}

// giveBack drops up to k of the times that the call recorded. They may be
// another call's of the same microsecond, which makes no difference to any window.
// The times are copied, since a clone may share them. Of a debt there may be no more
// times than n.
func (l *slidingLog) giveBack(_, k int64, of spent) {
	k = max(0, k-max(0, of.cost-l.n))
	first, found := slices.BinarySearch(l.times, of.mark[0])
	last, _ := slices.BinarySearch(l.times, of.mark[0]+1)
	if found {
		l.times = slices.Delete(slices.Clone(l.times), int(max(int64(first), int64(last)-k)), last)
	}
}

// left is n less the times that still are in the window.
func (l *slidingLog) left(now int64) int64 {
	gone, _ := slices.BinarySearch(l.times, now-l.period+1)
	return max(0, l.n-int64(len(l.times)-gone))
}

// fullAt is when the newest time leaves the window.
func (l *slidingLog) fullAt(now int64) int64 {
	if len(l.times) == 0 {
		return now
	}
	return max(now, l.times[len(l.times)-1]+l.period)
}
