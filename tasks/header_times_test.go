package tasks

import (
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

var (
	timesTable = regexp.MustCompile(`(?m)^<!-- times in answers: each came on (.+), by its own Date -->\n\|.*\n\|.*\n((?:\|.*\n)+)`)
	timesRow   = regexp.MustCompile("(?m)^\\| (`.+`) \\| ([0-9, ]+) \\| (.+) \\|$")
)

// The table of docs/limits.md holds: each row's header, with each of its statuses, says that
// wait. The table has all forms of dates.
func TestTimesInAnswers(t *testing.T) {
	page, err := os.ReadFile("../docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	table := timesTable.FindSubmatch(page)
	if table == nil {
		t.Fatal("docs/limits.md has no table of times in answers")
	}
	date, rows := string(table[1]), timesRow.FindAllStringSubmatch(string(table[2]), -1)
	if lines := strings.Count(string(table[2]), "\n"); len(rows) != lines || lines < 40 {
		t.Errorf("%d of %d rows can be read", len(rows), lines)
	}
	// Another clock than the server's, so that what counts from Date shows.
	now := time.Date(2026, time.March, 1, 15, 4, 5, int(250*time.Millisecond), time.UTC)
	shown := map[string]bool{}
	for _, row := range rows {
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
			if until := ReadUpstream(code, h, now).Until; !until.IsZero() {
				got = until.Sub(now).String()
			}
			if got != row[3] {
				t.Errorf("%s with %s: the code reads %s, the table says %s", row[1], status, got, row[3])
			}
		}
	}
	for _, form := range dateForms {
		if !shown[form] {
			t.Errorf("the table shows no date as %q", form)
		}
	}
}

// Without a Date, and with one that cannot be read, a point in time counts by this process's clock.
func TestTimesWithoutADate(t *testing.T) {
	now := time.Date(2026, time.March, 1, 12, 0, 0, int(250*time.Millisecond), time.UTC)
	for _, value := range []string{"Sun, 01 Mar 2026 12:00:07 GMT", "2026-03-01T12:00:07Z", "1772366407"} {
		for _, date := range []string{"", "today"} {
			h := http.Header{"Retry-After": {value}, "Date": {date}}
			if got := ReadUpstream(429, h, now).Until.Sub(now); got != 7*time.Second {
				t.Errorf("Retry-After %q, Date %q: %s, want 7s", value, date, got)
			}
		}
	}
}
