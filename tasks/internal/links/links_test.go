package links

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/internal/canonical"
	"github.com/headgate/headgate/internal/testutil/fuzzseed"
)

func TestCanonical(t *testing.T) {
	const base = "https://h.example/a/b?q"
	tests := []struct{ base, reference, want string }{
		{"", "HTTP://H.Example:80", "http://h.example/"},
		{"", "https://h.example:443/a/../b/./c#part", "https://h.example/b/c"},
		{"", "https://h.example:8443/", "https://h.example:8443/"},
		{"", "https://bücher.example/straße?ü", "https://xn--bcher-kva.example/stra%C3%9Fe?%C3%BC"},
		{"", "http://0x7f.1/", "http://127.0.0.1/"},
		{"", "http://[::0001]/", "http://[::1]/"},
		{"", " http://h.example/a b\n", "http://h.example/a%20b"},
		{"", `http:\\h.example\a`, "http://h.example/a"},
		{"", "http://h.example/%7euser/%e3%2f%41", "http://h.example/~user/%E3%2FA"},
		{"", "http://h.example/%2e%2e/x", "http://h.example/x"},
		{"", "http://h.example/%zz%", "http://h.example/%25zz%25"},
		{"", "http://h.example/?b=2&a=1", "http://h.example/?b=2&a=1"},
		{base, "c", "https://h.example/a/c"},
		{base, "?r", "https://h.example/a/b?r"},
		{base, "#part", base},
		{base, "//other.example", "https://other.example/"},
		{base, "", base},
	}
	for _, tt := range tests {
		got, err := Canonical(tt.base, tt.reference)
		if err != nil || got != tt.want {
			t.Errorf("Canonical(%q, %q) = %q, %v; want %q", tt.base, tt.reference, got, err, tt.want)
			continue
		}
		if again, err := Canonical("", got); again != got {
			t.Errorf("%q again is %q, %v", got, again, err)
		}
	}
}

func TestCanonical_Errors(t *testing.T) {
	const base = "https://h.example/"
	for reference, want := range map[string]string{
		"file:///etc/passwd":           "want http or https",
		"javascript:alert(1)":          "want http or https",
		"mailto:a@h.example":           "want http or https",
		"data:text/html,x":             "want http or https",
		"ftp://h.example/":             "want http or https",
		"https://u:p@h.example/":       "want it without",
		"https://u@h.example/":         "want it without",
		"https://h.example:99999/":     "is not a URL",
		"https://h.example:0/":         "want a port from 1",
		"https://[::1/":                "is not a URL",
		"https://":                     "is not a URL",
		"https://u:p@h.example:99999/": `"…@h.example:99999/" is not a URL: The input's port is outside`,
		strings.Repeat("a", MaxURL+1):  "want at most",
		strings.Repeat("ä", MaxURL/2):  "want at most",
		strings.Repeat("/a", 201):      "201 slashes: want at most 200",
		strings.Repeat(`\a`, 201):      "201 slashes: want at most 200",
	} {
		if got, err := Canonical(base, reference); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "u:p") {
			t.Errorf("Canonical(%.40q) = %q, %v; want an error with %q", reference, got, err, want)
		}
	}
}

// What net/url reads another host out of is not fetched: the permit was for that.
func TestCanonical_AmbiguousHost_IsAnError(t *testing.T) {
	for _, text := range []string{"http://0+0/", "http://+127.0.0.1/"} {
		if got, err := Canonical("", text); err == nil || !strings.Contains(err.Error(), "is read as different hosts by browsers and by net/url") {
			t.Errorf("Canonical(%q) = %q, %v", text, got, err)
		}
	}
}

// The canonical form of a URL is its own, and of the same host.
func FuzzCanonical(target *testing.F) {
	f := fuzzseed.More(target)
	f.Add("https://h.example/a", "../b?%41#c")
	f.Add("", "http://%68/%2e/%")
	for _, host := range []string{"LOCALHOST.", "ℒocalhost", "127.1", "0X7F000001", "[::FFFF:7f00:1]", "[2001:DB8::A]", "mu\u0308nchen.x", "a_b.example"} {
		f.Add("", "http://"+host+":8080/a@b?c#d")
	}
	f.Fuzz(func(t *testing.T, base, reference string) {
		once, err := Canonical(base, reference)
		if err != nil {
			return
		}
		if twice, err := Canonical("", once); twice != once {
			t.Errorf("%q is %q, and that is %q, %v", reference, once, twice, err)
		}
		if host := canonical.HostOf(reference); base == "" && host != "" && canonical.HostOf(once) != host {
			t.Errorf("%q is of host %q, and to a crawl %q of %q", reference, host, once, canonical.HostOf(once))
		}
	})
}

func TestWithin(t *testing.T) {
	tests := []struct {
		url, allowed string
		want         bool
	}{
		{"https://h.example/", "h.example", true},
		{"https://H.example:8080/", "H.Example", true},
		{"https://a.h.example/", "h.example", false},
		{"https://a.h.example/", "*.h.example", true},
		{"https://h.example/", "*.h.example", false},
		{"https://evilh.example/", "*.h.example", false},
		{"https://h.example.evil.example/", "h.example", false},
		{"https://%", "h.example", false},
		{"https://münchen.example./", "xn--MNCHEN-3ya.example", true},
		{"https://a.xn--mnchen-3ya.example./", "*.münchen.example", true},
		{"https://[::1]/", "0:0:0:0:0:0:0:1", true},
		{"https://[::ffff:7f00:1]/", "127.0.0.1", true},
	}
	for _, tt := range tests {
		if got := Within(tt.url, []string{"other.example", tt.allowed}); got != tt.want {
			t.Errorf("Within(%q, %q) = %t, want %t", tt.url, tt.allowed, got, tt.want)
		}
	}
}

func TestFromPage(t *testing.T) {
	const at = "https://h.example/dir/page"
	h := func(paths ...string) []string {
		for i, p := range paths {
			paths[i] = "https://h.example" + p
		}
		return paths
	}
	tests := []struct {
		name, contentType, page string
		tags                    []string
		want                    Page
	}{
		{
			name: "kinds of links", page: `<A HREF=" a "><area href=b><iframe src=c></iframe><link rel="next prefetch" href=d><link rel=stylesheet href=e><img src=f>`,
			want: Page{Links: h("/dir/a", "/dir/b", "/dir/c", "/dir/d")},
		},
		{name: "each once", page: `<a href=/a><a href=/a#x><a href=/%61><a>`, want: Page{Links: h("/a")}},
		{
			name: "schemes", page: `<a href="javascript:x"><a href=mailto:x><a href=file:///x><a href=http://u:p@h.example/><a href="//o.example">`,
			want: Page{Links: []string{"https://o.example/"}},
		},
		{name: "base", page: `<base target=_blank><base href="/new/"><base href="/newer/"><a href=a>`, want: Page{Links: h("/new/a")}},
		{name: "a base that is no URL", page: `<base href="javascript:x"><a href=a>`, want: Page{Links: h("/dir/a")}},
		{name: "rel nofollow", page: `<a href=a rel="external NoFollow"><a href=b rel=nofollower>`, want: Page{Links: h("/dir/b")}},
		{name: "meta nofollow", page: `<a href=a><meta name=Robots content="NOFOLLOW, noarchive">`, want: Page{}},
		{name: "meta noindex", page: `<meta name=robots content=noindex><a href=a>`, want: Page{Links: h("/dir/a"), NoIndex: true}},
		{name: "meta for us", page: `<meta name=headgate content=none><a href=a>`, want: Page{NoIndex: true}},
		{name: "meta for another", page: `<meta name=otherbot content=none><a href=a>`, want: Page{Links: h("/dir/a")}},
		{name: "header", tags: []string{"noindex, nofollow"}, page: `<a href=a>`, want: Page{NoIndex: true}},
		{name: "header for us", tags: []string{"HeadGate: noindex"}, page: `<a href=a>`, want: Page{Links: h("/dir/a"), NoIndex: true}},
		{name: "header for another", tags: []string{"otherbot: none", "unavailable_after: 1 Jan 2030"}, page: `<a href=a>`, want: Page{Links: h("/dir/a")}},
		{name: "no links in scripts and comments", page: `<script>"<a href=a>"</script><!-- <a href=b> --><textarea><a href=c></textarea>`, want: Page{}},
		{name: "entities", page: `<a href="?a=1&amp;b=2">`, want: Page{Links: h("/dir/page?a=1&b=2")}},
		{name: "of two attributes the first", page: `<a href=a href=b>`, want: Page{Links: h("/dir/a")}},
		{name: "latin 1", contentType: "text/html; charset=iso-8859-1", page: "<a href=caf\xe9>", want: Page{Links: h("/dir/caf%C3%A9")}},
		{name: "charset in the page", page: "<meta charset=windows-1251><a href=\xe4>", want: Page{Links: h("/dir/%D0%B4")}},
		{name: "unknown charset", contentType: "text/html; charset=klingon", page: "<a href=a>", want: Page{Links: h("/dir/a")}},
		{name: "garbage", page: "\xff\x00<<a href=a <a/href='b'>\x80</", want: Page{Links: h("/dir/a")}},
		{name: "nothing", want: Page{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := FromPage(at, tt.contentType, tt.tags, "headgate", []byte(tt.page))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestFromPage_ManyLinks_AreBounded(t *testing.T) {
	var links, fragments bytes.Buffer
	for i := range MaxLinks + 10 {
		fmt.Fprintf(&links, "<a href=%d>", i)
		fmt.Fprintf(&fragments, "<a href=#%d>", i) // no new link, but as much work
	}
	links.WriteString("<a href=0><a href=1>") // what is repeated in the same words is no work
	longBase := "<a href=data:" + strings.Repeat("x", maxText-100) + "><base href=/" + strings.Repeat("x", 2024) + "/>"
	for _, tt := range []struct {
		page          string
		want, omitted int
	}{
		{links.String(), MaxLinks, 10},
		{fragments.String(), 1, 10},
		{longBase + links.String()[:50_000], 1028, 2903},
	} {
		if got := FromPage("http://h/", "", nil, "a", []byte(tt.page)); len(got.Links) != tt.want || got.Omitted != tt.omitted {
			t.Errorf("%d links, and %d beyond; want %d and %d", len(got.Links), got.Omitted, tt.want, tt.omitted)
		}
	}
}

// A tag of millions of attributes would take many times as much memory as the page.
func TestFromPage_LongTag_EndsPage(t *testing.T) {
	for _, long := range []string{"<b " + strings.Repeat("a ", maxTag), "<script>" + strings.Repeat("/", 2*maxTag)} {
		got := FromPage("http://h/", "", nil, "a", []byte("<a href=a>"+long+"><a href=b>"))
		if diff := cmp.Diff(Page{Links: []string{"http://h/a"}, Truncated: true}, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
	within := "<a" + strings.Repeat(" x", 50) + " href=a " + strings.Repeat(" y", maxTag/2-100) + "><script>" + strings.Repeat("/", maxTag/2) + "</script><a href=b>"
	if got := FromPage("http://h/", "", nil, "a", []byte(within)); len(got.Links) != 2 || got.Truncated {
		t.Errorf("%d links, cut %t; want both", len(got.Links), got.Truncated)
	}
}

func zip(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(text))
	_ = w.Close()
	return b.String()
}

func TestReadSitemap(t *testing.T) {
	const (
		at    = "https://h.example/sitemap.xml"
		pages = `<?xml version="1.0" encoding="UTF-8"?>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:image="urn:image">
 <url><loc> https://h.example/a?x=1&amp;y=2 </loc><lastmod>2026-03-01</lastmod><image:image><image:loc>https://h.example/i.png</image:loc></image:image></url>
 <url><loc>https://h.example/b</loc><lastmod>2026-03-01T12:30+02:00</lastmod></url>
 <url><loc>file:///etc/passwd</loc></url><url/>
</urlset>`
	)
	want := Sitemap{Pages: []string{"https://h.example/a?x=1&y=2", "https://h.example/b"}}
	tests := []struct {
		name, text string
		want       Sitemap
		err        string
	}{
		{"pages", pages, want, ""},
		{"gzip", zip(pages), want, ""},
		{"byte order mark", "\ufeff\n" + strings.TrimPrefix(pages, `<?xml version="1.0" encoding="UTF-8"?>`), want, ""},
		{
			"an index", `<sitemapindex><sitemap><loc>/b.xml.gz</loc><lastmod>soon</lastmod></sitemap></sitemapindex>`,
			Sitemap{Sitemaps: []string{"https://h.example/b.xml.gz"}},
			"",
		},
		{
			"RSS 2.0", `<rss version="2.0" xmlns:atom="urn:a"><channel><title>T</title><link>https://h.example/</link><atom:link href="/feed" rel="self"/><item><title>A & B</title>
				<link>https://h.example/a?x=1&amp;y=2</link><guid>1</guid></item><item><link>https://h.example/b</link><enclosure url="/b.mp3"/></item></channel></rss>`, want, "",
		},
		{
			"RSS 1.0", `<rdf:RDF xmlns:rdf="urn:rdf"><channel rdf:about="x"><link>https://h.example/</link></channel>
				<item rdf:about="y"><link>https://h.example/a?x=1&amp;y=2</link></item><item><link>/b</link></item></rdf:RDF>`, want, "",
		},
		{
			"Atom", `<feed xmlns="urn:a"><link href="https://h.example/"/><entry><link rel="edit" href="/edit"/><link href="https://h.example/a?x=1&amp;y=2"/></entry>
				<entry><title>b</title><link rel="alternate" type="text/html" href="/b"></link><content><a href="/c"/></content></entry></feed>`, want, "",
		},
		{"lines", "https://h.example/a\r\n\r\nmailto:x\nhello world\nhttps://h.example/b", Sitemap{Pages: []string{"https://h.example/a", "https://h.example/b"}}, ""},
		{
			"another encoding", "<?xml version='1.0' encoding='iso-8859-1'?><urlset><url><loc>/\xe9</loc></url></urlset>",
			Sitemap{Pages: []string{"https://h.example/%C3%A9"}},
			"",
		},
		{"it breaks off", pages[:strings.Index(pages, "<url><loc>file")], want, "sitemap: unexpected end within <urlset>"},
		{"an entity that is none", "<urlset>&bomb;</urlset>", Sitemap{}, "sitemap: no URL found"},
		{"no gzip", "\x1f\x8bgarbage", Sitemap{}, "sitemap: "},
		{"a gzip bomb", zip(strings.Repeat("<a/>"+strings.Repeat(" ", 1020), MaxSitemapSize/1024+1)), Sitemap{}, "sitemap: more than 52428800 bytes"},
		{"as much as may be", strings.Repeat("\n", MaxSitemapSize), Sitemap{}, "sitemap: no URL found"},
		{"nothing", "", Sitemap{}, "sitemap: no URL found"},
		{"an error page", "<!DOCTYPE html><html><body><p>Not found<a href='/b'>home</a></body></html>", Sitemap{}, "sitemap: no URL found"},
		{"an index without loc", "<sitemapindex><sitemap>https://h.example/b.xml</sitemap></sitemapindex>", Sitemap{}, "sitemap: no URL found"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ReadSitemap(at, strings.NewReader(tt.text))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if (err == nil) != (tt.err == "") || err != nil && !strings.HasPrefix(err.Error(), tt.err) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
		})
	}
}

// A flaw in one entry of a sitemap costs that entry at most.
func TestReadSitemap_Flaws(t *testing.T) {
	const start, end = `<?xml version="1.0" encoding="UTF-8"?><urlset xmlns="urn:s" xmlns:image="urn:image">`, `</urlset>`
	const before, after = `<url><loc>https://h.example/before</loc></url>`, `<url><loc>https://h.example/after</loc></url>`
	for name, tc := range map[string]struct{ entry, page string }{
		"a bare &":                 {`<url><loc>https://h.example/p?a=1&b=2&copy=3</loc></url>`, "p?a=1&b=2&copy=3"},
		"an entity of HTML":        {`<url><image:title>a&nbsp;b</image:title><loc>https://h.example/p</loc></url>`, "p"},
		"a control character":      {"<url><title>a\x01b</title><loc>https://h.example/p</loc></url>", "p"},
		"a byte that is not UTF-8": {"<url><title>caf\xe9</title><loc>https://h.example/p</loc></url>", "p"},
		"an end that is missing":   {`<url><loc>https://h.example/p</loc>`, "p"},
		"an end that is too much":  {`<url><loc>https://h.example/p</loc></lastmod></url>`, "p"},
		"CDATA":                    {`<url><loc><![CDATA[https://h.example/p?a=1&b=2]]></loc></url>`, "p?a=1&b=2"},
		"references":               {`<url><loc>https://h.example/p?a=1&#38;b=2&#x26;c=3</loc></url>`, "p?a=1&b=2&c=3"},
		"a link of another kind":   {`<url><loc>https://h.example/p</loc><xhtml:link rel="alternate" href="https://h.example/de"/></url>`, "p"},
		"an image's URL":           {`<url><image:image><image:loc>https://h.example/i.png</image:loc></image:image></url>`, ""},
		"a comment":                {`<!-- <url><loc>/no</loc></url> --><url><loc>https://h.example/p</loc></url>`, "p"},
	} {
		want := []string{"https://h.example/before"}
		if tc.page != "" {
			want = append(want, "https://h.example/"+tc.page)
		}
		want = append(want, "https://h.example/after")
		for _, text := range []string{start + before + tc.entry + after + end, strings.Replace(start, `version="1.0"`, `version="1.1"`, 1) + before + tc.entry + after + end} {
			got, err := ReadSitemap("https://h.example/sitemap.xml", strings.NewReader(text))
			if diff := cmp.Diff(want, got.Pages); diff != "" || err != nil {
				t.Errorf("%s: %v, -want +got:\n%s", name, err, diff)
			}
		}
	}
}

// The URLs of a sitemap are bounded together: each takes the longer to parse, the longer it and its
// base are.
func TestReadSitemap_LongURLs_AreBounded(t *testing.T) {
	base := "https://h.example/" + strings.Repeat("a", 2000)
	text := "<urlset>" + strings.Repeat("<url><loc>/</loc></url>", MaxSitemapEntries) + "</urlset>"
	got, err := ReadSitemap(base, strings.NewReader(text))
	if want := maxSitemapURLs / (len(base) + 1); len(got.Pages) != want || !got.Truncated || err != nil {
		t.Errorf("%d pages, truncated %t, %v; want %d", len(got.Pages), got.Truncated, err, want)
	}
}

// Entries that are left out count as well: reading them takes as long.
func TestReadSitemap_ManyEntries_AreBounded(t *testing.T) {
	for name, entry := range map[string]struct{ good, bad, start, end string }{
		"XML":   {"<url><loc>/</loc></url>", "<url/>", "<urlset>", "</urlset>"},
		"lines": {"https://h.example/\n", "x\n", "", ""},
	} {
		for _, bad := range []int{MaxSitemapEntries - 1, MaxSitemapEntries} {
			text := entry.start + strings.Repeat(entry.bad, bad) + entry.good + entry.end
			got, err := ReadSitemap("https://h.example/", strings.NewReader(text))
			if within := bad < MaxSitemapEntries; got.Truncated == within || len(got.Pages) == 1 != within || err == nil != within {
				t.Errorf("%s after %d others: %+v, %v", name, bad, got, err)
			}
		}
	}
}
