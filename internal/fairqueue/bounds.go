package fairqueue

import "slices"

// bounds is what a meter was last told to be ready for, and when. Only what lies
// ahead is kept: of the rest nothing is known, and it is to be tried.
type bounds struct {
	list []bound
	told int64
	// patience is how long the bounds are trusted: after it the oldest lane is
	// tried all the same. It grows while nothing changes.
	patience int64
	certain  bool // the bounds are trusted for ever
}

// bound says that a meter does not give so many permits, those included that
// are held, before a time.
type bound struct {
	total, at int64
	// unknown: at is not a forecast; blocked: paused, or shut.
	unknown, blocked bool
}

const (
	leastPatience = 1_000_000
	mostPatience  = 30_000_000
)

func newBounds(certain bool) bounds { return bounds{patience: leastPatience, certain: certain} }

// ready returns the bound for a number of permits. Whoever wants more than a
// bound speaks of waits at least as long.
func (b *bounds) ready(total int64) (latest bound) {
	for _, e := range b.list {
		if e.total <= total && e.at > latest.at {
			latest = e
		}
	}
	return latest
}

// more is when a meter that can give no more now can.
func (b *bounds) more(now int64) int64 {
	soonest := never
	for _, e := range b.list {
		if e.at > now {
			soonest = min(soonest, e.at)
		}
	}
	return soonest
}

// tell takes what a meter said about a need, and reports whether that is sooner
// than was known.
func (b *bounds) tell(now, held int64, n Need) (sooner bool) {
	news := bound{total: held + n.Cost, at: n.Ready, unknown: !n.Known, blocked: n.Blocked}
	if n.Blocked {
		news.total = 0
	}
	b.told = now
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

// askAt is when the oldest lane is tried whatever the bounds say.
func (b *bounds) askAt() int64 {
	if b.certain {
		return never
	}
	return b.told + b.patience
}
