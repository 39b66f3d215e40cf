package tasks

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// TestCrawlJob_Index checks that the lines of several workers do not mix, and that a line which a full
// disk has cut spoils no other.
func TestCrawlJob_Index(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "it"), 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "it", indexName)
	if err := os.WriteFile(file, []byte("cut"), 0o644); err != nil {
		t.Fatal(err)
	}
	add := func(url, hash string) {
		j := &crawlJob{CrawlHandler: &CrawlHandler{SaveDir: dir}, page: CrawlFetch{URL: url}, file: hash}
		if j.result.Type = "text/html"; hash != "" {
			j.result.Saved = "it/" + hash
		}
		if err := j.index(); err != nil {
			t.Error(err)
		}
	}
	add("http://a.test/not-saved", "")
	add("http://a.test/first", "f00")
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 50 {
				add(fmt.Sprintf("http://a.test/%d/%d?&", i, n), strings.Repeat("ab", 32))
			}
		})
	}
	all.Wait()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	if len(lines) != 2+400+1 || lines[0] != "cut" || lines[402] != "" {
		t.Fatalf("%d lines: %q …", len(lines), lines[:3])
	}
	if !strings.HasPrefix(lines[1], `{"url":"http://a.test/first","file":"f00","type":"text/html","at":"2`) {
		t.Errorf("the first line is %s", lines[1])
	}
	urls := map[string]bool{}
	for _, line := range lines[2:402] {
		url, _, _ := strings.Cut(strings.TrimPrefix(line, `{"url":"`), `","file":"`+strings.Repeat("ab", 32)+`","type":"text/html","at":"`)
		urls[url] = true
	}
	if len(urls) != 400 || slices.ContainsFunc(lines[1:402], func(line string) bool { return !strings.HasSuffix(line, `Z"}`) }) {
		t.Errorf("%d URLs, want 400", len(urls))
	}
}
