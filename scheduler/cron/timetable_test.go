package cron

import (
	"fmt"
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
	rule, err := newTimetable(e)
	if err != nil {
		panic(err)
	}
	var ticks []time.Time
	for at := rule.next(from); !at.IsZero() && !at.After(to); at = rule.next(at) {
		ticks = append(ticks, at)
	}
	return ticks
}

// clockChanges are the hours around the changes of the clocks in 2026.
var clockChanges = []struct {
	name, zone, from, to string
}{
	{"new york spring", "America/New_York", "2026-03-08T00:00", "2026-03-08T05:00"},
	{"new york autumn", "America/New_York", "2026-11-01T00:00", "2026-11-01T05:00"},
	{"london spring", "Europe/London", "2026-03-29T00:00", "2026-03-29T05:00"},
	{"london autumn", "Europe/London", "2026-10-25T00:00", "2026-10-25T05:00"},
	{"lord howe spring", "Australia/Lord_Howe", "2026-10-04T00:00", "2026-10-04T05:00"},
	{"lord howe autumn", "Australia/Lord_Howe", "2026-04-05T00:00", "2026-04-05T05:00"},
}

func TestNextOnClockChanges(t *testing.T) {
	// The ticks after midnight, as the wall clock and its offset show them.
	want := map[string]map[string][]string{
		"new york spring": {
			"0 * * * *":    {"01:00-05", "03:00-04", "04:00-04", "05:00-04"},
			"30 2 * * *":   {"03:00-04"},
			"*/20 2 * * *": {"03:00-04"},
			"0 2,3 * * *":  {"03:00-04"},
			"15 3 * * *":   {"03:15-04"},
		},
		"new york autumn": {
			"0 * * * *":    {"01:00-04", "01:00-05", "02:00-05", "03:00-05", "04:00-05", "05:00-05"},
			"30 1 * * *":   {"01:30-04"},
			"*/30 1 * * *": {"01:00-04", "01:30-04"},
			"0 2 * * *":    {"02:00-05"},
		},
		"london spring": {
			"30 * * * *": {"00:30+00", "02:30+01", "03:30+01", "04:30+01"},
			"30 1 * * *": {"02:00+01"},
			"0 1 * * *":  {"02:00+01"},
		},
		"london autumn": {
			"30 * * * *": {"00:30+01", "01:30+01", "01:30+00", "02:30+00", "03:30+00", "04:30+00"},
			"30 1 * * *": {"01:30+01"},
			"0 1-2 * * *": {
				"01:00+01", "02:00+00",
			},
		},
		"lord howe spring": { // 02:00 becomes 02:30
			"*/30 * * * *": {
				"00:30+1030", "01:00+1030", "01:30+1030", "02:30+11", "03:00+11",
				"03:30+11", "04:00+11", "04:30+11", "05:00+11",
			},
			"0 * * * *":  {"01:00+1030", "03:00+11", "04:00+11", "05:00+11"},
			"15 2 * * *": {"02:30+11"},
			"45 2 * * *": {"02:45+11"},
		},
		"lord howe autumn": { // 02:00 becomes 01:30
			"*/30 * * * *": {
				"00:30+11", "01:00+11", "01:30+11", "01:30+1030", "02:00+1030",
				"02:30+1030", "03:00+1030", "03:30+1030", "04:00+1030", "04:30+1030", "05:00+1030",
			},
			"45 1 * * *": {"01:45+11"},
			"15 1 * * *": {"01:15+11"},
			"0 2 * * *":  {"02:00+1030"},
		},
	}
	for _, change := range clockChanges {
		for line, want := range want[change.name] {
			t.Run(change.name+"/"+line, func(t *testing.T) {
				zone := mustZone(t, change.zone)
				from, _ := time.ParseInLocation("2006-01-02T15:04", change.from, zone)
				to, _ := time.ParseInLocation("2006-01-02T15:04", change.to, zone)
				var got []string
				for _, tick := range ticksOf(Entry{Cron: line, Zone: change.zone}, from, to) {
					got = append(got, tick.Format("15:04Z07:00"))
				}
				for i := range got { // +00:00 as +00, +10:30 as +1030
					got[i] = shortOffset(got[i])
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Error(diff)
				}
			})
		}
	}
}

func shortOffset(s string) string {
	var hour, minute int
	var sign rune
	if _, err := fmt.Sscanf(s[5:], "%c%d:%d", &sign, &hour, &minute); err != nil {
		return s[:5] + "+00"
	}
	if minute == 0 {
		return fmt.Sprintf("%s%c%02d", s[:5], sign, hour)
	}
	return fmt.Sprintf("%s%c%02d%02d", s[:5], sign, hour, minute)
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
	if name == "weekday" {
		value = rapid.IntRange(0, 7)
	}
	switch rapid.IntRange(0, 4).Draw(rt, name+" kind") {
	case 0:
		return fmt.Sprintf("%d-%d", value.Draw(rt, name), value.Draw(rt, name+" end"))
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

// Names, 7 as Sunday and ranges that wrap around are equivalent to lists of numbers.
func TestSpellingsOfFields(t *testing.T) {
	for line, same := range map[string]string{
		"0 0 * * 7":           "0 0 * * 0",
		"0 0 * * sun":         "0 0 * * 0",
		"0 0 * * 5-7":         "0 0 * * 0,5,6",
		"0 0 * * FRI-MON":     "0 0 * * 0,1,5,6",
		"0 0 * * fri-MON/2":   "0 0 * * 0,5",
		"0 22-2 * * *":        "0 0,1,2,22,23 * * *",
		"0 22-2/2 * * *":      "0 0,2,22 * * *",
		"50-10/10 * * * *":    "0,10,50 * * * *",
		"0 0 1 nov-FEB *":     "0 0 1 1,2,11,12 *",
		"0 0 28-2 * *":        "0 0 1,2,28,29,30,31 * *",
		"5/20,7 * * * *":      "5,7,25,45 * * * *",
		"0 0 ? * mon,WED":     "0 0 * * 1,3",
		"0 0 13 * fri":        "0 0 13 * 5",
		"0 0 1-7 * sun-sat":   "0 0 1-7 * 0-6",
		"*/1 */1 */1 */1 */1": "* * * * *",
	} {
		from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		for at, want := from, from; at.Before(from.AddDate(1, 0, 0)); {
			at, want = (Entry{Cron: line}).Next(at), (Entry{Cron: same}).Next(want)
			if !at.Equal(want) || at.IsZero() {
				t.Errorf("%s ticks at %v, %s at %v", line, at, same, want)
				break
			}
			at = at.Add(5 * time.Hour).Truncate(time.Minute)
			want = at
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
