package meter

// gcra counts for a funnel and for a token bucket by the generic cell rate algorithm (ITU-T I.371).
// Its state is tat, the theoretical arrival time, from which on all permits are free again. Each
// permit moves tat by the emission interval of period/n, and tat may be up to capacity intervals
// ahead of now. The field rest is the part of tat below a microsecond, in n-ths of a microsecond,
// so rounding errors do not add up.
//
// The meter counts the permits given back. From this count and a call's mark, GiveBack computes how
// many permits other calls have taken since that call.
type gcra struct {
	n, period, capacity int64
	tat, rest           int64
	given, usedAt       int64 // sum of the k of GiveBack calls, and time of the last Take or GiveBack
}

// Define keeps the number of permits in use at l.Since, rounded up. From l.Since on, these permits
// become free at the new rate. l.Since can be in the past.
func (g *gcra) Define(l *Limit) {
	before, n, period := *g, int64(l.N), l.PeriodUS()
	g.n, g.period, g.capacity = n, period, int64(l.Capacity)
	if n == before.n && period == before.period {
		return
	}
	g.tat, g.rest = 0, 0
	if before.tat >= l.Since && before.tat > 0 {
		g.Take(l.Since, owed(before.tat-l.Since, before.rest, before.n, before.period))
		g.usedAt = before.usedAt
	}
}

// ReadyAt returns the time at which tat is at most capacity-k intervals ahead. Each permit above
// the capacity takes one more interval.
func (g *gcra) ReadyAt(now, k int64) int64 {
	if k == 0 {
		return now
	}
	at, rest := g.tat, g.rest
	if at < now {
		at, rest = now, 0
	}
	if k <= g.capacity {
		us, over := Span(g.capacity-k, g.n, g.period)
		at -= us
		if rest > over {
			at++
		}
	} else {
		us, over := Span(k-g.capacity, g.n, g.period)
		at += us + ceilDiv(rest+over, g.n)
	}
	return min(MaxTime, max(now, at))
}

// Take moves tat on by k intervals, at most to MaxTime.
func (g *gcra) Take(now, k int64) Mark {
	if g.tat < now {
		g.tat, g.rest = now, 0
	}
	us, over := Span(k, g.n, g.period)
	g.rest += over
	g.tat, g.rest = g.tat+us+g.rest/g.n, g.rest%g.n
	if g.tat >= MaxTime {
		g.tat, g.rest = MaxTime, 0
	}
	g.usedAt = now
	return Mark{g.tat, g.given}
}

// GiveBack moves tat back by up to k intervals. The permits that other calls have taken since the
// mark count as taken now, because the meter does not know when they were taken.
func (g *gcra) GiveBack(now, k, _ int64, mark Mark) {
	if g.tat == MaxTime || g.given < mark[1] {
		return
	}
	givenUS, part := Span(g.given-mark[1], g.n, g.period)
	others := g.tat + min(1, g.rest) - mark[0] + givenUS // intervals of the permits that other calls have taken since the mark
	us, over := Span(k, g.n, g.period)
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
	g.tat, g.rest, g.given, g.usedAt = tat, rest, g.given+k, now
}

// Left returns the number of whole intervals by which tat may still move.
func (g *gcra) Left(now int64) int64 {
	if g.tat < now {
		return g.capacity
	}
	return max(0, g.capacity-owed(g.tat-now, g.rest, g.n, g.period))
}

// FullAt returns tat, rounded up.
func (g *gcra) FullAt(now int64) int64 { return max(now, g.tat+min(1, g.rest)) }
