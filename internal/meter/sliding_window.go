package meter

import "slices"

// windowParts is how many parts a sliding window divides its period into. With more parts permits
// return sooner, and every call reads more.
const windowParts = 60

// slidingWindow counts for a sliding window in bounded memory. It divides the period into parts,
// and counts each part whole until its last microsecond has left the window. So it never lets more
// than n permits through, and a permit returns up to one part late.
//
// The usual approximation weighs the count of the previous window by how much of it still overlaps.
// It needs two numbers only, but assumes that the calls in it were evenly spread: after a burst at
// the window's end it lets more than n through.
type slidingWindow struct {
	n, period, width int64
	parts            []part // oldest first
	wasWidth         int64  // the width that parts were written with
}

// A part holds the permits taken from index·width on, for one width.
type part struct{ index, count int64 }

// Define sets the width. Parts of another width are converted when they are next read.
func (s *slidingWindow) Define(l *Limit) {
	s.n, s.period = int64(l.N), l.PeriodUS()
	s.width = ceilDiv(s.period, windowParts)
}

// leaves returns when the last permit that a part may hold has left the window.
func (s *slidingWindow) leaves(p part) int64 { return (p.index+1)*s.width - 1 + s.period }

// counted returns the parts that still count, at the present width, and their sum. After a change
// of the width a part goes to where its last microsecond lies.
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

// earliest returns now, or the start of the newest part if the clock was set back to before it.
func (s *slidingWindow) earliest(now int64, parts []part) int64 {
	if len(parts) == 0 {
		return now
	}
	return max(now, parts[len(parts)-1].index*s.width)
}

func (s slidingWindow) Clone() Meter { return &s }

// ReadyAt returns when so many parts have left the window, oldest first, that k permits are free.
func (s *slidingWindow) ReadyAt(now, k int64) int64 {
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
	return min(Far, at+wait)
}

// Take counts the permits in the newest part, or in a new one. The mark is the part's index.
func (s *slidingWindow) Take(now, k int64) Mark {
	parts, _ := s.counted(now)
	index := s.earliest(now, parts) / s.width
	if last := len(parts) - 1; last >= 0 && parts[last].index == index {
		parts[last].count += k
	} else {
		parts = append(parts, part{index, k})
	}
	s.parts, s.wasWidth = parts, s.width
	return Mark{index}
}

// GiveBack uncounts permits in the call's part if it is still there. It does nothing after a change
// of the width, because the permits may then stand in another part.
func (s *slidingWindow) GiveBack(_, k int64, of Spent) {
	i := slices.IndexFunc(s.parts, func(p part) bool { return p.index == of.Mark[0] })
	if i < 0 || s.wasWidth != s.width {
		return
	}
	s.parts = slices.Clone(s.parts) // a clone may share them
	if s.parts[i].count -= k; s.parts[i].count <= 0 {
		s.parts = slices.Delete(s.parts, i, i+1)
	}
}

// Left returns n less the permits in the window.
func (s *slidingWindow) Left(now int64) int64 {
	parts, sum := s.counted(now)
	if s.earliest(now, parts) > now {
		return 0
	}
	return max(0, s.n-sum)
}

// FullAt returns when the newest part leaves the window.
func (s *slidingWindow) FullAt(now int64) int64 {
	parts, _ := s.counted(now)
	if len(parts) == 0 {
		return now
	}
	return s.leaves(parts[len(parts)-1])
}
