package meter

import "slices"

// bucketsPerPeriod is the number of buckets in each period of a sliding window. With more buckets
// permits would become free sooner, but each call would read more data.
const bucketsPerPeriod = 60

// slidingWindow is the meter of a sliding window in bounded memory. It divides time into buckets of
// width microseconds, 60 in each period. A bucket counts in full until its last microsecond has
// left the window. So the meter never lets more than n permits through, and a permit returns up to
// one width late.
type slidingWindow struct {
	n, period, width int64
	buckets          []bucket // oldest first
	born             int64    // time of the first Take after no bucket counted
	storedWidth      int64    // width of the buckets; Take converts them to the present width
}

// A bucket counts the permits taken in the width microseconds from index·width on.
type bucket struct{ index, count int64 }

// Define sets the limit, and keeps the buckets.
func (s *slidingWindow) Define(l *Limit) {
	s.n, s.period = int64(l.N), l.PeriodUS()
	s.width = ceilDiv(s.period, bucketsPerPeriod)
}

// expiry returns the time at which the last permit of a bucket has left the window.
func (s *slidingWindow) expiry(b bucket) int64 { return (b.index+1)*s.width - 1 + s.period }

// counted returns the buckets that have not expired, converted to the current width, and the sum of
// their permits. A bucket of another width becomes the bucket that holds its last microsecond.
func (s *slidingWindow) counted(now int64) (buckets []bucket, sum int64) {
	for _, b := range s.buckets {
		if s.storedWidth != s.width {
			b.index = ((b.index+1)*s.storedWidth - 1) / s.width
		}
		if s.expiry(b) <= now {
			continue
		}
		sum += b.count
		if last := len(buckets) - 1; last >= 0 && buckets[last].index == b.index {
			buckets[last].count += b.count
		} else {
			buckets = append(buckets, b)
		}
	}
	return buckets, sum
}

// takeTime returns now, or the start of the newest bucket if the clock was set back to before it.
func (s *slidingWindow) takeTime(now int64, buckets []bucket) int64 {
	if len(buckets) == 0 {
		return now
	}
	return max(now, buckets[len(buckets)-1].index*s.width)
}

// ReadyAt returns the time at which enough buckets have expired, oldest first, that k permits are
// free.
func (s *slidingWindow) ReadyAt(now, k int64) int64 {
	if k == 0 {
		return now
	}
	buckets, sum := s.counted(now)
	within, wait := rounds(k, s.n, s.period)
	at := s.takeTime(now, buckets)
	missing := within - (s.n - sum)
	for _, b := range buckets {
		if missing <= 0 {
			break
		}
		missing -= b.count
		at = max(at, s.expiry(b))
	}
	return min(MaxTime, at+wait)
}

// Take counts the permits in the newest bucket, or in a new one. The mark is the bucket's index.
func (s *slidingWindow) Take(now, k int64) Mark {
	buckets, _ := s.counted(now)
	if len(buckets) == 0 {
		s.born = max(s.born, now)
	}
	index := s.takeTime(now, buckets) / s.width
	if last := len(buckets) - 1; last >= 0 && buckets[last].index == index {
		buckets[last].count += k
	} else {
		buckets = append(buckets, bucket{index, k})
	}
	s.buckets, s.storedWidth = buckets, s.width
	return Mark{index}
}

// GiveBack subtracts permits from the call's bucket if the bucket still exists, and if the call is not
// older than the buckets. If the width has
// changed since the last Take, it does nothing, because the limit has changed since the call.
func (s *slidingWindow) GiveBack(_, takenAt, k, _ int64, mark Mark) {
	i := slices.IndexFunc(s.buckets, func(b bucket) bool { return b.index == mark[0] })
	if i < 0 || takenAt < s.born || s.storedWidth != s.width {
		return
	}
	if s.buckets[i].count -= k; s.buckets[i].count <= 0 {
		s.buckets = slices.Delete(s.buckets, i, i+1)
	}
}

// Left returns n less the permits in the window, or 0 if the clock was set back to before the
// newest bucket.
func (s *slidingWindow) Left(now int64) int64 {
	buckets, sum := s.counted(now)
	if s.takeTime(now, buckets) > now {
		return 0
	}
	return max(0, s.n-sum)
}

// FullAt returns the time at which the newest bucket expires, or now if there is no bucket.
func (s *slidingWindow) FullAt(now int64) int64 {
	buckets, _ := s.counted(now)
	if len(buckets) == 0 {
		return now
	}
	return s.expiry(buckets[len(buckets)-1])
}
