package tasks_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/tasks"
)

// robotsAt answers the requests for robots.txt, and every other with an empty
// page.
func robotsAt(answer http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/robots.txt") {
			answer(w, r)
		}
	}
}

func TestRobots(t *testing.T) {
	text := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }
	}
	to := func(url string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, url, http.StatusMovedPermanently) }
	}
	const nothing = "User-agent: *\nDisallow: /\n"
	tests := []struct {
		name   string
		answer http.HandlerFunc
		want   string // of the page's result
	}{
		{"none", http.NotFound, `"fetched"`},
		{"forbidden", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(403) }, `"fetched"`},
		{"nothing allowed", text(nothing), `"disallowed","reason":"robots.txt of http://a.test disallows it"`},
		{"another crawler", text("User-agent: other\nDisallow: /\n"), `"fetched"`},
		{"of 600 kB, disallowed in the first 500", text(nothing + strings.Repeat("# padding\n", 60_000)), `"disallowed"`},
		{"of 600 kB, disallowed after that", text(strings.Repeat("# padding\n", 60_000) + nothing), `"fetched"`},
		{"endless", func(w http.ResponseWriter, _ *http.Request) {
			for range 100_000 {
				fmt.Fprintln(w, strings.Repeat("x", 100))
			}
		}, `"fetched"`},
		{"garbage", text("\xff\xfe\x00<html>\x80: \x81\r\n\n:::\n"), `"fetched"`},
		{"at another host", to("http://b.test/robots.txt"), `"disallowed"`},
		{"redirects in a loop", to("/robots.txt"), `"fetched"`},
		{"redirects to a file", to("file:///etc/passwd"), `"fetched"`},
		{"an error", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, "archived: without robots.txt nothing is fetched: http://a.test/robots.txt "},
		{"too many requests", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(429) }, "archived: without robots.txt nothing is fetched"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			hosts := map[string]http.HandlerFunc{"a.test": robotsAt(tt.answer), "b.test": robotsAt(text(nothing))}
			crawl(t, hosts, nil, func(c *crawling) {
				id := c.seed(tasks.CrawlFetch{URL: "http://a.test/page"})
				p := c.wait()
				if got := c.result(id); !strings.Contains(got, tt.want) {
					t.Errorf("result %s, want %s", got, tt.want)
				}
				if asked := c.web.requests()["http://a.test/page"] > 0; asked != (p.Fetched == 1) || p.Waiting != 0 {
					t.Errorf("asked for: %v, %+v", asked, p.Counts)
				}
				c.wantIntervals(nil)
			})
		})
	}
}

// A host that was down is crawled when it is up again; a copy of its robots.txt
// counts where it goes down later.
func TestRobotsComesBack(t *testing.T) {
	var down atomic.Bool
	down.Store(true)
	host := func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/robots.txt") && down.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}
	crawl(t, map[string]http.HandlerFunc{"a.test": host}, nil, func(c *crawling) {
		c.seed(tasks.CrawlFetch{URL: "http://a.test/1", Start: 1}, asynq.MaxRetry(100))
		time.Sleep(10 * time.Second)
		down.Store(false)
		if p := c.wait(); p.Fetched != 1 {
			t.Errorf("%+v, want 1 fetched", p.Counts)
		}
		down.Store(true)
		if err := c.frontier.KeepRobots(c.t.Context(), "http://a.test", 200, nil, 25*time.Hour); err != nil {
			t.Fatal(err)
		}
		c.seed(tasks.CrawlFetch{URL: "http://a.test/2", Start: 2})
		if p := c.wait(); p.Fetched != 1 {
			t.Errorf("with a copy of robots.txt: %+v, want 1 fetched", p.Counts)
		}
	})
}
