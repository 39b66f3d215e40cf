package tasks

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testutil/fuzzseed"
	"github.com/headgate/headgate/internal/testutil/proctest"
)

// header returns the header of an answer, from lines "Name: value".
func header(lines ...string) http.Header {
	h := http.Header{}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		h.Add(name, value)
	}
	return h
}

var (
	timesTable = regexp.MustCompile(`(?m)^<!-- times in answers: each came on (.+), by its own Date -->\n\|.*\n\|.*\n((?:\|.*\n)+)`)
	timesRow   = regexp.MustCompile("(?m)^\\| (`.+`) \\| ([0-9, ]+) \\| (.+) \\|$")
)

// TestTimesInAnswers reads the header of each row of docs/limits.md and of the longer table in
// testdata, and compares the wait for each of its statuses with the row. The tables have all forms of
// dates.
func TestTimesInAnswers(t *testing.T) {
	shown := map[string]bool{}
	for path, least := range map[string]int{"../docs/limits.md": 15, "testdata/header_times.md": 50} {
		table := timesTable.FindStringSubmatch(proctest.ReadFile(t, path))
		if table == nil {
			t.Fatalf("%s has no table of times in answers", path)
		}
		rows := timesRow.FindAllStringSubmatch(table[2], -1)
		if lines := strings.Count(table[2], "\n"); len(rows) != lines || lines < least {
			t.Errorf("%s: %d of %d rows can be read, want %d or more", path, len(rows), lines, least)
		}
		for _, row := range rows {
			checkTimesRow(t, table[1], row, shown)
		}
	}
	for _, form := range dateForms {
		if !shown[form] {
			t.Errorf("no table shows a date as %q", form)
		}
	}
}

func checkTimesRow(t *testing.T, date string, row []string, shown map[string]bool) {
	t.Helper()
	// Another clock than the server's, so that what counts from Date shows.
	now := time.Date(2026, time.March, 1, 15, 4, 5, int(250*time.Millisecond), time.UTC)
	h := header(strings.Split(strings.Trim(row[1], "`"), "` `")...)
	for _, form := range dateForms {
		if _, err := time.Parse(form, h.Get("Retry-After")); err == nil {
			shown[form] = true
		}
	}
	h.Set("Date", date)
	for status := range strings.SplitSeq(row[2], ", ") {
		code, err := strconv.Atoi(status)
		if err != nil {
			t.Fatal(err)
		}
		got := "–"
		if until, _ := ReadUpstream(code, h, now); !until.IsZero() {
			got = until.Sub(now).String()
		}
		if got != row[3] {
			t.Errorf("%s with %s: the code reads %s, the table says %s", row[1], status, got, row[3])
		}
	}
}

// Without a Date, and with one that cannot be read, a point in time counts by this process's clock.
func TestTimesWithoutADate(t *testing.T) {
	now := time.Date(2026, time.March, 1, 12, 0, 0, int(250*time.Millisecond), time.UTC)
	for _, value := range []string{"Sun, 01 Mar 2026 12:00:07 GMT", "2026-03-01T12:00:07Z", "1772366407"} {
		for _, date := range []string{"", "today"} {
			h := http.Header{"Retry-After": {value}, "Date": {date}}
			if until, wait := ReadUpstream(429, h, now); wait != 7*time.Second || until != now.Add(wait) {
				t.Errorf("Retry-After %q, Date %q: %s, want 7s", value, date, wait)
			}
		}
	}
}

// Whatever a server writes is read without a panic, and never as a time that is past or more than a
// year away.
func FuzzReadUpstream(target *testing.F) {
	f := fuzzseed.More(target)
	f.Add(`"burst";r=0;t=30`, "100;w=60", "1772366400", "6m0s")
	f.Add("limit=100, remaining=0, reset=5", `"a";q=1`, "1e300", "-1")
	now := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	f.Add("limit=100, remaining=0, reset=5", "100;w=10", "1772366400.5, 12.5", "Sun, 01 Mar 2026 12:00:07 +0000, 2026-03-01 12:00:07")
	f.Fuzz(func(t *testing.T, limits, policy, reset, after string) {
		h := http.Header{"Ratelimit": {limits}, "Ratelimit-Policy": {policy}, "X-Ratelimit-Reset": {reset}, "Retry-After": {after}}
		until, _ := ReadUpstream(429, h, now)
		if !until.IsZero() && (!until.After(now) || until.After(now.Add(longestWait))) {
			t.Errorf("until %s, want between %s and a year later", until, now)
		}
	})
}
