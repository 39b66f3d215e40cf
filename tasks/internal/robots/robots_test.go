package robots

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testutil/fuzzseed"
)

// The cases of RFC 9309 §2 and §5, and what files in the wild hold.
func TestAllowed(t *testing.T) {
	const (
		simple = "User-Agent: *\nDisallow: *.gif$\nDisallow: /example/\nAllow: /publications/\n\n" +
			"User-Agent: foobot\nDisallow:/\nAllow:/example/page.html\nAllow:/example/allowed.gif\n\n" +
			"User-Agent: barbot\nUser-Agent: bazbot\nDisallow: /example/page.html\n\n" +
			"User-Agent: quxbot\n"
		longest = "User-Agent: foobot\nAllow: /example/page/\nDisallow: /example/page/disallowed.gif\n"
		named   = "User-agent: foo\nDisallow: /foo\nUser-agent: *\nDisallow: /all\nUser-agent: FOO/2.0 (x)\nDisallow: /more\n"
	)
	disallow := func(path string) string { return "User-agent: *\nDisallow: " + path + "\n" }
	tests := []struct {
		name, file, agent, url string
		want                   bool
	}{
		{"5.1: every other crawler", simple, "other", "/example/x", false},
		{"5.1: end of the path", simple, "other", "/a.gif", false},
		{"5.1: not the end of the path", simple, "other", "/a.gif?b", true},
		{"5.1: foobot", simple, "foobot", "/publications/", false},
		{"5.1: foobot's page", simple, "foobot", "/example/page.html", true},
		{"5.1: the first of two crawlers", simple, "barbot", "/example/page.html", false},
		{"5.1: nothing of the group for all", simple, "bazbot", "/example/x", true},
		{"5.1: a group without rules", simple, "quxbot", "/example/page.html", true},
		{"5.2: longest match", longest, "foobot", "https://h.example/example/page/disallowed.gif", false},

		{"groups of a crawler are one", named, "foo", "/more", false},
		{"named, so not all", named, "foo", "/all", true},
		{"a whole User-Agent", named, "foo/1.2 (+https://foo.example)", "/foo", false},
		{"a longer token is another", named, "foobot", "/foo", true},
		{"a shorter token is another", named, "fo", "/foo", true},
		{"no group at all", "User-agent: foo\nDisallow: /\n", "bar", "/", true},
		{"rules before any crawler", "Disallow: /\nUser-agent: foo\nDisallow: /foo", "foo", "/x", true},

		{"allow wins a tie", "User-agent: *\nDisallow: /page\nAllow: /page\n", "a", "/page", true},
		{"a star makes longer", "User-agent: *\nAllow: /page\nDisallow: /*.html\n", "a", "/page.html", false},
		{"an empty rule", disallow(""), "a", "/", true},
		{"paths have case", disallow("/A"), "a", "/a", true},
		{"a prefix", disallow("/fish"), "a", "/fish.html?x=1", false},
		{"no prefix", disallow("/fish/"), "a", "/fish", true},
		{"the host alone", disallow("/"), "a", "https://h.example", false},
		{"a query behind the host", disallow("/?x"), "a", "https://h.example?x=1", false},
		{"fragments do not count", disallow("/a$"), "a", "https://h.example/a#b", false},
		{"robots.txt itself", disallow("/"), "a", "https://h.example/robots.txt", true},

		{"$ ends", disallow("/*.php$"), "a", "/x.php", false},
		{"$ ends, and there is more", disallow("/*.php$"), "a", "/x.php5", true},
		{"$ within stands for itself", disallow("/a$b"), "a", "/a$bc", false},
		{"$ encoded stands for itself", disallow("/a%24"), "a", "/a$b", false},
		{"only $", disallow("$"), "a", "/", true},
		{"* in the middle", disallow("/a*c"), "a", "/abbbcd", false},
		{"* in the middle, no match", disallow("/a*c"), "a", "/ab", true},
		{"many stars", disallow("/**a***b*$"), "a", "/xaxbx", false},
		{"* at the end", disallow("/fish*"), "a", "/fish", false},
		{"* encoded stands for itself", disallow("/a%2Ab"), "a", "/a*b", false},
		{"* encoded is no wildcard", disallow("/a%2Ab"), "a", "/axb", true},

		{"RFC table: reserved in a query", disallow("/foo/bar?baz=https%3A%2F%2Ffoo.bar"), "a", "/foo/bar?baz=https://foo.bar", false},
		{"RFC table: Japanese", disallow("/foo/bar/ツ"), "a", "/foo/bar/%E3%83%84", false},
		{"RFC table: Japanese, encoded", disallow("/foo/bar/%E3%83%84"), "a", "/foo/bar/ツ", false},
		{"small digits", disallow("/%e3%83%84"), "a", "/ツ", false},
		{"a slash encoded is no slash", disallow("/a/b"), "a", "/a%2Fb", true},
		{"half an encoding", disallow("/a%2"), "a", "/a%2", false},

		{"byte order mark", "\ufeffUser-agent: *\nDisallow: /x", "a", "/x", false},
		{"CRLF", "User-agent: *\r\nDisallow: /x\r\n", "a", "/x", false},
		{"spaces and comments", "  user-AGENT :  * # all\n\t DISALLOW :\t/x # not this\n", "a", "/x", false},
		{"other lines do not end a group", "User-agent: a\nSitemap: /s\nCrawl-delay: 1\nUser-agent: b\nDisallow: /x", "a", "/x", false},
		{"garbage", "\x00\xff::\nUser-agent\n<html>\nUser-agent: *\nDisallow: /x\n\xfe", "a", "/x", false},
		{"a page instead of a file", "<!DOCTYPE html><html><body>Not: found</body></html>", "a", "/x", true},
		{"empty", "", "a", "/x", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := Parse([]byte(tt.file), tt.agent).Allowed(tt.url); got != tt.want {
				t.Errorf("%q\nAllowed(%q, %q) = %t, want %t", tt.file, tt.agent, tt.url, got, tt.want)
			}
		})
	}
}

// Rules within 500 KiB count; a line that is cut there does not.
func TestParse_LongFile_IsCut(t *testing.T) {
	const head, rule = "User-agent: *\n", "Disallow: /last\n"
	fill := func(n int) string { return strings.Repeat("#", n-1) + "\n" }
	room := MaxSize - len(head) - len(rule)
	within := head + fill(room) + rule + "Disallow: /behind\n"
	if Parse([]byte(within), "a").Allowed("/last") {
		t.Error("the last rule within the bound does not count")
	}
	cut := head + fill(room+1) + rule + "Disallow: /behind\n" // after /last
	f := Parse([]byte(cut), "a")
	if !f.Allowed("/last") || !f.Allowed("/behind") {
		t.Error("a rule that is cut, or behind the bound, counts")
	}
}

func TestCrawlDelay(t *testing.T) {
	tests := map[string]time.Duration{
		"10": 10 * time.Second, "0.5": 500 * time.Millisecond, "0": 0, "-1": 0, "soon": 0, "NaN": 0, "Inf": maxDelay, "1e9": maxDelay,
	}
	for text, want := range tests {
		file := fmt.Appendf(nil, "User-agent: a\nCrawl-delay: %s\nDisallow: /x\nUser-agent: *\nCrawl-delay: 3\n", text)
		if got := Parse(file, "a").CrawlDelay; got != want {
			t.Errorf("Crawl-delay: %s: got %s, want %s", text, got, want)
		}
		if got := Parse(file, "b").CrawlDelay; got != 3*time.Second {
			t.Errorf("another crawler: got %s, want 3s", got)
		}
	}
	if got := new(File).CrawlDelay; got != 0 {
		t.Errorf("an empty file: %s", got)
	}
}

// A file that names many crawlers before many rules takes its size, and not the product
// of the two, which for a file of 500 kB is gigabytes.
func TestParse_ManyNames_TakesLinearMemory(t *testing.T) {
	const many = 2000
	var text strings.Builder
	for i := range many {
		name := strings.Map(func(r rune) rune { return r - '0' + 'a' }, fmt.Sprint(i))
		fmt.Fprintf(&text, "User-agent: x%s\nUser-agent: *\n", name)
	}
	for i := range many {
		fmt.Fprintf(&text, "Disallow: /%d\n", i)
	}
	if n := testing.AllocsPerRun(1, func() { Parse([]byte(text.String()), "xb") }); n > 10*3*many {
		t.Errorf("%.0f allocations for %d lines", n, 3*many)
	}
	for _, agent := range []string{"xb", "another"} {
		if Parse([]byte(text.String()), agent).Allowed("/0") {
			t.Errorf("%s may fetch what is disallowed", agent)
		}
	}
}

// A page can have 10,000 links. So a call must not look at each of 20,000 rules, and a long URL must
// not cost more than its length.
func TestAllowed_ManyRules_FewSteps(t *testing.T) {
	const perRule = stepsPerPart
	for _, tt := range []struct {
		rule string // for fmt, with the number of the rule
		many int
		url  string
		want int // the maximum of Steps
	}{
		{"/p%d/abcdef", 20_000, "/p777/abc", 9 * perRule},
		{"/p%d/abcdef", 20_000, "/q/b/c?d=1", 9 * perRule},
		{"/p%d/*/x*y*z$", 20_000, "/p19999/b/xyza", 9 * perRule},
		{"/" + strings.Repeat("*a", 900) + "z%d", 200, "/" + strings.Repeat("a", 1000), 200 * (902*perRule + 1000)},
		{"/" + strings.Repeat("*a", 900) + "z%d", 200, "/" + strings.Repeat("a", 2000), 200 * (902*perRule + 2000)},
	} {
		text := []byte("User-agent: *\nAllow: /\n")
		for i := range tt.many {
			text = fmt.Appendf(text, "Disallow: "+tt.rule+"\n", i)
		}
		f := Parse(text, "a")
		if !f.Allowed(tt.url) || f.Steps > tt.want {
			t.Errorf("%.20q: %d steps for %.20q, want at most %d", tt.rule, f.Steps, tt.url, tt.want)
		}
	}
}

// Each page of an origin leads to the sitemaps of its robots.txt.
func TestParse_ManySitemaps_AreBounded(t *testing.T) {
	var text strings.Builder
	text.WriteString("Sitemap: /0\nUser-agent: b\nsitemap:/0 # two\nSitemap:\n")
	for i := range 2 * MaxSitemaps {
		fmt.Fprintf(&text, "Sitemap: /%d\n", i)
	}
	got := Parse([]byte(text.String()), "a").Sitemaps
	if n := len(got); n != MaxSitemaps || got[0] != "/0" || got[1] != "/1" {
		t.Errorf("%d sitemaps, want %d, each once: %q", n, MaxSitemaps, got[:2])
	}
}

// The two ways to write a URL have one answer, and no file makes Parse fail.
func FuzzAllowed(target *testing.F) {
	f := fuzzseed.More(target)
	f.Add("User-agent: *\nDisallow: /a*b$\n", "/axb")
	f.Add("User-agent: *\nAllow: /%zz\nDisallow: *?\n", "/%zz?%2F")
	f.Fuzz(func(t *testing.T, text, path string) {
		file := Parse([]byte(text), "a")
		target := normalize(pathOf(path), false)
		if again := normalize(target, false); again != target {
			t.Errorf("%q is %q, and that is %q", path, target, again)
		}
		if file.Allowed(path) != file.Allowed(target) {
			t.Errorf("%q and %q are not the same to %q", path, target, text)
		}
	})
}
