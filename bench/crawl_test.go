package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Each crawler fetches all pages, headgate nothing that it should not. What two
// crawlers do after a kill depends on its moment.
func TestCrawl(t *testing.T) {
	rows := rowsOf(t, "crawl", "--pages=15", "--no-kill")
	want := sortedWords("case system took_s pages_per_s least_interval_ms short_intervals machine_late_ms answers_429 disallowed pages_lost fetched_again")
	if diff := cmp.Diff(want, keysOf(rows[0])); diff != "" {
		t.Error(diff)
	}
	for _, row := range rows {
		if row["pages_lost"] != 0.0 || row["disallowed"] != 0.0 {
			t.Errorf("%v: want all pages, and nothing disallowed", row)
		}
	}
	if n := rows[0]["fetched_again"]; n != 0.0 {
		t.Errorf("headgate fetched %v pages again", n)
	}
}
