package cron

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// oracle finds the ticks of a cron line of five fields by trying every minute of real time and the
// wall-clock time at that moment. It shares no code with timetable.
type oracle struct {
	minute, hour             []int
	day, month, weekday      []int
	anyDay, anyWeekday, wild bool
}

func newOracle(line string) oracle {
	fields := strings.Fields(line)
	o := oracle{minute: oracleField(fields[0], 0, 59), hour: oracleField(fields[1], 0, 23)}
	o.day, o.month, o.weekday = oracleField(fields[2], 1, 31), oracleField(fields[3], 1, 12), oracleField(fields[4], 0, 6)
	o.anyDay, o.anyWeekday = isStar(fields[2]), isStar(fields[4])
	o.wild = len(o.hour) == 24
	return o
}

func isStar(field string) bool { return field == "*" || field == "*/1" }

// oracleField returns the values of a field: numbers, ranges, steps and commas.
func oracleField(field string, low, high int) []int {
	var values []int
	for part := range strings.SplitSeq(field, ",") {
		part, every, stepped := strings.Cut(part, "/")
		step, from, to := 1, low, high
		if stepped {
			step, _ = strconv.Atoi(every)
		}
		if part != "*" {
			a, b, ranged := strings.Cut(part, "-")
			from, _ = strconv.Atoi(a)
			switch {
			case ranged:
				to, _ = strconv.Atoi(b)
			case !stepped:
				to = from
			}
		}
		for v := from; v <= to; v += step {
			values = append(values, v)
		}
	}
	return values
}

func (o oracle) matches(label time.Time) bool {
	day := slices.Contains(o.day, label.Day())
	weekday := slices.Contains(o.weekday, int(label.Weekday()))
	either := day || weekday
	if o.anyDay || o.anyWeekday {
		either = day && weekday
	}
	return either && slices.Contains(o.month, int(label.Month())) &&
		slices.Contains(o.hour, label.Hour()) &&
		slices.Contains(o.minute, label.Minute())
}

// ticks lists those in (from, to].
func (o oracle) ticks(zone *time.Location, from, to time.Time) []time.Time {
	var ticks []time.Time
	shown := map[time.Time]bool{}
	var before time.Time
	// It begins more than a day earlier, to know the times before the clocks went back.
	for at := from.Add(-26 * time.Hour).Truncate(time.Minute); !at.After(to); at = at.Add(time.Minute) {
		local := at.In(zone)
		label := time.Date(local.Year(), local.Month(), local.Day(),
			local.Hour(), local.Minute(), 0, 0, time.UTC)
		tick := o.matches(label) && (o.wild || !shown[label])
		if !o.wild && !before.IsZero() {
			for gap := before.Add(time.Minute); gap.Before(label); gap = gap.Add(time.Minute) {
				tick = tick || o.matches(gap)
			}
		}
		shown[label], before = true, label
		if tick && at.After(from) {
			ticks = append(ticks, at)
		}
	}
	return ticks
}
