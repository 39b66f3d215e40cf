package cron

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	robfig "github.com/robfig/cron/v3"

	"github.com/headgate/headgate/internal/duration"
	"github.com/headgate/headgate/internal/zone"
)

// schedule is an entry with its parsed cron line.
type schedule struct {
	entry  Entry
	every  time.Duration        // the duration of an @every line; 0 for any other line
	fields *robfig.SpecSchedule // nil for an @every line; each field is a bit set of the values that match
	zone   *time.Location
	spec   string // zone and cron line, or empty if the entry is disabled, as in state.Spec
}

var parser = robfig.NewParser(robfig.SecondOptional | robfig.Minute | robfig.Hour | robfig.Dom | robfig.Month | robfig.Dow | robfig.Descriptor)

// newSchedule parses the entry's Cron and Zone. Its error is a *throttle.FieldError.
func newSchedule(e Entry) (schedule, error) {
	// A changed spec restarts the entry, so a change of white space must not change the spec.
	line := strings.Join(strings.Fields(e.Cron), " ")
	location, err := zone.Load(e.Zone)
	if err != nil {
		return schedule{}, fieldError("zone", e.Zone, err.Error())
	}
	s := schedule{entry: e, zone: location}
	if !e.Disabled {
		s.spec = location.String() + " " + line
	}
	every, isEvery := strings.CutPrefix(line, "@every")
	if isEvery {
		s.every, err = duration.Parse(strings.TrimSpace(every))
	}
	want := ""
	switch {
	case isEvery && (err != nil || s.every < time.Second || s.every%time.Second != 0):
		want = "want @every and whole seconds, at least 1s, such as @every 90s"
	case isEvery:
	case line == "":
		want = `want a cron line such as "0 9 * * *" or @daily`
	case strings.Contains(line, "TZ="):
		want = "put the time zone in zone"
	default:
		s.fields, want = parseFields(line)
	}
	if want != "" {
		return schedule{}, fieldError("cron", e.Cron, want)
	}
	return s, nil
}

// parseFields parses a line that is not an @every line. If the line is invalid, want says why.
func parseFields(line string) (fields *robfig.SpecSchedule, want string) {
	columns := strings.Fields(line)
	for i, column := range columns {
		field := cronFields[max(0, len(cronFields)-len(columns)+i)]
		parts := strings.Split(column, ",")
		for n, part := range parts {
			plain, largeStep := field.rewrite(part)
			if largeStep {
				return nil, "the step in " + part + " is larger than its range, so that one value matches: list the values, or use @every such as @every 90m"
			}
			parts[n] = plain
		}
		columns[i] = strings.Join(parts, ",")
	}
	parsed, err := parser.Parse(strings.Join(columns, " "))
	if err != nil {
		return nil, err.Error() + `; want five fields of *, numbers, names, lists, ranges and steps, such as "0 9 * * *", or @hourly, @daily, @weekly, @monthly, @yearly or @every such as @every 90s`
	}
	fields = parsed.(*robfig.SpecSchedule)
	if nextWallTime(fields, time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return nil, "it never ticks, because there is no such date: choose a day that its months have"
	}
	return fields, ""
}

// cronField is a column of a cron line.
type cronField struct {
	low, high int
	names     []string // names of the values from low on; nil if they have none
}

var cronFields = []cronField{
	{0, 59, nil},
	{0, 59, nil},
	{0, 23, nil},
	{1, 31, nil},
	{1, 12, strings.Fields("jan feb mar apr may jun jul aug sep oct nov dec")},
	{0, 6, strings.Fields("sun mon tue wed thu fri sat")},
}

// rewrite returns a part of a list, such as 22-2/2, in a form that robfig/cron can read: without 7
// for Sunday and without ranges that wrap around. A part that rewrite cannot parse is returned as
// it is. largeStep reports whether the step is larger than the range, as in */90 for the minutes.
func (f cronField) rewrite(part string) (plain string, largeStep bool) {
	span, stepText, stepped := strings.Cut(part, "/")
	fromText, toText, ranged := strings.Cut(span, "-")
	from, to, step := f.value(fromText), f.value(toText), 1
	if stepped {
		step, _ = strconv.Atoi(stepText)
	}
	switch {
	case span == "*" || span == "?":
		from, to = f.low, f.high
	case !ranged && stepped: // 5/15 is 5-59/15
		to = f.high
	case !ranged:
		to = from
	case from > to && to >= 0:
		to += f.high - f.low + 1
	}
	if from < 0 || to < 0 || step < 1 {
		return part, false
	}
	if to > f.high {
		var values []string
		for v := from; v <= to; v += step {
			values = append(values, strconv.Itoa(f.low+(v-f.low)%(f.high-f.low+1)))
		}
		part = strings.Join(values, ",")
	}
	return part, step > 1 && step > to-from
}

// value returns the value of a number or a name, or -1 if the text is neither. Sunday is 0 or 7, as
// the text has it.
func (f cronField) value(text string) int {
	if i := slices.Index(f.names, strings.ToLower(text)); i >= 0 {
		return f.low + i
	}
	v, err := strconv.Atoi(text)
	if err != nil || v < f.low || v > f.high && (v != 7 || f.high != 6) {
		return -1
	}
	return v
}

// Next returns the entry's first tick after a moment, in the entry's zone, or the zero time if the
// entry is invalid. It ignores pauses and Disabled.
//
// An @every entry ticks at each multiple of its duration since 1970. An entry for every hour (an
// hour field of * or all 24) ticks whenever the zone's wall clock matches its fields. Every other
// entry with fields ticks once for each matching time of day. If the clocks go forward over one or
// more matching times, the entry ticks once, at the end of the gap. If the clocks go back and a
// matching time occurs twice, the entry ticks the first time only.
func (e Entry) Next(after time.Time) time.Time {
	s, err := newSchedule(e)
	if err != nil {
		return time.Time{}
	}
	return s.next(after)
}

// next is Entry.Next. It goes through the periods in which the zone's offset is constant, and
// searches each period by wall time. A wall time is what the zone's clock shows, as a time in UTC,
// which has no gaps and no repeated hours.
func (s schedule) next(after time.Time) time.Time {
	if s.every > 0 {
		every := int64(s.every / time.Second)
		tick := after.Unix() - after.Unix()%every
		if tick <= after.Unix() { // false before 1970 only, where % is negative
			tick += every
		}
		return time.Unix(tick, 0).In(s.zone)
	}
	for at := time.Unix(after.Unix()+1, 0).In(s.zone); ; {
		start, end := at.ZoneBounds()
		if !end.IsZero() && !end.After(at) { // ZoneBounds returns a wrong end on the last day of a leap year
			end = at.Truncate(day).Add(day)
		}
		wall := nextWallTime(s.fields, s.firstWallTime(at, start))
		if wall.IsZero() {
			return time.Time{}
		}
		_, offset := at.Zone()
		tick := time.Unix(wall.Unix()-int64(offset), 0).In(s.zone)
		if tick.Before(start) {
			tick = start // the clocks skip the matching wall time: the gap ends at start
		}
		if end.IsZero() || tick.Before(end) {
			return tick
		}
		at = end
	}
}

// firstWallTime returns the wall time at which the search for ticks from the moment at begins.
// start is the moment at which the offset of at began. If the entry does not tick in every hour,
// the search begins where the wall time of the previous offset ended. So a skipped time ticks, and
// a repeated time does not tick twice.
func (s schedule) firstWallTime(at, start time.Time) time.Time {
	wallTime := func(at, zoned time.Time) time.Time {
		_, offset := zoned.Zone()
		return time.Unix(at.Unix()+int64(offset), 0).UTC()
	}
	wall := wallTime(at, at)
	const everyHour = 1<<24 - 1
	if start.IsZero() || s.fields.Hour&everyHour == everyHour {
		return wall
	}
	if previousEnd := wallTime(start, start.Add(-time.Second)); at.Equal(start) || wall.Before(previousEnd) {
		return previousEnd
	}
	return wall
}

// nextWallTime returns the first matching wall time at or after wall, or the zero time if there is
// none. robfig/cron searches five years ahead, but 29 February can be eight years away, as in 2097.
func nextWallTime(fields *robfig.SpecSchedule, wall time.Time) time.Time {
	found := fields.Next(wall.Add(-time.Second))
	if found.IsZero() {
		found = fields.Next(time.Date(wall.Year()+6, 1, 1, 0, 0, -1, 0, time.UTC))
	}
	return found
}

const day = 24 * time.Hour

// missedAfter is the age from which a due tick counts as missed. A restart takes less time.
const missedAfter = 30 * time.Second

// plan splits the due ticks in (last, upTo]. run has the ticks to enqueue, oldest first. missed is
// the newest tick to drop, or the zero time. upTo is now, or the start of a pause.
func (s schedule) plan(last, upTo, now time.Time) (run []time.Time, missed time.Time) {
	maxMissed := map[Missed]int{MissedOnce: 1, MissedAll: cmp.Or(s.entry.MissedMax, 100)}[s.entry.Missed]
	const maxOnTime = int(missedAfter/time.Second) + 1
	run = s.newestTicks(last, upTo, maxMissed+1+maxOnTime)
	onTime := slices.IndexFunc(run, func(tick time.Time) bool { return !tick.Before(now.Add(-missedAfter)) })
	switch {
	case onTime < 0:
		onTime = len(run)
	case s.entry.Missed == MissedOnce:
		maxMissed = 0
	}
	if drop := onTime - maxMissed; drop > 0 {
		return run[drop:], run[drop-1]
	}
	return run, missed
}

// newestTicks returns the last n ticks in (after, upTo], or all if there are fewer, oldest first.
// The method next only searches forwards, and a year can have a tick in every second. So
// newestTicks searches the last minute before upTo, then two minutes, and so on.
func (s schedule) newestTicks(after, upTo time.Time, n int) []time.Time {
	if at := s.next(after); at.IsZero() || at.After(upTo) {
		return nil
	}
	for span := time.Minute; ; span *= 2 {
		from := latest(after, upTo.Add(-span))
		var ticks []time.Time
		for at := s.next(from); !at.IsZero() && !at.After(upTo); at = s.next(at) {
			ticks = append(ticks, at)
		}
		if len(ticks) >= n || !from.After(after) {
			return ticks[max(0, len(ticks)-n):]
		}
	}
}

func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }

func earliest(times ...time.Time) time.Time { return slices.MinFunc(times, time.Time.Compare) }
