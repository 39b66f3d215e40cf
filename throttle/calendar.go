package throttle

import (
	"fmt"
	"strings"
	"time"
)

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
