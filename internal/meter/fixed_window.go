package meter

import (
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/zone"
)

// fixedWindow counts for a fixed window: n permits in each aligned period. A window opens margin
// after its start and closes margin before its end, so that no call arrives in a window other than
// the one that counts it. The count belongs to the window of the last permit. After a change to
// another period it can be too high or too low.
type fixedWindow struct {
	limit       *Limit
	n, margin   int64
	last, count int64 // time of the last permit, and number of permits in its window
}

// Define sets the limit, and keeps the count.
func (f *fixedWindow) Define(l *Limit) {
	f.limit, f.n, f.margin = l, int64(l.N), l.Margin.Microseconds()
}

// current returns the time that counts, the start of the window with that time, and the number of
// permits taken in that window. The time that counts is now, or the time of the last permit if the
// clock has stepped back to before it.
func (f *fixedWindow) current(now int64) (at, start, count int64) {
	at = max(now, f.last)
	start = f.limit.windowStart(at, 0)
	if f.last >= start {
		count = f.count
	}
	return at, start, count
}

// closed reports whether a time lies in the margin at the end of a window.
func (f *fixedWindow) closed(at int64) bool {
	return f.margin > 0 && at >= f.limit.windowStart(at, 1)-f.margin
}

// ReadyAt returns now if k permits are free in the present window, or else the opening of the
// window in which the k-th permit is free. If more than n permits were taken in a window, the next
// window still has n.
func (f *fixedWindow) ReadyAt(now, k int64) int64 {
	if k == 0 {
		return now
	}
	at, start, count := f.current(now)
	spare := max(0, f.n-count)
	if f.closed(at) {
		spare = 0
	}
	if k > spare {
		start = f.limit.windowStart(at, ceilDiv(k-spare, f.n))
	}
	return min(MaxTime, max(now, start+f.margin))
}

// openFrom returns the first time, not before from, at which a window is open.
func (f *fixedWindow) openFrom(from int64) int64 {
	if opens := f.limit.windowStart(from, 0) + f.margin; from < opens {
		return opens
	}
	if next := f.limit.windowStart(from, 1); from >= next-f.margin {
		return next + f.margin
	}
	return from
}

// Take counts the permits in the window of now. The mark is the time under which they count.
func (f *fixedWindow) Take(now, k int64) Mark {
	at, _, count := f.current(now)
	f.last, f.count = at, count+k
	return Mark{at}
}

// GiveBack subtracts k permits from the count if the call took them in the present window.
func (f *fixedWindow) GiveBack(now, _, k, _ int64, mark Mark) {
	if _, start, count := f.current(now); mark[0] >= start && f.last >= start {
		f.count = max(0, count-k)
	}
}

// Left returns the number of permits left in the present window. In the margins at the start and the
// end of the window it returns 0.
func (f *fixedWindow) Left(now int64) int64 {
	at, start, count := f.current(now)
	if start+f.margin > now || f.closed(at) {
		return 0
	}
	return max(0, f.n-count)
}

// FullAt returns the start of the next window, or now if no permit was taken in the present window.
func (f *fixedWindow) FullAt(now int64) int64 {
	at, _, count := f.current(now)
	if count == 0 {
		return now
	}
	return f.limit.windowStart(at, 1)
}

// windowStart returns the start of the window that lies `ahead` windows after the window of the
// time `at`. After the end of l.starts, it adds the mean length for each calendar window.
func (l *Limit) windowStart(at, ahead int64) int64 {
	period := l.PeriodUS()
	if !l.followsCalendar() {
		into := (at - l.OffsetUS()) % period
		if into < 0 {
			into += period
		}
		on, _ := Span(ahead, 1, period)
		return at - into + on
	}
	if len(l.starts) == 0 || at < l.starts[0] || at >= l.starts[len(l.starts)-1] {
		l.starts = l.edges(at, calendarLength)
	}
	windows := l.starts
	last := int64(len(windows) - 1)
	here := int64(sort.Search(len(windows), func(i int) bool { return windows[i] > at })) - 1
	if here+ahead <= last {
		return windows[here+ahead]
	}
	on, _ := Span(here+ahead-last, 1, period)
	return windows[last] + on
}

// Periods whose windows can follow a calendar. month has the mean length of a month.
const (
	day   = 24 * time.Hour
	week  = 7 * day
	month = 2629746 * time.Second
)

// mondayUS is the first Monday after the Unix epoch, which was a Thursday.
const mondayUS = int64(4 * day / time.Microsecond)

// followsCalendar reports whether the windows need a calendar. In UTC only months need one, because
// hours, days and weeks start at multiples of the period.
func (l Limit) followsCalendar() bool {
	if l.Kind != FixedWindow {
		return false
	}
	switch l.Per {
	case month:
		return true
	case time.Hour, day, week:
		return l.Zone != "" && l.Zone != "UTC"
	}
	return false
}

// OffsetUS returns the start of one window of a limit without a calendar. The other windows start
// whole periods before or after it.
func (l Limit) OffsetUS() int64 {
	if l.Kind == FixedWindow && l.Per == week {
		return mondayUS
	}
	return 0
}

// calendarLength is the number of windows of a calendar limit that Redis stores: two days of hours,
// or four years of months. When a script reaches the last window, Go stores the next ones.
const calendarLength = 48

// edges returns the starts of `count` successive windows of a valid limit, from the window of now
// on. It returns nil if the limit follows no calendar.
//
// A window starts at the first instant at which the zone's wall clock has reached the hour, or
// midnight of the day, of the Monday or of the 1st. If a clock change skips midnight, the day starts
// at the first instant of its date. A skipped hour or date has no window. An hour that the clock
// goes through twice is one window of two hours.
func (l Limit) edges(now int64, count int) []int64 {
	if !l.followsCalendar() {
		return nil
	}
	in, err := zone.Load(l.Zone)
	if err != nil {
		in = time.UTC // a valid limit has a zone that exists
	}
	edges := make([]int64, 0, count)
	wall := startOf(l.Per, time.UnixMicro(now).In(in))
	for ; len(edges) < count; wall = following(l.Per, wall) {
		edge := firstInstant(wall, in).UnixMicro()
		if len(edges) == 0 || edge > edges[len(edges)-1] {
			edges = append(edges, edge)
		}
	}
	return edges
}

// EdgesText returns the starts of calendarLength windows, from the window of now on, separated by
// spaces. The text is empty if the limit follows no calendar.
func (l Limit) EdgesText(now int64) string {
	return strings.Trim(fmt.Sprint(l.edges(now, calendarLength)), "[]")
}

// startOf returns the wall-clock time at which the hour, day, week or month of t began. Wall-clock
// times are kept as times in UTC, which has no gaps and no doubled hours.
func startOf(per time.Duration, t time.Time) time.Time {
	year, m, d := t.Date()
	hour := 0
	switch per {
	case time.Hour:
		hour = t.Hour()
	case week:
		d -= (int(t.Weekday()) + 6) % 7
	case month:
		d = 1
	}
	return time.Date(year, m, d, hour, 0, 0, 0, time.UTC)
}

// following returns the wall-clock time at which the next hour, day, week or month begins.
func following(per time.Duration, wall time.Time) time.Time {
	if per == month {
		return wall.AddDate(0, 1, 0)
	}
	return wall.Add(per)
}

// firstInstant returns the first instant at which the wall clock of a zone shows a wall-clock time
// or a later one. If a clock change skips or doubles that time, time.Date can return another
// instant. firstInstant goes through the stretches in which the zone's offset is constant.
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
			end = t.Truncate(day).Add(day)
		}
		if end.IsZero() || reached.Before(end) {
			return reached
		}
		t = end
	}
}
