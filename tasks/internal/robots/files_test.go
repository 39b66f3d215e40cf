package robots

import (
	"strings"
	"testing"
	"time"
)

// Files as sites write them, small: which delay and which rules bind the crawler "headgate".
// RFC 9309 lets the rules of names merge that have only other lines, such as Crawl-delay, between
// them. A delay is for the names right above it alone.
func TestParse_RealFiles(t *testing.T) {
	for _, tc := range []struct {
		name, file string // lines are separated by |
		delay      time.Duration
		disallowed string // of /a /b /c, those that may not be fetched
	}{
		{"a delay before its rules", "User-agent: *|Crawl-delay: 10|Disallow: /a", 10, "/a"},
		{"a delay behind its rules", "User-agent: *|Disallow: /a|Crawl-delay: 10", 10, "/a"},
		{"a delay between rules", "User-agent: *|Disallow: /a|Crawl-delay: 10|Disallow: /b", 10, "/a /b"},
		{"the last of two", "User-agent: *|Crawl-delay: 5|Crawl-delay: 7", 7, ""},
		{"another name's, after all's", "User-agent: *|Crawl-delay: 10|User-agent: x|Crawl-delay: 2", 10, ""},
		{"another name's, before all's", "User-agent: x|Crawl-delay: 2|User-agent: *|Crawl-delay: 10", 10, ""},
		{"another name's, after one's own", "User-agent: headgate|Crawl-delay: 1|User-agent: slurp|Crawl-delay: 3600", 1, ""},
		{"another name's, before one's own", "User-agent: slurp|Crawl-delay: 3600|User-agent: headgate|Crawl-delay: 1", 1, ""},
		{"only another name's", "User-agent: slurp|Crawl-delay: 3600", 0, ""},
		{"another name's, with all's rules", "User-agent: *|Disallow: /a|User-agent: x|Crawl-delay: 9", 0, "/a"},
		{"all's without a delay, then another's", "User-agent: *|User-agent: x|Crawl-delay: 9", 9, ""},
		{"names in a row", "User-agent: x|User-agent: headgate|User-agent: y|Crawl-delay: 4|Disallow: /b", 4, "/b"},
		{"rules merge over a delay", "User-agent: *|Crawl-delay: 10|User-agent: x|Crawl-delay: 2|Disallow: /a", 10, "/a"},
		{"rules merge over a sitemap", "User-agent: *|Sitemap: https://h.example/s.xml|User-agent: x|Disallow: /a", 0, "/a"},
		{"a delay over a sitemap", "User-agent: *|Sitemap: https://h.example/s.xml|Crawl-delay: 3", 3, ""},
		{"a delay with an unknown line between", "User-agent: *|Request-rate: 1/5|Crawl-delay: 3", 3, ""},
		{"one's own group hides all's delay", "User-agent: *|Crawl-delay: 10|Disallow: /a|User-agent: headgate|Disallow: /b", 0, "/b"},
		{"one's own delay, all's rules do not count", "User-agent: *|Disallow: /|User-agent: headgate|Crawl-delay: 2", 2, ""},
		{"two groups of one's own", "User-agent: headgate|Crawl-delay: 2|Disallow: /a|User-agent: headgate|Disallow: /b", 2, "/a /b"},
		{"two groups for all", "User-agent: *|Disallow: /a|User-agent: *|Crawl-delay: 6", 6, "/a"},
		{"three names, three delays", "User-agent: a|Crawl-delay: 1|User-agent: *|Crawl-delay: 2|User-agent: b|Crawl-delay: 3", 2, ""},
		{"a delay before any name", "Crawl-delay: 5|User-agent: *|Disallow: /a", 0, "/a"},
		{"a delay behind another's rules", "User-agent: *|Disallow: /a|User-agent: x|Disallow: /b|Crawl-delay: 5", 0, "/a"},
		{"a bad delay keeps the one before", "User-agent: *|Crawl-delay: 5|Crawl-delay: soon", 5, ""},
		{"a bad delay ends its names", "User-agent: *|Crawl-delay: soon|User-agent: x|Crawl-delay: 5", 0, ""},
		{"small letters", "user-agent: HEADGATE|crawl-delay: 5|disallow: /c", 5, "/c"},
		{"allow within disallow", "User-agent: *|Disallow: /|Allow: /a$|Crawl-delay: 1", 1, "/b /c"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := Parse([]byte(strings.ReplaceAll(tc.file, "|", "\n")), "headgate")
			var disallowed []string
			for _, path := range []string{"/a", "/b", "/c"} {
				if !f.Allowed(path) {
					disallowed = append(disallowed, path)
				}
			}
			if got := strings.Join(disallowed, " "); got != tc.disallowed || f.CrawlDelay != tc.delay*time.Second {
				t.Errorf("%s\ndelay %s, disallowed %q; want %ds and %q", tc.file, f.CrawlDelay, got, tc.delay, tc.disallowed)
			}
		})
	}
}
