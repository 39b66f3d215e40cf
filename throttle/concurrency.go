package throttle

import (
	"cmp"
	"maps"
	"slices"
)

// concurrency counts for a concurrency limit: at most n permits held at once,
// each a lease that ends unless its holder extends it. A lease that has ended is as
// good as given back, so a holder that died costs the others its life at most.
type concurrency struct {
	n, life int64 // life is how long a lease lasts, in microseconds
	leases  map[string]lease
	// holder is who asks. Its own lease does not count against it until it
	// takes the permits: asking twice is asking once.
	holder string
}

// A lease is what one holder has: how many permits, and until which microsecond.
type lease struct{ cost, ends int64 }

// define tells the meter the limit. Leases that are held stay as long as they were
// given for; the next extension is for the new time.
func (c *concurrency) define(r *activeLimit) {
	c.n, c.life = int64(r.MaxCost()), r.lease().Microseconds()
}

// others is the leases of the others that have not ended, and the permits they
// hold.
func (c *concurrency) others(now int64) (leases []lease, live int64) {
	for holder, l := range c.leases {
		if holder != c.holder && l.ends > now {
			leases = append(leases, l)
			live += l.cost
		}
	}
	return leases, live
}

func (c concurrency) clone() meter { return &c }

// readyAt is when so many leases will have ended that k permits are free, if
// nobody extends or frees one. Holders mostly do, so it is no promise: see
// [Decision.Unknown]. Where k is above n, as for estimates, it is when the last of
// them ends, or a life from now where nothing is held.
func (c *concurrency) readyAt(now, k int64) int64 {
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

// take leases k permits to the holder that asks, and forgets what has ended so
// long ago that no clock steps back to it. The holder's name is mark enough.
func (c *concurrency) take(now, k int64) mark {
	maps.DeleteFunc(c.leases, func(_ string, l lease) bool { return l.ends <= now-grace })
	c.leases[c.holder] = lease{k, now + c.life}
	c.holder = ""
	return mark{}
}

// giveBack changes nothing: permits that are held do not come back by themselves, so it
// is the holder's own lease that must change, which resize does.
func (c *concurrency) giveBack(_, _ int64, _ spent) {}

// resize has a holder hold that many permits, one at least: in Redis a lease of none
// is no lease, and its holder would be told that it has lost it. It may go above n;
// then nobody gets a permit until enough are given back.
func (c *concurrency) resize(now int64, holder string, k int64) {
	if l, ok := c.leases[holder]; ok && l.ends > now {
		c.leases[holder] = lease{max(1, k), l.ends}
	}
}

// extend renews a holder's lease. It reports false if there is none any more.
func (c *concurrency) extend(now int64, holder string) bool {
	l, ok := c.leases[holder]
	if !ok || l.ends <= now {
		return false
	}
	c.leases[holder] = lease{l.cost, now + c.life}
	return true
}

// free gives a holder's lease back.
func (c *concurrency) free(holder string) { delete(c.leases, holder) }

// left is what no live lease of another holder takes.
func (c *concurrency) left(now int64) int64 {
	_, live := c.others(now)
	return max(0, c.n-live)
}

// fullAt is when the last lease ends, if nobody extends it.
func (c *concurrency) fullAt(now int64) int64 {
	last := now
	for _, l := range c.leases {
		last = max(last, l.ends)
	}
	return last
}
