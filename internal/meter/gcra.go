package meter

// gcra counts for a funnel and for a token bucket by the generic cell rate algorithm (ITU-T I.371).
// Its state is tat, the theoretical arrival time, from which on all permits are free again. Each
// permit moves tat by the emission interval of period/n, and tat may be up to capacity intervals
// ahead of now. The field rest is the part of tat below a microsecond, in n-ths of a microsecond,
// so rounding errors do not add up.
//
// From the number of permits given back and a call's mark, GiveBack computes how many permits other
// calls have taken at most since that call.
type gcra struct {
	n, period, capacity int64
	tat, rest           int64
	given, usedAt       int64 // permits given back so far, and time of the last Take or GiveBack
	from, until, paid   int64 // see GiveBack
}

// Define keeps the number of permits in use at l.Since, rounded up. From l.Since on, these permits
// become free at the new rate. l.Since can be in the past.
func (g *gcra) Define(l *Limit) {
	before, n, period := *g, int64(l.N), l.PeriodUS()
	g.n, g.period, g.capacity = n, period, int64(l.Capacity)
	if n == before.n && period == before.period {
		return
	}
	g.tat, g.rest, g.from, g.until, g.paid = 0, 0, 0, 0, 0
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

// GiveBack moves tat back by up to k intervals. Without the k permits, the meter might have been idle
// for some time. The permits of that time have become free already, so GiveBack does not give them
// back. The idle time has two upper bounds:
//   - It is longest if all later calls took their permits just now. These permits take at most as long
//     as tat has grown, plus all permits given back, as if only earlier calls had given permits back.
//   - It began at the earliest when the call took its permits. Calls that settle at about the same
//     time, in any order, share the idle time since the first of them. Between g.from and g.until,
//     these calls took their permits and gave them back, except for the permits of a time of g.paid.
func (g *gcra) GiveBack(now, at, k, _ int64, mark Mark) {
	givenUS, part := Span(g.given-mark[1], g.n, g.period)
	others := g.tat + min(1, g.rest) - mark[0] + givenUS // most time that the permits of later calls take
	if g.tat == MaxTime || g.given < mark[1] || others < 0 {
		return
	}
	us, over := Span(k, g.n, g.period)
	tat, rest := g.tat-us, g.rest-over
	if rest < 0 {
		tat, rest = tat-1, rest+g.n
	}
	if part > rest {
		others++
	}
	from, paid := min(at, g.from), g.paid
	if at > g.until || now-from-paid >= us && now-at < us {
		from, paid = at, 0
	}
	idle := max(0, min(now+others-tat, now-from-paid))
	tat += idle
	g.from, g.until, g.paid, g.usedAt = from, now, paid+min(idle, us), now
	if tat < g.tat || tat == g.tat && rest < g.rest {
		g.tat, g.rest, g.given = tat, rest, g.given+k
	}
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
