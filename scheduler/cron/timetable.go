package cron

import (
	"fmt"
	"strings"
	"time"

	robfig "github.com/robfig/cron/v3"
)

// A timetable is an entry's cron line, understood. It knows the ticks of one
// line in one zone and nothing of what became of them.
type timetable struct {
	every  time.Duration        // of an @every line
	fields *robfig.SpecSchedule // of any other; a bit for each value that matches
	zone   *time.Location
	// spec is zone and cron line in one, as the entry's state in Redis keeps it.
	spec string
}

// newTimetable understands the entry's Cron, Seconds and Zone. What is wrong
// comes back as an *EntryError.
//
// robfig/cron reads the fields; its search for the next tick is not used, as it
// drops ticks that fall into a gap of the clocks and doubles those of an hour
// that comes twice.
func newTimetable(e Entry) (*timetable, error) {
	// Lines that differ in blanks alone are one: else to tidy a config up would begin the
	// entry anew.
	line := strings.Join(strings.Fields(e.Cron), " ")
	zone, err := loadZone(e)
	if err != nil {
		return nil, err
	}
	t := &timetable{zone: zone, spec: zone.String() + " " + line}
	wrong := func(hint string) (*timetable, error) {
		return nil, &EntryError{e.Name, "cron", e.Cron, hint}
	}
	if every, ok := strings.CutPrefix(line, "@every"); ok {
		t.every, err = time.ParseDuration(strings.TrimSpace(every))
		if err != nil || t.every < time.Second || t.every%time.Second != 0 {
			return wrong("must be @every and whole seconds, at least 1s, such as @every 90s")
		}
		return t, nil
	}
	if hint := badFields(line, e.Seconds); hint != "" {
		return wrong(hint)
	}
	schedule, err := parser(e.Seconds).Parse(line)
	if err != nil {
		return wrong("is not a cron line: " + err.Error())
	}
	t.fields = schedule.(*robfig.SpecSchedule)
	// The search gives up after nine years: there is no such date then.
	if t.nextLabel(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return wrong("never ticks: there is no such date, choose a day that its months have")
	}
	return t, nil
}

// loadZone loads the entry's zone. Local is refused because replicas on
// different machines would disagree on it.
func loadZone(e Entry) (*time.Location, error) {
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

// parser reads lines with or without a field for the second. Descriptors are
// @hourly and its like.
func parser(seconds bool) robfig.Parser {
	fields := robfig.Minute | robfig.Hour | robfig.Dom | robfig.Month | robfig.Dow | robfig.Descriptor
	if seconds {
		fields |= robfig.Second
	}
	return robfig.NewParser(fields)
}

// timetableOf is the timetable that spec was taken from. That it had a field for
// the second shows in the number of fields. It fails for what another version, which
// knew other lines, has written.
func timetableOf(spec string) (*timetable, error) {
	zone, line, _ := strings.Cut(spec, " ")
	seconds := len(strings.Fields(line)) == 6
	return newTimetable(Entry{Cron: line, Seconds: seconds, Zone: zone})
}
