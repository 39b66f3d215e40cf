package throttle

import "slices"

// windowParts is into how many parts a sliding window divides its period. More make
// permits return sooner, and every call read more.
const windowParts = 60

// slidingWindow counts for a sliding window in bounded memory: the period in
// parts, each counted whole until its last microsecond has left the window. So
// it never lets more than n through, and a permit returns up to one part late.
//
// The usual approximation, which weighs the count of the window before by how much
// of it still overlaps, needs two numbers only, but takes the calls in it for evenly
// spread: after a burst at its end it lets more than n through.
type slidingWindow struct {
	n, period, width int64
	parts            []part // oldest first
	wasWidth         int64  // the width that parts were written with
}

// A part holds the permits taken from index·width on, for one width.
type part struct{ index, count int64 }

// define tells the meter the limit. Parts of another width are counted anew when
// they are next read: see counted.
func (s *slidingWindow) define(r *activeLimit) {
	s.n, s.period = int64(r.Rate.N), r.periodUS()
	s.width = ceilDiv(s.period, windowParts)
}

// leaves is when the last permit that a part may hold has left the window.
func (s *slidingWindow) leaves(p part) int64 { return (p.index+1)*s.width - 1 + s.period }

// counted is the parts that still count, at the present width, and their sum.
// After a change of the width a part goes where its last microsecond lies.
func (s *slidingWindow) counted(now int64) (parts []part, sum int64) {
	for _, p := range s.parts {
		if s.wasWidth != s.width {
			p.index = ((p.index+1)*s.wasWidth - 1) / s.width
		}
		if s.leaves(p) <= now {
			continue
		}
		sum += p.count
		if last := len(parts) - 1; last >= 0 && parts[last].index == p.index {
			parts[last].count += p.count
		} else {
			parts = append(parts, p)
		}
	}
	return parts, sum
}

// earliest is now, or the start of the newest part if the clock was set back to
// before it: a meter's own time never runs backwards.
func (s *slidingWindow) earliest(now int64, parts []part) int64 {
	if len(parts) == 0 {
		return now
	}
	return max(now, parts[len(parts)-1].index*s.width)
}

func (s slidingWindow) clone() meter { return &s }

// readyAt is when so many parts have left the window, oldest first, that k permits
// are free.
func (s *slidingWindow) readyAt(now, k int64) int64 {
	if k == 0 {
		return now
	}
	parts, sum := s.counted(now)
	within, wait := rounds(k, s.n, s.period)
	at := s.earliest(now, parts)
	missing := within - (s.n - sum)
	for _, p := range parts {
		if missing <= 0 {
			break
		}
		missing -= p.count
		at = max(at, s.leaves(p))
	}
	return min(far, at+wait)
}

// take counts the permits in the newest part, or in a new one. Its mark is which.
func (s *slidingWindow) take(now, k int64) mark {
	parts, _ := s.counted(now)
	index := s.earliest(now, parts) / s.width
	if last := len(parts) - 1; last >= 0 && parts[last].index == index {
		parts[last].count += k
	} else {
		parts = append(parts, part{index, k})
	}
	s.parts, s.wasWidth = parts, s.width
	return mark{index}
}

// giveBack uncounts permits in the part that the call was counted in, if it is still
// there. After a change of the width, parts are not what they were then, and what
// was counted in the call's part may stand in another: nothing is given back.
func (s *slidingWindow) giveBack(_, k int64, of spent) {
	if s.wasWidth != s.width {
		return
	}
	for i, p := range s.parts {
		if p.index == of.mark[0] {
			s.parts = slices.Clone(s.parts)
			if s.parts[i].count = p.count - k; s.parts[i].count <= 0 {
				s.parts = slices.Delete(s.parts, i, i+1)
			}
			return
		}
	}
}

// left is n less what the parts in the window hold.
func (s *slidingWindow) left(now int64) int64 {
	parts, sum := s.counted(now)
	if s.earliest(now, parts) > now {
		return 0
	}
	return max(0, s.n-sum)
}

// fullAt is when the newest part leaves the window.
func (s *slidingWindow) fullAt(now int64) int64 {
	parts, _ := s.counted(now)
	if len(parts) == 0 {
		return now
	}
	return s.leaves(parts[len(parts)-1])
}
