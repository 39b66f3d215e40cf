package throttle

// gcra counts for a funnel and for a token bucket: the generic cell rate
// algorithm of ITU-T I.371. tat, the theoretical arrival time, is when all that
// was taken has leaked away; it may lie capacity emission intervals ahead. The
// interval, period/n, need not be whole: rest keeps n-ths of a microsecond, so
// nothing drifts.
type gcra struct {
	n, period, capacity int64
	tat, rest           int64
	wasN, wasPeriod     int64 // the rate that tat was written with
	since               int64 // when the rate became what it is
}

func (g *gcra) define(r *rule) {
	g.n, g.period, g.capacity = int64(r.Rate.N), r.periodUS(), int64(r.capacity())
	g.since = r.since
}

// arrival is tat at the present rate, and never in the past. After a change of
// the rate what was owed at that moment in permits stays, rounded up, and leaks
// at the new rate from then on.
func (g *gcra) arrival(now int64) (tat, rest int64) {
	if g.wasN == 0 || g.tat < now {
		return now, 0
	}
	if g.wasN == g.n && g.wasPeriod == g.period {
		return g.tat, g.rest
	}
	since := min(g.since, now)
	us, rest := span(owed(g.tat-since, g.rest, g.wasN, g.wasPeriod), g.n, g.period)
	if since+us < now {
		return now, 0
	}
	return since + us, rest
}

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
	return max(now, at)
}

func (g *gcra) take(now, k int64) {
	tat, rest := g.arrival(now)
	us, over := span(k, g.n, g.period)
	rest += over
	g.tat, g.rest = tat+us+rest/g.n, rest%g.n
	g.wasN, g.wasPeriod = g.n, g.period
}

func (g *gcra) left(now int64) int64 {
	tat, rest := g.arrival(now)
	return max(0, g.capacity-owed(tat-now, rest, g.n, g.period))
}

func (g *gcra) fullAt(now int64) int64 {
	tat, rest := g.arrival(now)
	return tat + ceilDiv(rest, g.n)
}

// ceilDiv is a/b rounded up, for a from 0 on.
func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }
