package meter

import "slices"

// slidingLog counts for a sliding log: never more than n permits in a window of one period. It keeps
// the times of the last n permits, oldest first. k permits, at most n, are free when the (n-k+1)-th
// newest time is a whole period old.
type slidingLog struct {
	n, period int64
	times     []int64
}

// Define keeps the recorded times, which count under the new limit.
func (s *slidingLog) Define(l *Limit) { s.n, s.period = int64(l.N), l.PeriodUS() }

// ReadyAt reads the one time that must leave the window before k permits are free. If k is above n,
// each further n permits, or a part of them, take one more period.
func (s *slidingLog) ReadyAt(now, k int64) int64 {
	if k == 0 {
		return now
	}
	within, wait := rounds(k, s.n, s.period)
	at := now
	if i := int64(len(s.times)) - (s.n - within + 1); i >= 0 {
		at = max(now, s.times[i]+s.period)
	}
	return min(MaxTime, at+wait)
}

// Take records the time k times, and forgets all but the newest n.
func (s *slidingLog) Take(now, k int64) Mark {
	at := s.record(now, k)
	if old := int64(len(s.times)) - s.n; old > 0 {
		s.times = s.times[old:]
	}
	return Mark{at}
}

// record records the time k times. If the clock was set back, record repeats the newest time
// instead, so that the log stays sorted. It does not drop old times, so after Charge the log can
// have more than n times.
func (s *slidingLog) record(now, k int64) int64 {
	if len(s.times) > 0 {
		now = max(now, s.times[len(s.times)-1])
	}
	for range k {
		s.times = append(s.times, now)
	}
	return now
}

// GiveBack drops up to k of the call's times. If another call has the same microsecond, its times
// may be dropped instead, which makes no difference to any window. If a call cost more than n, Take
// has kept n of its times. The first cost-n permits given back then drop no time.
func (s *slidingLog) GiveBack(_, _, k, cost int64, mark Mark) {
	k = max(0, k-max(0, cost-s.n))
	first, found := slices.BinarySearch(s.times, mark[0])
	last, _ := slices.BinarySearch(s.times, mark[0]+1)
	if found {
		s.times = slices.Delete(s.times, int(max(int64(first), int64(last)-k)), last)
	}
}

// Left returns n less the number of times in the window, and at least 0.
func (s *slidingLog) Left(now int64) int64 {
	gone, _ := slices.BinarySearch(s.times, now-s.period+1)
	return max(0, s.n-int64(len(s.times)-gone))
}

// FullAt returns the time at which the newest time leaves the window, or now if none is in it.
func (s *slidingLog) FullAt(now int64) int64 {
	if len(s.times) == 0 {
		return now
	}
	return max(now, s.times[len(s.times)-1]+s.period)
}
