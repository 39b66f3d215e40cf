package throttle

// fixedWindow counts for a fixed window: n permits in each aligned period. A
// window opens margin after its start.
type fixedWindow struct {
	rule         *rule
	start, count int64
}

func (f *fixedWindow) define(r *rule) { f.rule = r }

func (f *fixedWindow) n() int64      { return int64(f.rule.Rate.N) }
func (f *fixedWindow) margin() int64 { return f.rule.Margin.Microseconds() }

// current is the window at a moment: its start and what was taken in it. A
// stored window that lies ahead means that the clock was set back; a meter's
// own time never runs backwards, so that window is still the current one.
func (f *fixedWindow) current(now int64) (start, count int64) {
	start = f.rule.windowStart(now, 0)
	if f.start > start {
		start = f.rule.windowStart(f.start, 0)
	}
	if f.start >= start {
		count = f.count
	}
	return start, count
}

func (f *fixedWindow) readyAt(now, k int64) int64 {
	if k == 0 {
		return now
	}
	start, count := f.current(now)
	if spare := max(0, f.n()-count); k > spare {
		start = f.rule.windowStart(start, ceilDiv(k-spare, f.n()))
	}
	return max(now, start+f.margin())
}

func (f *fixedWindow) take(now, k int64) {
	start, count := f.current(now)
	f.start, f.count = start, count+k
}

func (f *fixedWindow) left(now int64) int64 {
	start, count := f.current(now)
	if start+f.margin() > now {
		return 0
	}
	return max(0, f.n()-count)
}

func (f *fixedWindow) fullAt(now int64) int64 {
	start, count := f.current(now)
	if count == 0 {
		return now
	}
	return f.rule.windowStart(start, 1)
}
