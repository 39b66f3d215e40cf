package fairqueue

import "slices"

// bounds holds what a meter last replied about the times at which it is ready.
type bounds struct {
	list      []bound // entries that were in the future at the last reply
	updatedAt int64   // time of the last reply, Unix microseconds
	// trustTime is how long the last reply is trusted, in microseconds. After that time the meter's
	// first lane gets a turn, although the meter is not ready by that reply. trustTime doubles with
	// each such turn. A granted turn sets it to minTrust.
	trustTime int64
}

// A bound says that `total` permits or more are not available before `at`, in Unix microseconds.
// The total includes the permits held for lanes with an earlier turn.
type bound struct {
	total, at int64
	unknown   bool // the real time is unknown; at is only the end of a lease
	blocked   bool // the meter is paused or blocked
}

// Minimum and maximum of trustTime, in microseconds.
const (
	minTrust = 1_000_000
	maxTrust = 30_000_000
)

// boundOf returns the latest bound that applies to total permits, or the zero bound if there is
// none. Bounds for fewer permits apply as well, because more permits are never available sooner.
func (b *bounds) boundOf(total int64) (latest bound) {
	for _, e := range b.list {
		if e.total <= total && e.at > latest.at {
			latest = e
		}
	}
	return latest
}

// nextMore returns the first time at which the meter may give more permits than now, or never.
func (b *bounds) nextMore(now int64) int64 {
	next := never
	for _, e := range b.list {
		if e.at > now {
			next = min(next, e.at)
		}
	}
	return next
}

// update records when a meter can give the permits of n in addition to the permits held for other
// lanes. It reports whether that time is sooner than in an earlier reply.
func (b *bounds) update(now, held int64, n Need) (sooner bool) {
	news := bound{total: held + n.Cost, at: n.Ready, unknown: !n.Known, blocked: n.Blocked}
	if n.Blocked {
		news.total = 0
	}
	b.updatedAt = now
	b.list = slices.DeleteFunc(b.list, func(e bound) bool {
		contradicted := e.total <= news.total && e.at > news.at
		sooner = sooner || contradicted
		return contradicted || e.total >= news.total && e.at <= news.at || e.at <= now
	})
	if news.at > now {
		b.list = append(b.list, news)
	}
	return sooner
}

func (c *Core) trustedUntil(m *meter) int64 {
	if c.exact {
		return never
	}
	return m.updatedAt + m.trustTime
}
