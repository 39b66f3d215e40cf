package cron

import "time"

// next gives the first tick after a moment, by the rule of Entry.Next.
//
// It walks through the stretches of time in which the zone's offset is
// constant. Within one, wall clock and time differ by that offset only, so
// that the search runs on the wall clock's labels, which know no zone. A label is
// what the clock shows, kept as a time in UTC: there it can be reckoned with, as UTC
// has no gaps and nothing twice.
func (t *timetable) next(after time.Time) time.Time {
	if t.every > 0 {
		every := int64(t.every / time.Second)
		return time.Unix((floorDiv(after.Unix(), every)+1)*every, 0).In(t.zone)
	}
	for at := time.Unix(after.Unix()+1, 0).In(t.zone); ; {
		start, end := at.ZoneBounds()
		label := t.nextLabel(t.firstLabel(at, start))
		if label.IsZero() {
			return time.Time{}
		}
		_, offset := at.Zone()
		tick := time.Unix(label.Unix()-int64(offset), 0).In(t.zone)
		if tick.Before(start) {
			tick = start // the label fell into the gap that ends here
		}
		if end.IsZero() || tick.Before(end) {
			return tick
		}
		at = end
	}
}

// firstLabel is the first label that may tick at or after a moment of the
// stretch that begins at start. For an entry of fixed times labels go on where
// the stretch before ended: after a jump ahead that is earlier than the wall
// clock, so that the labels of the gap still tick; after a jump back it is
// later, so that labels which were there already do not tick again.
func (t *timetable) firstLabel(at, start time.Time) time.Time {
	label := wallClock(at)
	if start.IsZero() || t.everyHour() {
		return label
	}
	_, before := start.Add(-time.Second).Zone()
	resume := time.Unix(start.Unix()+int64(before), 0).UTC()
	if at.Equal(start) || label.Before(resume) {
		return resume
	}
	return label
}

// everyHour reports whether the schedule ticks in each hour of a day. Such a one
// has no fixed times: nothing of a gap is made up for, and both of a doubled hour
// tick.
func (t *timetable) everyHour() bool {
	const all = 1<<24 - 1
	return t.fields.Hour&all == all
}

// nextLabel finds the first matching label at or after the given one. No date
// that exists is further away than eight years (29 February around 2100), so
// it gives the zero time after nine.
func (t *timetable) nextLabel(label time.Time) time.Time {
	has := func(field uint64, value int) bool { return field&(1<<value) != 0 }
	f := t.fields
	for end := label.AddDate(9, 0, 0); label.Before(end); {
		year, month, day := label.Date()
		switch {
		case !has(f.Month, int(month)):
			label = time.Date(year, month+1, 1, 0, 0, 0, 0, time.UTC)
		case !t.hasDay(label):
			label = time.Date(year, month, day+1, 0, 0, 0, 0, time.UTC)
		case !has(f.Hour, label.Hour()):
			label = label.Truncate(time.Hour).Add(time.Hour)
		case !has(f.Minute, label.Minute()):
			label = label.Truncate(time.Minute).Add(time.Minute)
		case !has(f.Second, label.Second()):
			label = label.Add(time.Second)
		default:
			return label
		}
	}
	return time.Time{}
}

// hasDay is cron's old rule: when both day fields are restricted, one of them
// has to match; otherwise both.
func (t *timetable) hasDay(label time.Time) bool {
	const star = 1 << 63 // set by the parser for * and ?
	inMonth := t.fields.Dom&(1<<label.Day()) != 0
	inWeek := t.fields.Dow&(1<<label.Weekday()) != 0
	if t.fields.Dom&star != 0 || t.fields.Dow&star != 0 {
		return inMonth && inWeek
	}
	return inMonth || inWeek
}

// wallClock is what a clock in at's zone shows, as a time in UTC.
func wallClock(at time.Time) time.Time {
	_, offset := at.Zone()
	return time.Unix(at.Unix()+int64(offset), 0).UTC()
}

// floorDiv is a/b rounded down, for a below 0, too.
func floorDiv(a, b int64) int64 {
	if a%b < 0 {
		return a/b - 1
	}
	return a / b
}
