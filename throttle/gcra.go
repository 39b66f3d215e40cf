package throttle

// gcra counts for a funnel and for a token bucket: the generic cell rate
// algorithm of ITU-T I.371. tat, the theoretical arrival time, is when all that
// was taken has leaked away; it may lie capacity emission intervals ahead. The
// interval, period/n, need not be whole: rest keeps n-ths of a microsecond, so
// nothing drifts.
//
// One number is the whole state. A bucket that leaks at a constant rate is known from
// the moment at which it will be empty: what it holds at any time is how far off
// that is, in intervals. So a permit costs O(1), whatever the rate and the capacity.
//
// Where calls settle, tat moves back. How many permits were given back is counted, to
// know of any call how many others have taken since: as many as are owed more, and as
// were given back.
type gcra struct {
	n, period, capacity int64
	tat, rest           int64
	given, used         int64 // permits given back, and when something was taken last
}

// define tells the meter the limit. What is owed in permits when the rate
// changes stays, rounded up, and leaks at the new rate from then on. The change was
// at r.since, which may be some time ago: what had leaked away by then is gone.
func (g *gcra) define(r *activeLimit) {
	n, period := int64(r.Rate.N), r.periodUS()
	if n != g.n || period != g.period {
		if g.tat < r.since {
			g.tat, g.rest = 0, 0
		} else if g.tat > 0 {
			us, rest := span(owed(g.tat-r.since, g.rest, g.n, g.period), n, period)
			g.owe(r.since+us, rest)
		}
	}
	g.n, g.period, g.capacity = n, period, int64(r.MaxCost())
}

// owe sets tat, which is never beyond far.
func (g *gcra) owe(tat, rest int64) {
	if tat >= far {
		tat, rest = far, 0
	}
	g.tat, g.rest = tat, rest
}

// arrival is tat, and never in the past.
func (g *gcra) arrival(now int64) (tat, rest int64) {
	if g.tat < now {
		return now, 0
	}
	return g.tat, g.rest
}

func (g gcra) clone() meter { return &g }

// readyAt is when tat is no more than capacity-k intervals ahead. More permits than
// the capacity are never there at once; for estimates, each one above it takes an
// interval more.
func (g *gcra) readyAt(now, k int64) int64 {
	if k == 0 {
		return now
	}
	tat, rest := g.arrival(now)
	at := tat
	if k <= g.capacity {
		us, over := span(g.capacity-k, g.n, g.period)
		at -= us
		if rest > over {
			at++
		}
	} else {
		us, over := span(k-g.capacity, g.n, g.period)
		at += us + ceilDiv(rest+over, g.n)
	}
	return min(far, max(now, at))
}

// take moves tat on by k intervals. Its mark is tat, and how many were given back.
func (g *gcra) take(now, k int64) mark {
	tat, rest := g.arrival(now)
	us, over := span(k, g.n, g.period)
	rest += over
	g.owe(tat+us+rest/g.n, rest%g.n)
	g.used = now
	return mark{g.tat, g.given}
}

// giveBack moves tat back by k intervals, and leaves owed what others took since: they
// may have taken all of it just now.
//
// Let o(j) be the time of take j and all that was taken from it on: no window holds too
// much where tat is no earlier than any o(j). For a take up to the call's, o is k
// intervals earlier now, and so no later than tat less those. For one after it, o holds
// only what others took, and is no later than now and all of that.
func (g *gcra) giveBack(now, k int64, of spent) {
	if g.tat == far || g.given < of.mark[1] {
		return
	}
	givenUS, part := span(g.given-of.mark[1], g.n, g.period)
	others := g.tat + ceilDiv(g.rest, g.n) - of.mark[0] + givenUS
	us, over := span(k, g.n, g.period)
	tat, rest := g.tat-us, g.rest-over
	if rest < 0 {
		tat, rest = tat-1, rest+g.n
	}
	if least := now + others; least > tat || least == tat && part > rest {
		tat, rest = least, part
	}
	if others < 0 || tat > g.tat || tat == g.tat && rest >= g.rest {
		return
	}
	g.tat, g.rest, g.given, g.used = tat, rest, g.given+k, now
}

// left is how many whole intervals are between tat and as far ahead as it may be.
func (g *gcra) left(now int64) int64 {
	tat, rest := g.arrival(now)
	return max(0, g.capacity-owed(tat-now, rest, g.n, g.period))
}

// fullAt is tat: all has leaked away.
func (g *gcra) fullAt(now int64) int64 {
	tat, rest := g.arrival(now)
	return tat + ceilDiv(rest, g.n)
}
