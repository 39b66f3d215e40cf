package meter

import (
	"cmp"
	"maps"
	"slices"
)

// Leases counts for a concurrency limit: at most n permits are held at once. Each holder has a
// lease. If the holder does not extend the lease, the lease ends and its permits are free.
type Leases struct {
	n, life int64 // n is the capacity, and life the length of a lease
	held    map[string]lease
	// Holder is the holder of the next ReadyAt, Take and Left. ReadyAt and Left ignore the
	// holder's own lease, and Take replaces it. So a repeated call takes no more than one call.
	Holder string
}

// A lease has the number of permits of a holder, and the time at which the lease ends.
type lease struct{ cost, ends int64 }

// Define changes no existing lease.
func (c *Leases) Define(l *Limit) { c.n, c.life = int64(l.Capacity), l.Lease.Microseconds() }

// others returns the live leases of other holders, and the permits that they hold.
func (c *Leases) others(now int64) (leases []lease, permits int64) {
	for holder, l := range c.held {
		if holder != c.Holder && l.ends > now {
			leases = append(leases, l)
			permits += l.cost
		}
	}
	return leases, permits
}

// ReadyAt returns the time at which enough leases have ended for k permits, if no holder extends or
// frees a lease. For a k above n the result is the end of the last lease. If k is above n and no
// other holder has a lease, the result is the end of a lease that begins now.
func (c *Leases) ReadyAt(now, k int64) int64 {
	leases, live := c.others(now)
	switch {
	case k == 0 || live+k <= c.n:
		return now
	case live == 0:
		return now + c.life
	}
	slices.SortFunc(leases, func(a, b lease) int { return cmp.Compare(a.ends, b.ends) })
	missing := live + k - c.n
	for _, l := range leases {
		if missing -= l.cost; missing <= 0 {
			return l.ends
		}
	}
	return leases[len(leases)-1].ends
}

// Take leases k permits to Holder, and drops leases that ended more than Grace ago.
func (c *Leases) Take(now, k int64) Mark {
	maps.DeleteFunc(c.held, func(_ string, l lease) bool { return l.ends <= now-Grace })
	c.held[c.Holder] = lease{k, now + c.life}
	c.Holder = ""
	return Mark{}
}

// GiveBack does nothing: Resize changes the holder's own lease instead.
func (c *Leases) GiveBack(_, _, _, _ int64, _ Mark) {}

// Resize changes a holder's lease to k permits, or to one permit if k is 0: Redis keeps no lease
// without permits. Resize may make the sum of all leases larger than n. While the sum is larger,
// no call gets a permit. Resize does nothing if the lease has ended.
func (c *Leases) Resize(now int64, holder string, k int64) {
	if l, ok := c.held[holder]; ok && l.ends > now {
		c.held[holder] = lease{max(1, k), l.ends}
	}
}

// Extend renews a holder's lease, which then ends after the time life at the earliest. It does not
// make the lease end earlier. Extend returns the time until the end, or 0 if the holder has no live
// lease.
func (c *Leases) Extend(now int64, holder string, life int64) int64 {
	l, ok := c.held[holder]
	if !ok || l.ends <= now {
		return 0
	}
	l.ends = max(l.ends, now+life)
	c.held[holder] = l
	return l.ends - now
}

// Free removes a holder's lease, if there is one, so its permits are free.
func (c *Leases) Free(holder string) { delete(c.held, holder) }

// Left returns the permits that no live lease of another holder takes.
func (c *Leases) Left(now int64) int64 {
	_, live := c.others(now)
	return max(0, c.n-live)
}

// FullAt returns the time at which the last lease ends if no holder extends it, or now if there is
// no live lease.
func (c *Leases) FullAt(now int64) int64 {
	last := now
	for _, l := range c.held {
		last = max(last, l.ends)
	}
	return last
}
