package tasks_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/tasks"
)

// Each bad page gives a clear result, and the pages beside it are fetched.
func TestCrawl_BadPages(t *testing.T) {
	tests := []struct {
		name string
		path string
		bad  http.HandlerFunc
		want string // of the bad page's result
	}{
		{"redirect loop of one", "/bad", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/bad", http.StatusFound) }, `"redirected","reason":"it leads to http://a.test/bad"`},
		{"redirect loop of two", "/bad", func(w http.ResponseWriter, r *http.Request) {
			to := map[string]string{"/bad": "/bad2", "/bad2": "/bad"}[r.URL.Path]
			http.Redirect(w, r, to, http.StatusFound)
		}, `"redirected"`},
		{"endless redirects", "/bad", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path+"x", http.StatusFound) }, `"redirected"`},
		{"redirect to a file", "/bad", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "file:///etc/passwd")
			w.WriteHeader(302)
		}, `"missing","reason":"the redirect has no valid Location: URL of scheme`},
		{"redirect without a target", "/bad", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(302) }, `"missing","reason":"the redirect has no Location"`},
		{"redirect with a password", "/bad", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://u:p@a.test/", http.StatusFound)
		}, `the redirect has no valid Location: URL with user or password`},
		{"redirect to a host that is not allowed", "/bad", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "http://b.test/", http.StatusFound) }, `it leads to http://b.test/, which is left out: other_host`},
		{"links that are invalid, of other schemes, or with passwords", "/bad", html(`<a href="http://a.test:0/"><a href="file:///etc/passwd"><a href="ftp://a.test/x"><a href="javascript:x"><a href="http://u:p@a.test/secret"><a href="data:,x"><a href="//[">`), `"fetched"`},
		{"longer than is read", "/bad", html(strings.Repeat("x", 3<<20)), `"truncated":true`},
		{"a type that is none", "/bad", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", ";;\x01")
			fmt.Fprint(w, "x")
		}, `"fetched"`},
		{"a sitemap that breaks off", "/bad", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/xml")
			fmt.Fprint(w, "<urlset><url><loc>http://a.test/ok</loc></url><url><lo")
		}, `"reason":"sitemap: `},
		{"not there", "/bad", http.NotFound, `"missing","reason":"http://a.test/bad answered 404 Not Found`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			hosts := map[string]http.HandlerFunc{"a.test": func(w http.ResponseWriter, r *http.Request) {
				switch {
				case strings.HasPrefix(r.URL.Path, tt.path):
					tt.bad(w, r)
				case r.URL.Path == "/":
					html(`<a href="/bad"><a href="/good">`)(w, r)
				}
			}}
			crawl(t, hosts, func(c *crawling) {
				c.handler.MaxPage = 1 << 20
				page := tasks.CrawlFetch{URL: "http://a.test/bad", Depth: 2, Start: 1}
				id := c.seed(page)
				c.seed(tasks.CrawlFetch{URL: "http://a.test/", Depth: 2, Start: 1})
				p := c.wait()
				if p.Waiting != 0 || p.Failed != 0 {
					t.Errorf("%+v, want all done", p.Counts)
				}
				if got := c.result(id); !strings.Contains(got, tt.want) {
					t.Errorf("result %s, want %s", got, tt.want)
				}
				asked := c.web.requests()
				if asked["http://a.test/good"] != 1 || len(asked) > 12 {
					t.Errorf("asked for %v", asked)
				}
				for url, n := range asked {
					if n != 1 || strings.Contains(url, "@") || strings.Contains(url, "root") || !strings.HasPrefix(url, "http://a.test/") {
						t.Errorf("asked for %s %d times", url, n)
					}
				}
			})
		})
	}
}

func html(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, text)
	}
}

func TestCrawlFetch_BadPayloads(t *testing.T) {
	tests := []struct{ payload, want string }{
		{`{"url":"http://a.test/"}`, `crawl "": want the crawl's name`},
		{`{"crawl":"a b","url":"http://a.test/"}`, `crawl "a b": want`},
		{`{"crawl":"it"}`, "url is missing"},
		{`{"crawl":"it","url":"file:///etc/passwd"}`, "want it to begin with http"},
		{`{"crawl":"it","url":"http://u:p@a.test/"}`, "without user and password"},
		{`{"crawl":"it","url":"http://a.test/?t=${env:TOKEN}"}`, "without a reference to a secret"},
		{`{"crawl":"it","url":"http://a.test/","depth":-1}`, "depth -1: want from 0 to 1000 links"},
		{`{"crawl":"it","url":"http://a.test/","allow":["http://b.test"]}`, `allow: "http://b.test": want same-host`},
		{`{"crawl":"it","url":"http://a.test/","start":-1}`, "start -1: want a time in µs"},
		{`{"crawl":"it","url":"http://a.test/","deep":1}`, `unknown field "deep"`},
		{"\xff", "not UTF-8"},
	}
	for _, tt := range tests {
		if err := tasks.Validate(tasks.TypeCrawlFetch, []byte(tt.payload)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %s", tt.payload, err, tt.want)
		}
	}
}
