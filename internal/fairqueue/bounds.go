package fairqueue

import "slices"

// bounds is what a meter last said about when it is ready. Only times to come are kept.
type bounds struct {
	list      []bound
	updatedAt int64
	// trust is how long the bounds are trusted: after it the oldest lane is tried all the same. It
	// grows while nothing changes.
	trustTime int64
	exact     bool // the bounds are always trusted
}

// bound says that a meter does not give that many permits in total, held ones included, before a
// time.
type bound struct {
	total, at        int64
	unknown, blocked bool // at is no forecast; the meter is paused or blocked
}

const (
	minTrust = 1_000_000
	maxTrust = 30_000_000
)

// ready returns the bound for a number of permits. More permits wait at least as long.
func (b *bounds) boundOf(total int64) (latest bound) {
	for _, e := range b.list {
		if e.total <= total && e.at > latest.at {
			latest = e
		}
	}
	return latest
}

// nextMore returns when a meter that can give no more now can.
func (b *bounds) nextMore(now int64) int64 {
	next := never
	for _, e := range b.list {
		if e.at > now {
			next = min(next, e.at)
		}
	}
	return next
}

// update takes what a meter said about a need, and reports whether that is sooner than was known.
func (b *bounds) update(now, held int64, n Need) (sooner bool) {
	news := bound{total: held + n.Cost, at: n.Ready, unknown: !n.Known, blocked: n.Blocked}
	if n.Blocked {
		news.total = 0
	}
	b.updatedAt = now
	b.list = slices.DeleteFunc(b.list, func(e bound) bool {
		denied := e.total <= news.total && e.at > news.at
		sooner = sooner || denied
		return denied || e.total >= news.total && e.at <= news.at || e.at <= now
	})
	if news.at > now {
		b.list = append(b.list, news)
	}
	return sooner
}

func (b *bounds) trustedUntil() int64 {
	if b.exact {
		return never
	}
	return b.updatedAt + b.trustTime
}
