package tasks_test

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
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
	crawl(t, hosts, nil, func(c *crawling) {
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

// A URL that robots.txt disallows takes no room on its host, whether robots.txt is known when the
// URL is found or not. The crawl counts what it leaves out by reason.
func TestCrawl_LeftOut_SaysWhy(t *testing.T) {
	var private, public []string
	for i := range 6 {
		private, public = append(private, fmt.Sprintf("/private/%d", i)), append(public, fmt.Sprintf("/public/%d", i))
	}
	other := func(paths []string) []string { return prefixed("http://b.test", paths) }
	links := map[string][]string{"/": slices.Concat(private, public, other(private), other(public), []string{"/skip", "http://c.test/"}), "/public/0": {"/deep"}}
	for _, path := range public {
		links[path] = append(links[path], "/")
	}
	const robots = "User-agent: *\nDisallow: /private\n"
	hosts := map[string]http.HandlerFunc{"a.test": pages(robots, links), "b.test": pages(robots, links)}
	crawl(t, hosts, nil, func(c *crawling) {
		c.handler.MaxHostPages = 4
		c.handler.Exclude = []*regexp.Regexp{regexp.MustCompile("/skip")}
		c.seed(tasks.CrawlFetch{URL: "http://a.test/", Depth: 1, Allow: []string{"a.test", "b.test"}})
		p := c.wait()
		c.wantOnce(append([]string{"http://a.test/"}, slices.Concat(prefixed("http://a.test", public[:3]), other(public[:4]))...)...)
		want := frontier.Counts{Found: 8, Fetched: 8, LeftOut: frontier.LeftOut{Disallowed: 12, MaxHostPages: 5, TooDeep: 3, OtherHost: 1, Excluded: 1}}
		if diff := cmp.Diff(want, p.Counts); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}

func prefixed(prefix string, paths []string) (urls []string) {
	for _, path := range paths {
		urls = append(urls, prefix+path)
	}
	return urls
}
