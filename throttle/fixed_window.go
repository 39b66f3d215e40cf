package throttle

import (
	"fmt"
	"sort"
	"strings"
	"time"
)

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

// openFrom is the first moment from one on at which a window is open.
func (f *fixedWindow) openFrom(from int64) int64 {
	margin := f.margin()
	if opens := f.limit.windowStart(from, 0) + margin; from < opens {
		return opens
	}
	if next := f.limit.windowStart(from, 1); from >= next-margin {
		return next + margin
	}
	return from
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

// mondayUS is the first Monday after the Unix epoch, which was a Thursday.
const mondayUS = int64(4 * Day / time.Microsecond)

// followsCalendar reports whether windows are not just multiples of the period. In
// UTC hours, days and weeks are; only months need a calendar.
func (l Limit) followsCalendar() bool {
	if l.Kind != FixedWindow {
		return false
	}
	switch l.Rate.Per {
	case Month:
		return true
	case time.Hour, Day, Week:
		return l.Zone != "" && l.Zone != "UTC"
	}
	return false
}

// offsetUS is where the multiples of the period start, for a limit that does
// not follow a calendar.
func (l Limit) offsetUS() int64 {
	if l.Kind == FixedWindow && l.Rate.Per == Week {
		return mondayUS
	}
	return 0
}

// calendarLength is how many windows of a calendar limit Redis knows ahead: two
// days of hours, or four years of months. The scripts ask for more when they come
// to the last.
const calendarLength = 48

// edges is the starts of `count` windows of a valid limit, ascending, the first
// not after now; or nil if the limit does not follow a calendar.
//
// A window starts at the first instant at which the zone's wall clock has
// reached the hour, or midnight of the day, of the Monday or of the 1st. So
// where a clock change skips a midnight the day starts at the first instant of
// its date, a skipped hour or date has no window, and an hour that the clock
// goes through twice is one window of two hours.
func (l Limit) edges(now int64, count int) []int64 {
	if !l.followsCalendar() {
		return nil
	}
	zone, err := time.LoadLocation(l.Zone)
	if err != nil {
		zone = time.UTC // Validate has refused it
	}
	edges := make([]int64, 0, count)
	wall := startOf(l.Rate.Per, time.UnixMicro(now).In(zone))
	for ; len(edges) < count; wall = following(l.Rate.Per, wall) {
		edge := firstInstant(wall, zone).UnixMicro()
		if len(edges) == 0 || edge > edges[len(edges)-1] {
			edges = append(edges, edge)
		}
	}
	return edges
}

// edgesText is the windows around a moment as the scripts read them, or nothing if the
// limit does not follow a calendar.
func (l Limit) edgesText(now int64) string {
	return strings.Trim(fmt.Sprint(l.edges(now, calendarLength)), "[]")
}

// startOf is what the wall clock of t's zone read when the hour, day, week or
// month began. Readings of wall clocks are kept as times in UTC, which has no gaps
// and no doubled hours, so that they can be reckoned with.
func startOf(per time.Duration, t time.Time) time.Time {
	year, month, day := t.Date()
	hour := 0
	switch per {
	case time.Hour:
		hour = t.Hour()
	case Week:
		day -= (int(t.Weekday()) + 6) % 7
	case Month:
		day = 1
	}
	return time.Date(year, month, day, hour, 0, 0, 0, time.UTC)
}

// following is the reading at which the next hour, day, week or month begins.
func following(per time.Duration, wall time.Time) time.Time {
	if per == Month {
		return wall.AddDate(0, 1, 0)
	}
	return wall.Add(per)
}

// firstInstant is when the wall clock of a zone first shows a reading or one
// after it. It goes through the stretches in which the zone's offset is constant:
// in each the reading is reached at one moment, which counts if it lies in there.
// time.Date would do but for readings in a gap or doubled, of which it promises
// nothing of the kind.
func firstInstant(wall time.Time, zone *time.Location) time.Time {
	t := wall.Add(-26 * time.Hour).In(zone) // no zone is that far from UTC
	for {
		_, offset := t.Zone()
		reached := wall.Add(-time.Duration(offset) * time.Second)
		if reached.Before(t) {
			reached = t
		}
		_, end := t.ZoneBounds()
		if !end.IsZero() && !end.After(t) {
			// In the last UTC day of a leap year ZoneBounds can end before t
			// (golang/go#81583). No clock changes in the rest of that day.
			end = t.Truncate(Day).Add(Day)
		}
		if end.IsZero() || reached.Before(end) {
			return reached
		}
		t = end
	}
}
