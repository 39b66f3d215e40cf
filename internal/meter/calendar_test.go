package meter

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func calendar(per time.Duration, zone string) *Limit {
	return &Limit{Kind: FixedWindow, N: 1, Per: per, Zone: zone}
}

var zones = []string{
	"America/New_York", "Europe/London", "Australia/Lord_Howe", "Asia/Kolkata", "America/Havana", "America/Santiago",
}

func TestEdges(t *testing.T) {
	for _, tt := range []struct {
		name, zone string
		per        time.Duration
		now        string
		want       []string
	}{
		{"day of 25 hours", "America/New_York", day, "2026-11-01T12:00:00-05:00", []string{
			"2026-11-01T00:00:00-04:00", "2026-11-02T00:00:00-05:00", "2026-11-03T00:00:00-05:00",
		}},
		{"day of 23 hours", "Europe/London", day, "2026-03-29T00:00:00Z", []string{
			"2026-03-29T00:00:00Z", "2026-03-30T00:00:00+01:00", "2026-03-31T00:00:00+01:00",
		}},
		{"skipped hour", "America/New_York", time.Hour, "2026-03-08T01:59:59-05:00", []string{
			"2026-03-08T01:00:00-05:00", "2026-03-08T03:00:00-04:00", "2026-03-08T04:00:00-04:00",
		}},
		{"repeated hour is one window", "America/New_York", time.Hour, "2026-11-01T01:30:00-05:00", []string{
			"2026-11-01T01:00:00-04:00", "2026-11-01T02:00:00-05:00", "2026-11-01T03:00:00-05:00",
		}},
		{"half an hour forward", "Australia/Lord_Howe", time.Hour, "2026-10-04T01:10:00+10:30", []string{
			"2026-10-04T01:00:00+10:30", "2026-10-04T02:30:00+11:00", "2026-10-04T03:00:00+11:00",
		}},
		{"half an hour back", "Australia/Lord_Howe", time.Hour, "2026-04-05T01:40:00+10:30", []string{
			"2026-04-05T01:00:00+11:00", "2026-04-05T02:00:00+10:30", "2026-04-05T03:00:00+10:30",
		}},
		{"hours at half past in UTC", "Asia/Kolkata", time.Hour, "2026-11-20T12:00:00Z", []string{
			"2026-11-20T17:00:00+05:30", "2026-11-20T18:00:00+05:30", "2026-11-20T19:00:00+05:30",
		}},
		{"no midnight on that day", "America/Santiago", day, "2026-09-05T12:00:00-04:00", []string{
			"2026-09-05T00:00:00-04:00", "2026-09-06T01:00:00-03:00", "2026-09-07T00:00:00-03:00",
		}},
		{"two midnights on that day", "America/Havana", day, "2026-11-01T00:30:00-05:00", []string{
			"2026-11-01T00:00:00-04:00", "2026-11-02T00:00:00-05:00",
		}},
		{"a minute of the day, then an hour of the day before", "America/St_Johns", day, "2008-11-01T23:30:00-03:30", []string{
			"2008-11-01T00:00:00-02:30", "2008-11-02T00:00:00-02:30", "2008-11-03T00:00:00-03:30",
		}},
		{"a date that never was", "Pacific/Apia", day, "2011-12-29T12:00:00-10:00", []string{
			"2011-12-29T00:00:00-10:00", "2011-12-31T00:00:00+14:00", "2012-01-01T00:00:00+14:00",
		}},
		{"weeks start on Monday", "Europe/London", week, "2026-03-29T23:59:59+01:00", []string{
			"2026-03-23T00:00:00Z", "2026-03-30T00:00:00+01:00", "2026-04-06T00:00:00+01:00",
		}},
		{"months in UTC", "", month, "2028-02-29T23:59:59Z", []string{
			"2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z", "2028-04-01T00:00:00Z",
		}},
		{"months elsewhere", "Asia/Kolkata", month, "2026-12-31T18:30:00Z", []string{
			"2027-01-01T00:00:00+05:30", "2027-02-01T00:00:00+05:30",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got, want []string
			for _, edge := range calendar(tt.per, tt.zone).edges(instant(t, tt.now), len(tt.want)) {
				got = append(got, time.UnixMicro(edge).UTC().String())
			}
			for _, text := range tt.want {
				want = append(want, time.UnixMicro(instant(t, text)).UTC().String())
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("edges (-want +got):\n%s", diff)
			}
		})
	}
}

// TestEdges_UTC: windows that need no calendar are those of the calendar of UTC.
func TestEdges_UTC(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		per := rapid.SampledFrom([]time.Duration{time.Hour, day, week}).Draw(t, "per")
		now := rapid.Int64Range(0, 4*epoch).Draw(t, "now")
		plain := calendar(per, "UTC")
		if plain.edges(now, 3) != nil {
			t.Fatal("a list of edges where plain arithmetic does")
		}
		edges := calendar(per, "Etc/UTC").edges(now, 3)
		for i, want := range edges {
			if got := plain.windowStart(now, int64(i)); got != want {
				t.Fatalf("window %d of %s around %d starts at %d, want %d", i, per, now, got, want)
			}
		}
	})
}

// TestEdges_WallClock: the edges do not depend on the time for which they are computed. Just before
// an edge the wall clock shows another hour, day, week or month than at the edge.
func TestEdges_WallClock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := calendar(rapid.SampledFrom([]time.Duration{time.Hour, day, week, month}).Draw(t, "per"), rapid.SampledFrom(zones).Draw(t, "zone"))
		zone, err := time.LoadLocation(l.Zone)
		if err != nil {
			t.Fatal(err)
		}
		now := epoch + rapid.Int64Range(0, us(25*365*day)).Draw(t, "now")
		edges := l.edges(now, 20)
		if edges[0] > now || edges[1] <= now || !slices.IsSorted(edges) {
			t.Fatalf("edges around %d: %v", now, edges)
		}
		for i, edge := range edges {
			if again := l.edges(edge, 2); again[0] != edge || i+1 < len(edges) && again[1] != edges[i+1] {
				t.Fatalf("edges from %d differ: %v", edge, again)
			}
			at, before := time.UnixMicro(edge).In(zone), time.UnixMicro(edge-1).In(zone)
			if !startOf(l.Per, before).Before(startOf(l.Per, at)) {
				t.Fatalf("an edge at %s, where no %s begins", at, l.Per)
			}
		}
	})
}

// TestFirstInstant compares with a search minute by minute, also in years after 2037, the last year
// with clock changes in the zone files.
func TestFirstInstant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		zone, err := time.LoadLocation(rapid.SampledFrom(zones).Draw(t, "zone"))
		if err != nil {
			t.Fatal(err)
		}
		wall := rapid.SampledFrom([]string{
			"2026-03-08T02:00:00Z", "2026-11-01T01:00:00Z", "2026-04-05T02:00:00Z", "2026-10-04T02:00:00Z",
			"2026-09-06T00:00:00Z", "2028-12-31T12:00:00Z", "2040-12-31T00:00:00Z", "2044-12-31T23:00:00Z", "2045-01-01T00:00:00Z",
		}).Draw(t, "wall")
		want := time.UnixMicro(instant(t, wall)).UTC()
		got := firstInstant(want, zone)
		at := want.Add(-20 * time.Hour).In(zone)
		for reading(at).Before(want) {
			at = at.Add(time.Minute)
		}
		if !got.Equal(at) {
			t.Fatalf("the clock reaches %s at %s, want %s", wall, got, at)
		}
	})
}

// reading is what the wall clock shows, as a time in UTC.
func reading(t time.Time) time.Time {
	_, offset := t.Zone()
	return t.Add(time.Duration(offset) * time.Second).UTC()
}

// TestWindowStart_Ahead: the start is exact within the calendar, and uses the mean length beyond
// it. The times may come in any order.
func TestWindowStart_Ahead(t *testing.T) {
	r := calendar(month, "Europe/London")
	january := instant(t, "2026-01-15T12:00:00Z")
	for _, tt := range []struct{ at, ahead, want int64 }{
		{january, 0, instant(t, "2026-01-01T00:00:00Z")},
		{january, 11, instant(t, "2026-12-01T00:00:00Z")},
		{january, calendarLength - 1, instant(t, "2029-12-01T00:00:00Z")},
		{january, calendarLength + 9, instant(t, "2029-12-01T00:00:00Z") + 10*us(month)},
		{instant(t, "2040-07-31T23:30:00Z"), 0, instant(t, "2040-08-01T00:00:00+01:00")},
		{instant(t, "2020-02-29T00:00:00Z"), 1, instant(t, "2020-03-01T00:00:00Z")},
	} {
		if got := r.windowStart(tt.at, tt.ahead); got != tt.want {
			t.Errorf("window %d after %s starts at %s, want %s", tt.ahead, time.UnixMicro(tt.at).UTC(),
				time.UnixMicro(got).UTC(), time.UnixMicro(tt.want).UTC())
		}
	}
}

func instant(t rapid.TB, text string) int64 {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at.UnixMicro()
}
