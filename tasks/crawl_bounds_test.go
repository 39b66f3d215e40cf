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
func TestCrawl_EndlessSite_StopsAtBounds(t *testing.T) {
	hosts := map[string]http.HandlerFunc{"a.test": endless, "b.test": endless}
	crawl(t, hosts, nil, func(c *crawling) {
		c.handler.MaxPages, c.handler.MaxHostPages = 30, 20
		var id string
		for _, host := range []string{"a.test", "b.test"} {
			id = c.seed(tasks.CrawlFetch{URL: "http://" + host + "/", Depth: tasks.MaxDepth})
		}
		p := c.wait()
		if p.Found != 30 || p.Fetched != 30 || p.LeftOut.MaxPages == 0 || p.LeftOut.MaxHostPages == 0 {
			t.Errorf("%+v, want 30 pages and others beyond", p.Counts)
		}
		for host, n := range c.hosts() {
			if n > 21 {
				t.Errorf("%d requests to %s, want at most 20 pages and robots.txt", n, host)
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
	crawl(t, hosts, nil, func(c *crawling) {
		c.seed(tasks.CrawlFetch{URL: "http://a.test/", Depth: 5})
		if p := c.wait(); p.Fetched != 1 || p.Failed != 1 {
			t.Errorf("%+v, want a page and a failed sitemap", p.Counts)
		}
	})
}

// An index leads to sitemaps and these to pages, not to further sitemaps; the pages
// are as far as links of the page that led to the index.
func TestCrawl_NestedSitemaps(t *testing.T) {
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
		0: {"http://a.test/"},
		1: {"http://a.test/", "http://a.test/1.xml", "http://a.test/moved.xml", "http://a.test/2.xml", "http://a.test/page"},
	} {
		files["/page"] = ""
		crawl(t, site, nil, func(c *crawling) {
			c.seed(tasks.CrawlFetch{URL: "http://a.test/", Depth: depth})
			c.wait()
			c.wantOnce(want...)
		})
	}
}

// A page can lead to thousands of origins, whose files would all be in memory at once. The
// job reads those of a few, and of the others their pages' own jobs do.
func TestCrawl_ManyOrigins_ReadsFewRobots(t *testing.T) {
	const origins = 40
	var allow, to []string
	hosts := map[string]http.HandlerFunc{}
	for i := range origins {
		host := fmt.Sprintf("o%d.test", i)
		allow, to = append(allow, host), append(to, "http://"+host+"/x")
	}
	hosts["a.test"] = pages("", map[string][]string{"/": to})
	crawl(t, hosts, nil, func(c *crawling) {
		for _, host := range allow {
			if err := c.frontier.KeepRobots(c.t.Context(), "http://"+host, 200, []byte("User-agent: *\nDisallow: /"), 0); err != nil {
				t.Fatal(err)
			}
		}
		id := c.seed(tasks.CrawlFetch{URL: "http://a.test/", Depth: 1, Allow: append(allow, tasks.SameHost)})
		p := c.wait()
		if p.LeftOut.Disallowed != origins || p.Fetched != 1 {
			t.Errorf("%+v, want all but the first disallowed", p.Counts)
		}
		if got := c.result(id); !strings.Contains(got, `"new":25`) {
			t.Errorf("%s: want 15 found disallowed by the page's job, and 25 by their own", got)
		}
	})
}
