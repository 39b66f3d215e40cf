package tasks_test

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/internal/frontier"
	"github.com/headgate/headgate/tasks"
)

// Links are followed if the patterns say so, also to a page that looks like a trap. What a user
// enqueues is fetched all the same.
func TestCrawl_IncludeExclude(t *testing.T) {
	links := map[string][]string{
		"/":       {"/docs/a", "/docs/a?print=1", "/blog/b", "/docs/1969/07/21/eagle", "/docs/part/1045-3"},
		"/docs/a": {"/docs/moved", "/docs/b"},
		"/docs/b": nil,
		"/blog/b": nil,

		"/docs/1969/07/21/eagle": {"/docs/x/x/x/"},
		"/docs/part/1045-3":      nil,
		"/docs/x/x/x/":           nil,
	}
	site := pages("", links)
	hosts := map[string]http.HandlerFunc{"a.test": func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/docs/moved" {
			http.Redirect(w, r, "/blog/elsewhere", http.StatusFound)
			return
		}
		site(w, r)
	}}
	crawl(t, hosts, func(c *crawling) {
		c.handler.Include = []*regexp.Regexp{regexp.MustCompile(`/docs/`)}
		c.handler.Exclude = []*regexp.Regexp{regexp.MustCompile(`[?&]print=`)}
		c.seed(tasks.CrawlFetch{URL: "http://a.test/", Depth: 5})
		p := c.wait()
		c.wantOnce("http://a.test/", "http://a.test/docs/a", "http://a.test/docs/b", "http://a.test/docs/moved",
			"http://a.test/docs/1969/07/21/eagle", "http://a.test/docs/part/1045-3", "http://a.test/docs/x/x/x/")
		if p.Found != 7 || p.Redirected != 1 || p.Ended.Before(p.Began) || p.Ended.IsZero() {
			t.Errorf("progress %+v, ended %s", p.Counts, p.Ended)
		}
		if n := len(c.web.requests()); n != 8 {
			t.Errorf("%d requests, want those for 7 pages and robots.txt: %v", n, c.web.requests())
		}
	})
}

// A URL that robots.txt disallows takes no room on its host. The crawl counts what it leaves out by
// reason.
func TestCrawl_LeftOut_SaysWhy(t *testing.T) {
	var private, public []string
	for i := range 6 {
		private, public = append(private, fmt.Sprintf("/private/%d", i)), append(public, fmt.Sprintf("/public/%d", i))
	}
	links := map[string][]string{
		"/":         slices.Concat(private, public, []string{"/skip", "http://b.test/private", "http://c.test/"}),
		"/public/0": {"/deep"},
	}
	for _, path := range public {
		links[path] = append(links[path], "/")
	}
	const robots = "User-agent: *\nDisallow: /private\n"
	hosts := map[string]http.HandlerFunc{"a.test": pages(robots, links), "b.test": pages(robots, nil)}
	crawl(t, hosts, func(c *crawling) {
		c.handler.MaxHostPages = 4
		c.handler.Exclude = []*regexp.Regexp{regexp.MustCompile("/skip")}
		c.seed(tasks.CrawlFetch{URL: "http://a.test/", Depth: 1, Allow: []string{"a.test", "b.test"}})
		p := c.wait()
		c.wantOnce("http://a.test/", "http://a.test/public/0", "http://a.test/public/1", "http://a.test/public/2")
		want := frontier.Counts{Found: 4, Fetched: 4, LeftOut: frontier.LeftOut{Disallowed: 7, MaxHostPages: 3, TooDeep: 1, OtherHost: 1, Excluded: 1}}
		if diff := cmp.Diff(want, p.Counts); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}

// endless is a site each of whose pages leads to 25 new ones.
func endless(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/robots.txt" {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/html")
	for i := range 25 {
		fmt.Fprintf(w, "<a href=%s%d/>", r.URL.Path, i)
	}
}

// A site without an end costs as many requests and jobs as a crawl may have pages.
func TestCrawl_EndlessSite_StopsAtBounds(t *testing.T) {
	hosts := map[string]http.HandlerFunc{"a.test": endless, "b.test": endless}
	crawl(t, hosts, func(c *crawling) {
		c.handler.MaxPages, c.handler.MaxHostPages = 30, 20
		var id string
		for _, host := range []string{"a.test", "b.test"} {
			id = c.seed(tasks.CrawlFetch{URL: "http://" + host + "/", Depth: tasks.MaxDepth})
		}
		p := c.wait()
		if p.Found != 30 || p.Fetched != 30 || p.LeftOut.MaxPages == 0 || p.LeftOut.MaxHostPages == 0 {
			t.Errorf("%+v, want 30 pages and others beyond", p.Counts)
		}
		if n := len(c.web.requests()); n != 32 {
			t.Errorf("%d requests, want those for 30 pages and two robots.txt", n)
		}
		if got := c.result(id); !strings.Contains(got, `"reason":"the crawl may have 30 pages, and 20 of a host"`) {
			t.Errorf("its result does not say why links were left out: %s", got)
		}
		queue, err := c.tasks.GetQueueInfo("default")
		if err != nil || queue.Processed > 60 {
			t.Errorf("%d jobs, %v; want about one for each page", queue.Processed, err)
		}
	})
}

// A sitemap that lists no URL is seen: its job is archived with the reason, and counts.
func TestCrawl_EmptySitemap_Fails(t *testing.T) {
	site := pages("Sitemap: http://a.test/map.xml\n", map[string][]string{"/": nil})
	hosts := map[string]http.HandlerFunc{"a.test": func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/map.xml" {
			fmt.Fprint(w, "<sitemapindex><sitemap>/pages.xml</sitemap></sitemapindex>")
			return
		}
		site(w, r)
	}}
	crawl(t, hosts, func(c *crawling) {
		c.seed(tasks.CrawlFetch{URL: "http://a.test/", Depth: 5})
		if p := c.wait(); p.Fetched != 1 || p.Failed != 1 {
			t.Errorf("%+v, want a page and a failed sitemap", p.Counts)
		}
	})
}

// An index leads to sitemaps, and sitemaps to pages. An index after five indexes and redirects leads
// nowhere. The pages are as deep as links of the page that led to the index.
func TestCrawl_NestedSitemaps(t *testing.T) {
	index := func(to string) string { return "<sitemapindex><sitemap><loc>" + to + "</loc></sitemap></sitemapindex>" }
	files := map[string]string{
		"/robots.txt": "Sitemap: http://a.test/1.xml\n",
		"/1.xml":      index("/moved.xml"),
		"/2.xml":      index("/3.xml"),
		"/3.xml":      index("/4.xml"),
		"/4.xml":      index("/5.xml"),
		"/5.xml":      index("/6.xml"),
		"/":           "",
	}
	site := map[string]http.HandlerFunc{"a.test": func(w http.ResponseWriter, r *http.Request) {
		text, ok := files[r.URL.Path]
		switch {
		case r.URL.Path == "/moved.xml": // which makes no sitemap of the first level of it
			http.Redirect(w, r, "/2.xml", http.StatusFound)
		case !ok:
			http.NotFound(w, r)
		default:
			w.Header().Set("Content-Type", "application/xml")
			fmt.Fprint(w, text)
		}
	}}
	crawl(t, site, func(c *crawling) {
		c.seed(tasks.CrawlFetch{URL: "http://a.test/", Depth: 9})
		c.wait()
		c.wantOnce("http://a.test/", "http://a.test/1.xml", "http://a.test/moved.xml", "http://a.test/2.xml",
			"http://a.test/3.xml", "http://a.test/4.xml", "http://a.test/5.xml")
	})
	files["/2.xml"] = "<urlset><url><loc>/page</loc></url></urlset>"
	for depth, want := range [][]string{
		0: {"http://a.test/"},
		1: {"http://a.test/", "http://a.test/1.xml", "http://a.test/moved.xml", "http://a.test/2.xml", "http://a.test/page"},
	} {
		files["/page"] = ""
		crawl(t, site, func(c *crawling) {
			c.seed(tasks.CrawlFetch{URL: "http://a.test/", Depth: depth})
			c.wait()
			c.wantOnce(want...)
		})
	}
}
