package fairqueue

// slots is what is known of a concurrency limit: nobody says when its permits come again but
// those who give them back.
type slots struct {
	// are says that the meter is one, full since when nobody could have any, and freed
	// that something has changed there since.
	are   bool
	full  int64
	freed bool
	// every is how long it was full, in the mean, until one came, and atOnce how many then came
	// within some milliseconds: so many were given since.
	every, atOnce, given, since int64
}

// fills notes that a meter can give nothing before a time that nobody knows.
func (s *slots) fills(now, ready int64) {
	if s.are = true; ready > now && s.full == 0 {
		s.full, s.freed = now, false
		s.atOnce = (s.atOnce + s.given + 1) / 2
	}
}

// gives notes that a slot was given.
func (s *slots) gives(now int64) {
	s.watch(now)
	if s.full > 0 { // one has come, although no message said so
		s.since, s.given, s.full = now, 0, 0
	}
	if now < s.since+step {
		s.given++
	}
}

// watch notes that a slot has come.
func (s *slots) watch(now int64) {
	if !s.freed {
		return
	}
	if full := now - s.full; s.full > 0 && s.every > 0 {
		s.every += (full - s.every) / 4
	} else if s.full > 0 {
		s.every = full
	}
	if s.full > 0 {
		s.since, s.given = now, 0
	}
	s.full, s.freed = 0, false
}

// comes is how long its permits take to come again: slots do so as jobs end, mostly long
// before their leases do.
func (n *need) comes() int64 {
	if n.are {
		return min(n.cost*n.every, n.refill)
	}
	return n.refill
}
