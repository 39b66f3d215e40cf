package main

import (
	"io"
	"testing"

	"github.com/headgate/headgate/internal/crawlsite"
)

// A crawl of fewer pages, held against what no load on the machine can spoil.
func TestCrawl(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	const pages = 5 // on each host
	report, err := crawl(t.Context(), pages*len(crawlsite.Hosts), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range report.Wrong() {
		t.Error(wrong)
	}
	for _, row := range report.Rows {
		if row.Pages != pages || row.Requests < pages {
			t.Errorf("%+v: want %d pages", row, pages)
		}
	}
}
