package links

import (
	"bytes"
	"slices"
	"testing"

	"github.com/headgate/headgate/internal/testutil/fuzzseed"
)

const fuzzedAt = "https://h.example/dir/"

// wantCanonical fails unless each URL is its own canonical form, and no two are the same.
func wantCanonical(t *testing.T, urls []string, once bool) {
	t.Helper()
	seen := map[string]bool{}
	for _, url := range urls {
		if again, err := Canonical("", url); again != url || once && seen[url] {
			t.Errorf("%q is there, twice: %t; its canonical form is %q, %v", url, seen[url], again, err)
		}
		seen[url] = true
	}
}

// No sitemap makes the reader panic, and what it lists can be crawled.
func FuzzReadSitemap(target *testing.F) {
	f := fuzzseed.More(target)
	for _, seed := range []string{
		"<urlset><url><loc>/a</loc><lastmod>2026-03-01</lastmod></url></urlset>",
		"<sitemapindex><sitemap><loc>https://h.example/b.xml.gz</loc></sitemap></sitemapindex>",
		"https://h.example/a\r\n\nhttps://h.example/b", "\ufeff\n<urlset><url><loc>&amp;</loc></url>", "\x1f\x8b", zip("<urlset/>"),
		"<?xml version='1.0' encoding='iso-8859-1'?><urlset><url><loc>/\xe9</loc></url></urlset>", "<a><b></a>",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, _ := ReadSitemap(fuzzedAt, bytes.NewReader(text))
		wantCanonical(t, slices.Concat(s.Pages, s.Sitemaps), false)
	})
}

// No page makes the reader panic, and its links can be crawled.
func FuzzFromPage(target *testing.F) {
	f := fuzzseed.More(target)
	for _, seed := range []string{
		`<base href="/new/"><a href=a><a href="a#b"><link rel=next href=c>`, `<meta name=robots content="noindex, nofollow">`,
		"<a href=' \x00//o.example\\a'><iframe src=javascript:x>", "\xff<<a/href='b'>\x80</",
	} {
		f.Add([]byte(seed), "text/html; charset=utf-8")
	}
	f.Add([]byte("<a href=caf\xe9>"), "text/html; charset=iso-8859-1")
	f.Fuzz(func(t *testing.T, page []byte, contentType string) {
		wantCanonical(t, FromPage(fuzzedAt, contentType, []string{contentType}, "headgate", page).Links, true)
	})
}
