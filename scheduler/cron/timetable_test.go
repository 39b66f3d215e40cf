package cron

import (
	"fmt"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the tests do not depend on the machine's zones

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func mustZone(t testing.TB, name string) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

// ticksOf lists the entry's ticks in (from, to].
func ticksOf(e Entry, from, to time.Time) []time.Time {
	rule, err := newSchedule(e)
	if err != nil {
		panic(err)
	}
	var ticks []time.Time
	for at := rule.next(from); !at.IsZero() && !at.After(to); at = rule.next(at) {
		ticks = append(ticks, at)
	}
	return ticks
}

// TestNextOnClockChanges: ticks in the first five hours of a day of 2026, as the wall clock and its
// offset show them.
func TestNextOnClockChanges(t *testing.T) {
	for day, lines := range map[string]map[string][]string{
		"2026-03-08 America/New_York": {
			"0 * * * *":    {"01:00-0500", "03:00-0400", "04:00-0400", "05:00-0400"},
			"30 2 * * *":   {"03:00-0400"},
			"*/20 2 * * *": {"03:00-0400"},
			"0 2,3 * * *":  {"03:00-0400"},
			"15 3 * * *":   {"03:15-0400"},
		},
		"2026-11-01 America/New_York": {
			"0 * * * *":    {"01:00-0400", "01:00-0500", "02:00-0500", "03:00-0500", "04:00-0500", "05:00-0500"},
			"30 1 * * *":   {"01:30-0400"},
			"*/30 1 * * *": {"01:00-0400", "01:30-0400"},
			"0 2 * * *":    {"02:00-0500"},
		},
		"2026-10-04 Australia/Lord_Howe": { // 02:00 becomes 02:30
			"*/30 * * * *": {"00:30+1030", "01:00+1030", "01:30+1030", "02:30+1100", "03:00+1100", "03:30+1100", "04:00+1100", "04:30+1100", "05:00+1100"},
			"0 * * * *":    {"01:00+1030", "03:00+1100", "04:00+1100", "05:00+1100"},
			"15 2 * * *":   {"02:30+1100"},
			"45 2 * * *":   {"02:45+1100"},
		},
	} {
		for line, want := range lines {
			t.Run(day+"/"+line, func(t *testing.T) {
				day, zone, _ := strings.Cut(day, " ")
				from, _ := time.ParseInLocation(time.DateOnly, day, mustZone(t, zone))
				var got []string
				for _, tick := range ticksOf(Entry{Cron: line, Zone: zone}, from, time.Date(from.Year(), from.Month(), from.Day(), 5, 0, 0, 0, from.Location())) {
					got = append(got, tick.Format("15:04-0700"))
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Error(diff)
				}
			})
		}
	}
}

func TestNext_AnyLine_MatchesOracle(t *testing.T) {
	zones := []string{
		"UTC", "America/New_York", "Europe/London", "Australia/Lord_Howe", "America/Santiago",
		"Africa/Cairo", "Pacific/Apia", "Asia/Kathmandu", "Africa/Casablanca", "Europe/Dublin",
	}
	rapid.Check(t, func(rt *rapid.T) {
		name := rapid.SampledFrom(zones).Draw(rt, "zone")
		zone := mustZone(t, name)
		line := fmt.Sprintf("%s %s %s %s %s",
			drawField(rt, "minute", 0, 59), drawField(rt, "hour", 0, 23),
			drawField(rt, "day", 1, 28), drawField(rt, "month", 1, 12),
			drawField(rt, "weekday", 0, 6))
		// Some day, or a change of the clocks, in 2010 to 2030.
		day := time.Date(2010, 1, rapid.IntRange(1, 7300).Draw(rt, "day"), 0, 0, 0, 0, zone)
		if _, change := day.ZoneBounds(); !change.IsZero() && rapid.Bool().Draw(rt, "change") {
			day = change
		}
		from := day.Add(-30 * time.Hour)
		to := day.Add(30 * time.Hour)
		want := newOracle(line).ticks(zone, from, to)
		got := ticksOf(Entry{Cron: line, Zone: name}, from, to)
		if diff := cmp.Diff(want, got, cmp.Comparer(time.Time.Equal)); diff != "" {
			rt.Fatalf("%s %q from %v (-want +got):\n%s", name, line, from, diff)
		}
	})
}

func drawField(rt *rapid.T, name string, low, high int) string {
	value := rapid.IntRange(low, high)
	switch rapid.IntRange(0, 4).Draw(rt, name+" kind") {
	case 0:
		from := value.Draw(rt, name)
		return fmt.Sprintf("%d-%d", from, rapid.IntRange(from, high).Draw(rt, name+" end"))
	case 1:
		return fmt.Sprintf("*/%d", rapid.IntRange(1, high-low).Draw(rt, name+" step"))
	case 2:
		return fmt.Sprintf("%d,%d", value.Draw(rt, name), value.Draw(rt, name+" second"))
	default:
		return "*"
	}
}

// On the last day of a leap year, ZoneBounds returns an end before the start if the zone's table has
// ended: in 1996 for some zones, in 2037 for others.
func TestNextAtTheEndOfALeapYear(t *testing.T) {
	for _, zone := range []string{"Europe/Berlin", "America/New_York", "Australia/Sydney", "UTC"} {
		for _, year := range []int{2028, 2040, 2096} {
			e := Entry{Cron: "30 23 31 12 *", Zone: zone}
			in, err := time.LoadLocation(zone)
			if err != nil {
				t.Fatal(err)
			}
			eve := e.Next(time.Date(year, 12, 1, 0, 0, 0, 0, in))
			if want := time.Date(year, 12, 31, 23, 30, 0, 0, in); !eve.Equal(want) {
				t.Errorf("%s: %v, want %v", zone, eve, want)
			}
			e.Cron = "0 0 1 * *"
			if next, want := e.Next(eve), time.Date(year+1, 1, 1, 0, 0, 0, 0, in); !next.Equal(want) {
				t.Errorf("%s: %v, want %v", zone, next, want)
			}
		}
	}
}

// TestSpellingsOfFields: names, 7 as Sunday and ranges that wrap around are as lists of numbers.
func TestSpellingsOfFields(t *testing.T) {
	for line, same := range map[string]string{
		"0 0 * * 7": "0 0 * * 0", "0 0 * * sun": "0 0 * * 0", "0 0 * * 5-7": "0 0 * * 0,5,6", "0 0 * * 7,3": "0 0 * * 0,3",
		"0 0 * * FRI-MON": "0 0 * * 0,1,5,6", "0 0 * * fri-MON/2": "0 0 * * 0,5", "0 0 ? * mon,WED": "0 0 * * 1,3",
		"0 22-2 * * *": "0 0,1,2,22,23 * * *", "0 22-2/2 * * *": "0 0,2,22 * * *", "0 22-3/4,5 * * *": "0 2,5,22 * * *",
		"50-10/10 * * * *": "0,10,50 * * * *", "0 0 1 nov-FEB *": "0 0 1 1,2,11,12 *", "0 0 28-2 * *": "0 0 1,2,28,29,30,31 * *",
		"5/20,7 * * * *": "5,7,25,45 * * * *", "0 0 13 * fri": "0 0 13 * 5", "0 0 1-7 * sun-sat": "0 0 1-7 * 0-6",
		"*/1 */1 */1 */1 */1": "* * * * *", "30 55-5/5 0 1 1 *": "30 0,5,55 0 1 1 *",
	} {
		got, err := newSchedule(Entry{Cron: line})
		want, err2 := newSchedule(Entry{Cron: same})
		if err != nil || err2 != nil || *got.fields != *want.fields {
			t.Errorf("%s is %+v, %v; %s is %+v, %v", line, got.fields, err, same, want.fields, err2)
		}
	}
}

func TestNext_Every_IsAnchored(t *testing.T) {
	for _, tc := range []struct{ cron, after, want string }{
		{"@every 90s", "2026-01-01T00:00:00Z", "2026-01-01T00:01:30Z"},
		{"@every 90s", "2026-01-01T00:01:29.9Z", "2026-01-01T00:01:30Z"},
		{"@every 1s", "2026-01-01T00:00:00.5Z", "2026-01-01T00:00:01Z"},
		{"@every  11h", "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"},
		{"@every 1h30m", "1969-12-31T23:00:00Z", "1970-01-01T00:00:00Z"},
		{"@every 1h30m", "1969-12-31T22:00:00Z", "1969-12-31T22:30:00Z"},
	} {
		after, _ := time.Parse(time.RFC3339Nano, tc.after)
		got := Entry{Cron: tc.cron}.Next(after).Format(time.RFC3339Nano)
		if got != tc.want {
			t.Errorf("%s after %s: got %s, want %s", tc.cron, tc.after, got, tc.want)
		}
	}
}

func TestNextFarAway(t *testing.T) {
	after := time.Date(2096, 3, 1, 0, 0, 0, 0, time.UTC)
	want := time.Date(2104, 2, 29, 12, 0, 0, 0, time.UTC)
	if got := (Entry{Cron: "0 12 29 2 *"}).Next(after); !got.Equal(want) {
		t.Errorf("got %v, want %v: 2100 is no leap year", got, want)
	}
	for line, want := range map[string]string{
		"@hourly": "2026-05-06 08:00", "@daily": "2026-05-07 00:00", "@weekly": "2026-05-10 00:00",
		"@monthly": "2026-06-01 00:00", "@yearly": "2027-01-01 00:00",
	} {
		got := Entry{Cron: line, Zone: "Asia/Tokyo"}.Next(time.Date(2026, 5, 6, 7, 8, 9, 0, mustZone(t, "Asia/Tokyo")))
		if got.Format("2006-01-02 15:04") != want {
			t.Errorf("%s: got %v, want %s in Tokyo", line, got, want)
		}
	}
}
