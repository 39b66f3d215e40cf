package tasks_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/tasks"
)

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
func TestACrawlIsBounded(t *testing.T) {
	hosts := map[string]http.HandlerFunc{"a.test": endless, "b.test": endless}
	crawl(t, hosts, nil, func(c *crawling) {
		c.handler.MaxPages, c.handler.MaxHostPages = 30, 20
		var id string
		for _, host := range []string{"a.test", "b.test"} {
			id = c.seed(tasks.CrawlFetch{URL: "http://" + host + "/", Depth: tasks.MaxDepth})
		}
		p := c.wait()
		if p.Found != 30 || p.Fetched != 30 || p.Beyond == 0 {
			t.Errorf("%+v, want 30 pages and others beyond", p.Counts)
		}
		for _, h := range p.Hosts {
			if h.Found > 20 {
				t.Errorf("%d pages of %s, want at most 20", h.Found, h.Host)
			}
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

// An index leads to sitemaps and these to pages, not to further sitemaps; each is a
// step from where the crawl began.
func TestSitemapsNestTwoDeep(t *testing.T) {
	index := func(to string) string { return "<sitemapindex><sitemap><loc>" + to + "</loc></sitemap></sitemapindex>" }
	files := map[string]string{
		"/robots.txt": "Sitemap: http://a.test/1.xml\n",
		"/1.xml":      index("/moved.xml"),
		"/2.xml":      index("/3.xml"),
		"/3.xml":      "<urlset><url><loc>/page</loc></url></urlset>",
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
	crawl(t, site, nil, func(c *crawling) {
		c.seed(tasks.CrawlFetch{URL: "http://a.test/", Depth: 9})
		c.wait()
		c.wantOnce("http://a.test/", "http://a.test/1.xml", "http://a.test/moved.xml", "http://a.test/2.xml")
	})
	files["/2.xml"] = files["/3.xml"]
	for depth, want := range [][]string{
		1: {"http://a.test/", "http://a.test/1.xml"},
		3: {"http://a.test/", "http://a.test/1.xml", "http://a.test/moved.xml", "http://a.test/2.xml", "http://a.test/page"},
	} {
		if want == nil {
			continue
		}
		files["/page"] = ""
		crawl(t, site, nil, func(c *crawling) {
			c.seed(tasks.CrawlFetch{URL: "http://a.test/", Depth: depth})
			c.wait()
			c.wantOnce(want...)
		})
	}
}
