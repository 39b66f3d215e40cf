package throttle

import "sort"

// fixedWindow counts for a fixed window: n permits in each aligned period. A
// window opens margin after its start and closes margin before its end, so that
// no call arrives in another one than it was counted in. What was counted stays as
// long as the last of it lies in the present window, however the windows have
// changed. That may count too much after such a change, never too little.
type fixedWindow struct {
	limit       *activeLimit
	last, count int64 // when the last permit was taken, and how many in its window
}

// define tells the meter the limit. The count is kept with the time of the last
// permit and not with a window, so a change from days to hours loses nothing.
func (f *fixedWindow) define(r *activeLimit) { f.limit = r }

// n is how many permits a window has, and margin how much later it opens and
// earlier it closes.
func (f *fixedWindow) n() int64 { return int64(f.limit.Rate.N) }

func (f *fixedWindow) margin() int64 { return f.limit.Margin.Microseconds() }

// current is the meter's own time, the start of its window and what was taken
// in it. A permit that lies ahead means that the clock was set back; a meter's
// time never runs backwards.
func (f *fixedWindow) current(now int64) (at, start, count int64) {
	at = max(now, f.last)
	start = f.limit.windowStart(at, 0)
	if f.last >= start {
		count = f.count
	}
	return at, start, count
}

// closed reports whether a moment lies in the margin before its window's end.
func (f *fixedWindow) closed(at int64) bool {
	margin := f.margin()
	return margin > 0 && at >= f.limit.windowStart(at, 1)-margin
}

func (f fixedWindow) clone() meter { return &f }

// readyAt is now where the window has k permits left, and else the opening of the
// window in which the last of them would come: k above n are had in several windows,
// for estimates. A debt, a count above n, ends with its window: the next lets n
// through all the same, as the other side counts anew too.
func (f *fixedWindow) readyAt(now, k int64) int64 {
	if k == 0 {
		return now
	}
	at, start, count := f.current(now)
	spare := max(0, f.n()-count)
	if f.closed(at) {
		spare = 0
	}
	if k > spare {
		start = f.limit.windowStart(at, ceilDiv(k-spare, f.n()))
	}
	return min(far, max(now, start+f.margin()))
}

// take counts the permits in the window of now. Its mark is when they count.
func (f *fixedWindow) take(now, k int64) mark {
	at, _, count := f.current(now)
	f.last, f.count = at, count+k
	return mark{at}
}

// giveBack uncounts permits that were taken in the present window. What was taken in
// one before no longer counts.
func (f *fixedWindow) giveBack(now, k int64, of spent) {
	if _, start, count := f.current(now); of.mark[0] >= start && f.last >= start {
		f.count = max(0, count-k)
	}
}

// left is nothing before the window has opened, nor after it has closed: the
// margins belong to nobody.
func (f *fixedWindow) left(now int64) int64 {
	at, start, count := f.current(now)
	if start+f.margin() > now || f.closed(at) {
		return 0
	}
	return max(0, f.n()-count)
}

// fullAt is the start of the next window, if anything was taken in this one.
func (f *fixedWindow) fullAt(now int64) int64 {
	at, _, count := f.current(now)
	if count == 0 {
		return now
	}
	return f.limit.windowStart(at, 1)
}

// windowStart is the start of the window that lies `ahead` windows after the
// one which holds a moment. Windows beyond the part of a calendar that was
// looked up are taken to be of the mean length: they are for estimates. A part is
// looked up when a moment lies outside the last one, so one call in calendarLength
// windows pays for it.
func (r *activeLimit) windowStart(at, ahead int64) int64 {
	period := r.periodUS()
	if !r.followsCalendar() {
		into := (at - r.offsetUS()) % period
		if into < 0 {
			into += period
		}
		on, _ := span(ahead, 1, period)
		return at - into + on
	}
	if r.calendar == nil {
		r.calendar = new([]int64)
	}
	windows := *r.calendar
	if len(windows) == 0 || at < windows[0] || at >= windows[len(windows)-1] {
		windows = r.edges(at, calendarLength)
		*r.calendar = windows
	}
	last := int64(len(windows) - 1)
	here := int64(sort.Search(len(windows), func(i int) bool { return windows[i] > at })) - 1
	if here+ahead <= last {
		return windows[here+ahead]
	}
	on, _ := span(here+ahead-last, 1, period)
	return windows[last] + on
}
