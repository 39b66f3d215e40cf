package cron

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// oracle finds the ticks of a cron line by trying every step of real time and the wall-clock time
// at that moment. It shares no code with timetable.
type oracle struct {
	step                     time.Duration
	second, minute, hour     []int
	day, month, weekday      []int
	anyDay, anyWeekday, wild bool
}

func newOracle(line string) oracle {
	fields := strings.Fields(line)
	o := oracle{step: time.Second}
	if len(fields) == 5 {
		o.step = time.Minute
		fields = append([]string{"0"}, fields...)
	}
	o.second, o.minute = oracleField(fields[0], 0, 59), oracleField(fields[1], 0, 59)
	o.hour, o.day = oracleField(fields[2], 0, 23), oracleField(fields[3], 1, 31)
	o.month, o.weekday = oracleField(fields[4], 1, 12), oracleField(fields[5], 0, 6)
	o.anyDay, o.anyWeekday = isStar(fields[3]), isStar(fields[5])
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
		slices.Contains(o.minute, label.Minute()) &&
		slices.Contains(o.second, label.Second())
}

// ticks lists those in (from, to].
func (o oracle) ticks(zone *time.Location, from, to time.Time) []time.Time {
	var ticks []time.Time
	shown := map[time.Time]bool{}
	var before time.Time
	// It begins more than a day earlier, to know the times before the clocks went back.
	for at := from.Add(-26 * time.Hour).Truncate(o.step); !at.After(to); at = at.Add(o.step) {
		local := at.In(zone)
		label := time.Date(local.Year(), local.Month(), local.Day(),
			local.Hour(), local.Minute(), local.Second(), 0, time.UTC)
		tick := o.matches(label) && (o.wild || !shown[label])
		if !o.wild && !before.IsZero() {
			for gap := before.Add(o.step); gap.Before(label); gap = gap.Add(o.step) {
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
