package cron

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	robfig "github.com/robfig/cron/v3"

	"github.com/headgate/headgate/internal/duration"
)

// timetable is a parsed cron line in a zone.
type timetable struct {
	every  time.Duration        // of an @every line
	fields *robfig.SpecSchedule // of any other line; each field has a bit for every matching value
	zone   *time.Location
	spec   string // zone and cron line, as in state.Spec
}

// newTimetable parses the entry's Cron and Zone. Its error is an *EntryError.
func newTimetable(e Entry) (*timetable, error) {
	// A changed spec restarts the entry. A change of white space in a config must not.
	line := strings.Join(strings.Fields(e.Cron), " ")
	zone, err := time.LoadLocation(e.Zone)
	switch {
	case e.Zone == "Local": // it can differ between replicas
		return nil, &EntryError{e.Name, "zone", e.Zone, "differs from machine to machine: name it, such as Europe/London"}
	case err != nil:
		return nil, &EntryError{e.Name, "zone", e.Zone, "is not a time zone: use an IANA name such as Europe/London"}
	}
	t := &timetable{zone: zone, spec: zone.String() + " " + line}
	wrong := func(hint string) (*timetable, error) {
		return nil, &EntryError{e.Name, "cron", e.Cron, hint}
	}
	if every, ok := strings.CutPrefix(line, "@every"); ok {
		t.every, err = duration.Parse(strings.TrimSpace(every))
		if err != nil || t.every < time.Second || t.every%time.Second != 0 {
			return wrong("must be @every and whole seconds, at least 1s, such as @every 90s")
		}
		return t, nil
	}
	if macro, ok := macros[line]; ok {
		line = macro
	} else if hint := badFields(line); hint != "" {
		return wrong(hint)
	} else if len(strings.Fields(line)) == 5 {
		line = "0 " + line
	}
	var hint string
	if t.fields, hint = readLine(line); hint != "" {
		return wrong(hint)
	}
	if t.nextWallTime(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return wrong("never ticks: there is no such date, choose a day that its months have")
	}
	return t, nil
}

// macros are the lines with a name.
var macros = map[string]string{
	"@hourly": "0 0 * * * *", "@daily": "0 0 0 * * *", "@midnight": "0 0 0 * * *", "@weekly": "0 0 0 * * 0",
	"@monthly": "0 0 0 1 * *", "@yearly": "0 0 0 1 1 *", "@annually": "0 0 0 1 1 *",
}

// badFields returns a hint what is wrong with the form of a cron line, or an empty text.
func badFields(line string) string {
	count := len(strings.Fields(line))
	switch {
	case line == "":
		return `must be a cron line such as "0 9 * * *" or @daily`
	case strings.HasPrefix(line, "TZ=") || strings.HasPrefix(line, "CRON_TZ="):
		return "must not name a time zone: put it in zone"
	case strings.HasPrefix(line, "@"):
		return "must be @hourly, @daily, @weekly, @monthly, @yearly, @every such as @every 90s, or five fields"
	case count != 5 && count != 6:
		return fmt.Sprintf("has %d fields: want five such as \"0 9 * * *\", or six, the first for the second", count)
	}
	return ""
}

// Next returns the entry's first tick after a moment, in the entry's zone, or the zero time if the
// entry is invalid. It does no I/O, and ignores pauses, Disabled and earlier ticks.
//
// An entry for every hour (an hour field of * or all 24) ticks whenever the zone's wall clock
// matches its fields. Every other entry ticks once for each matching time of day. If the clocks
// skip one or more such times, the entry ticks once, at the end of the gap. If a time occurs twice,
// the entry ticks the first time.
func (e Entry) Next(after time.Time) time.Time {
	table, err := newTimetable(e)
	if err != nil {
		return time.Time{}
	}
	return table.next(after)
}

// next returns the first tick after a moment, by the rule of Entry.Next. It goes through the
// periods in which the zone's offset is constant. Within a period it searches wall times: what the
// wall clock shows, as a time in UTC, which has no gaps and no repeated hours.
func (t *timetable) next(after time.Time) time.Time {
	if t.every > 0 {
		every := int64(t.every / time.Second)
		tick := after.Unix() - after.Unix()%every
		if tick <= after.Unix() { // always, but for moments before 1970
			tick += every
		}
		return time.Unix(tick, 0).In(t.zone)
	}
	for at := time.Unix(after.Unix()+1, 0).In(t.zone); ; {
		start, end := at.ZoneBounds()
		if !end.IsZero() && !end.After(at) { // a fault of ZoneBounds on the last day of a leap year
			end = at.Truncate(day).Add(day)
		}
		wall := t.nextWallTime(t.firstWallTime(at, start))
		if wall.IsZero() {
			return time.Time{}
		}
		_, offset := at.Zone()
		tick := time.Unix(wall.Unix()-int64(offset), 0).In(t.zone)
		if tick.Before(start) {
			tick = start // the wall-clock time is in the gap that ends here
		}
		if end.IsZero() || tick.Before(end) {
			return tick
		}
		at = end
	}
}

// firstWallTime returns the first wall time that may tick at or after a moment of the period that
// begins at start. If the entry has fixed hours, the search continues at the wall time at which the
// period before ended. So a time in a gap ticks, and a repeated time does not tick twice.
func (t *timetable) firstWallTime(at, start time.Time) time.Time {
	_, offset := at.Zone()
	wall := time.Unix(at.Unix()+int64(offset), 0).UTC()
	const all = 1<<24 - 1 // every hour
	if start.IsZero() || t.fields.Hour&all == all {
		return wall
	}
	_, previous := start.Add(-time.Second).Zone()
	resume := time.Unix(start.Unix()+int64(previous), 0).UTC()
	if at.Equal(start) || wall.Before(resume) {
		return resume
	}
	return wall
}

// nextWallTime returns the first matching wall time at or after the given one. robfig/cron searches
// five years, but 29 February can be eight years away, around 2100.
func (t *timetable) nextWallTime(wall time.Time) time.Time {
	found := t.fields.Next(wall.Add(-time.Second))
	if found.IsZero() {
		found = t.fields.Next(time.Date(wall.Year()+6, 1, 1, 0, 0, -1, 0, time.UTC))
	}
	return found
}

const day = 24 * time.Hour

// missedAfter is the delay after which a tick counts as missed. It is longer than a restart.
const missedAfter = 30 * time.Second

// plan splits the due ticks in (last, upTo]: run are those to enqueue, oldest first, and missed is
// the newest of those to drop, or the zero time.
func (s schedule) plan(last, upTo, now time.Time) (run []time.Time, missed time.Time) {
	late := earliest(upTo, now.Add(-missedAfter-time.Nanosecond))
	onTime := newestTicks(s.timetable, latest(last, late), upTo, int(missedAfter/time.Second)+1)
	maxMissed := 0
	switch {
	case s.entry.Missed == MissedOnce && len(onTime) == 0:
		maxMissed = 1
	case s.entry.Missed == MissedAll:
		maxMissed = cmp.Or(s.entry.MissedMax, 100)
	}
	run = newestTicks(s.timetable, last, late, maxMissed+1)
	if len(run) > maxMissed {
		missed, run = run[0], run[1:]
	}
	return append(run, onTime...), missed
}

// newestTicks returns the last n ticks in (after, upTo], oldest first. A timetable can only be
// walked forwards, and a year can have a tick in every second, so newestTicks tries longer and
// longer periods before upTo.
func newestTicks(by *timetable, after, upTo time.Time, n int) []time.Time {
	if at := by.next(after); at.IsZero() || at.After(upTo) {
		return nil
	}
	for span := time.Minute; ; span *= 2 {
		from := latest(after, upTo.Add(-span))
		var ticks []time.Time
		for at := by.next(from); !at.IsZero() && !at.After(upTo); at = by.next(at) {
			if len(ticks) == n {
				ticks = append(ticks[:0], ticks[1:]...)
			}
			ticks = append(ticks, at)
		}
		if len(ticks) == n || !from.After(after) {
			return ticks
		}
	}
}

func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }

func earliest(times ...time.Time) time.Time { return slices.MinFunc(times, time.Time.Compare) }
