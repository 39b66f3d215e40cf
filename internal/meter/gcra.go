package meter

// gcra counts for a funnel and for a token bucket by the generic cell rate algorithm (ITU-T I.371).
// Its state is tat, the theoretical arrival time, from which on all permits are free again. Each
// permit moves tat by the emission interval of period/n, and tat may be up to capacity intervals
// ahead of now. The field rest is the part of tat below a microsecond, in n-ths of a microsecond,
// so rounding errors do not add up.
type gcra struct {
	n, period, capacity int64
	tat, rest           int64
	born                int64 // time of the first Take after all permits were free
	given               int64 // permits given back since born

	groupStart, groupEnd, groupIdle int64 // the present group of calls, see GiveBack
}

// Define keeps the number of permits in use at l.Since, rounded up. From l.Since on, these permits
// become free at the new rate. l.Since can be in the past.
func (g *gcra) Define(l *Limit) {
	before, n, period := *g, int64(l.N), l.PeriodUS()
	g.n, g.period, g.capacity = n, period, int64(l.Capacity)
	if n == before.n && period == before.period {
		return
	}
	g.tat, g.rest, g.groupStart, g.groupEnd, g.groupIdle = 0, 0, 0, 0, 0
	if before.tat >= l.Since && before.tat > 0 {
		g.Take(l.Since, owed(before.tat-l.Since, before.rest, before.n, before.period))
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

// Take moves tat on by k intervals, at most to MaxTime. If all permits are free, a call that took
// permits earlier has none left to give back, so the state begins anew.
func (g *gcra) Take(now, k int64) Mark {
	if g.tat < now {
		g.tat, g.rest, g.born, g.given = now, 0, now, 0
		g.groupStart, g.groupEnd, g.groupIdle = 0, 0, 0
	}
	us, over := Span(k, g.n, g.period)
	g.rest += over
	g.tat, g.rest = g.tat+us+g.rest/g.n, g.rest%g.n
	if g.tat >= MaxTime {
		g.tat, g.rest = MaxTime, 0
	}
	return Mark{g.tat, g.given}
}

// GiveBack gives back k permits that a call took at the time takenAt. Without these permits, the
// meter might have been idle for some time since takenAt: with all permits free, tat moves with the
// clock. So GiveBack moves tat back by k intervals less the idle time. The exact idle time is
// unknown. GiveBack uses the smaller of two upper bounds:
//   - Without the k permits, tat would be at most laterUS ahead of now. laterUS is the most that
//     later calls have added to tat: its growth since the mark, plus all permits given back since.
//   - The idle time lies between takenAt and now. Calls that overlap form a group. The group's idle
//     time is at most the time since groupStart, when the group's first call took its permits, less
//     groupIdle, which GiveBack has subtracted already for other calls of the group.
//
// A new group starts if the call took its permits after groupEnd, the time of the last GiveBack. It
// also starts if the group's bound is k intervals or more, but the time since takenAt is shorter.
func (g *gcra) GiveBack(now, takenAt, k, _ int64, mark Mark) {
	givenUS, part := Span(g.given-mark[1], g.n, g.period)
	laterUS := g.tat + min(1, g.rest) - mark[0] + givenUS
	if takenAt < g.born || g.tat < now || g.tat == MaxTime || g.given < mark[1] || laterUS < 0 {
		return
	}
	us, over := Span(k, g.n, g.period)
	tat, rest := g.tat-us, g.rest-over
	if rest < 0 {
		tat, rest = tat-1, rest+g.n
	}
	if part > rest {
		laterUS++
	}
	start, subtracted := min(takenAt, g.groupStart), g.groupIdle
	if takenAt > g.groupEnd || now-start-subtracted >= us && now-takenAt < us {
		start, subtracted = takenAt, 0
	}
	idle := max(0, min(now+laterUS-tat, now-start-subtracted))
	tat += idle
	g.groupStart, g.groupEnd, g.groupIdle = start, now, subtracted+min(idle, us)
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

// FullAt returns tat, rounded up: all permits are free from then on.
func (g *gcra) FullAt(now int64) int64 { return max(now, g.tat+min(1, g.rest)) }
