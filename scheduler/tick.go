package scheduler

import (
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// tickRule is an entry's cron line, understood: either every, or the fields
// and their zone.
type tickRule struct {
	every  time.Duration
	fields *cron.SpecSchedule
	zone   *time.Location
	// spec is zone and cron line in one, as the entry's state in Redis keeps it.
	spec string
}

// newTickRule understands the entry's Cron, Seconds and Zone. What is wrong
// comes back as an *EntryError.
func newTickRule(e Entry) (*tickRule, error) {
	line := strings.Join(strings.Fields(e.Cron), " ")
	zone, err := tickZone(e)
	if err != nil {
		return nil, err
	}
	rule := &tickRule{zone: zone, spec: zone.String() + " " + line}
	wrong := func(hint string) (*tickRule, error) {
		return nil, &EntryError{e.Name, "cron", e.Cron, hint}
	}
	if every, ok := strings.CutPrefix(line, "@every"); ok {
		rule.every, err = time.ParseDuration(strings.TrimSpace(every))
		if err != nil || rule.every < time.Second || rule.every%time.Second != 0 {
			return wrong("must be @every and whole seconds, at least 1s, such as @every 90s")
		}
		return rule, nil
	}
	if hint := badFields(line, e.Seconds); hint != "" {
		return wrong(hint)
	}
	schedule, err := cronParser(e.Seconds).Parse(line)
	if err != nil {
		return wrong("is not a cron line: " + err.Error())
	}
	rule.fields = schedule.(*cron.SpecSchedule)
	if rule.nextLabel(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return wrong("never ticks: there is no such date, choose a day that its months have")
	}
	return rule, nil
}

// tickZone loads the entry's zone. Local is refused because replicas on
// different machines would disagree on it.
func tickZone(e Entry) (*time.Location, error) {
	if e.Zone == "Local" {
		return nil, &EntryError{
			e.Name, "zone", e.Zone,
			"differs from machine to machine: name it, such as Europe/London",
		}
	}
	zone, err := time.LoadLocation(e.Zone)
	if err != nil {
		return nil, &EntryError{
			e.Name, "zone", e.Zone,
			"is not a time zone: use an IANA name such as Europe/London",
		}
	}
	return zone, nil
}

// badFields says what is wrong with the shape of a cron line, in clearer words
// than the parser's. It also keeps lines away that the parser panics on.
func badFields(line string, seconds bool) string {
	count := len(strings.Fields(line))
	switch {
	case line == "":
		return `must be a cron line such as "0 9 * * *" or @daily`
	case strings.HasPrefix(line, "TZ=") || strings.HasPrefix(line, "CRON_TZ="):
		return "must not name a time zone: put it in zone"
	case strings.HasPrefix(line, "@"):
		return ""
	case count == 6 && !seconds:
		return "has six fields: set seconds: true, or drop the first field"
	case count == 5 && seconds:
		return "has five fields but seconds is true: put the second first, such as 0"
	case count != 5 && !seconds:
		return fmt.Sprintf("has %d fields: five are needed, such as \"0 9 * * *\"", count)
	case count != 6 && seconds:
		return fmt.Sprintf("has %d fields: six are needed, such as \"0 0 9 * * *\"", count)
	}
	return ""
}

func cronParser(seconds bool) cron.Parser {
	fields := cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor
	if seconds {
		fields |= cron.Second
	}
	return cron.NewParser(fields)
}

// tickRuleOf is the rule that spec was taken from.
func tickRuleOf(spec string) (*tickRule, error) {
	zone, line, _ := strings.Cut(spec, " ")
	seconds := len(strings.Fields(line)) == 6
	return newTickRule(Entry{Cron: line, Seconds: seconds, Zone: zone})
}

// next gives the first tick after a moment, by the rule of Entry.Next.
//
// It walks through the stretches of time in which the zone's offset is
// constant. Within one, wall clock and time differ by that offset only, so
// that the search runs on the wall clock's labels, which know no zone.
func (r *tickRule) next(after time.Time) time.Time {
	if r.every > 0 {
		every := int64(r.every / time.Second)
		return time.Unix((floorDiv(after.Unix(), every)+1)*every, 0).In(r.zone)
	}
	for at := time.Unix(after.Unix()+1, 0).In(r.zone); ; {
		start, end := at.ZoneBounds()
		label := r.nextLabel(r.firstLabel(at, start))
		if label.IsZero() {
			return time.Time{}
		}
		_, offset := at.Zone()
		tick := time.Unix(label.Unix()-int64(offset), 0).In(r.zone)
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
func (r *tickRule) firstLabel(at, start time.Time) time.Time {
	label := wallClock(at)
	if start.IsZero() || r.everyHour() {
		return label
	}
	_, before := start.Add(-time.Second).Zone()
	resume := time.Unix(start.Unix()+int64(before), 0).UTC()
	if at.Equal(start) || label.Before(resume) {
		return resume
	}
	return label
}

func (r *tickRule) everyHour() bool {
	const all = 1<<24 - 1
	return r.fields.Hour&all == all
}

// nextLabel finds the first matching label at or after the given one. No date
// that exists is further away than eight years (29 February around 2100), so
// it gives the zero time after nine.
func (r *tickRule) nextLabel(label time.Time) time.Time {
	has := func(field uint64, value int) bool { return field&(1<<value) != 0 }
	f := r.fields
	for end := label.AddDate(9, 0, 0); label.Before(end); {
		year, month, day := label.Date()
		switch {
		case !has(f.Month, int(month)):
			label = time.Date(year, month+1, 1, 0, 0, 0, 0, time.UTC)
		case !r.hasDay(label):
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
func (r *tickRule) hasDay(label time.Time) bool {
	const star = 1 << 63 // set by the parser for * and ?
	inMonth := r.fields.Dom&(1<<label.Day()) != 0
	inWeek := r.fields.Dow&(1<<label.Weekday()) != 0
	if r.fields.Dom&star != 0 || r.fields.Dow&star != 0 {
		return inMonth && inWeek
	}
	return inMonth || inWeek
}

// wallClock is what a clock in at's zone shows, as a time in UTC.
func wallClock(at time.Time) time.Time {
	_, offset := at.Zone()
	return time.Unix(at.Unix()+int64(offset), 0).UTC()
}

func floorDiv(a, b int64) int64 {
	if a%b < 0 {
		return a/b - 1
	}
	return a / b
}
