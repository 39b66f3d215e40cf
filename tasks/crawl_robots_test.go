package tasks_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/tasks"
	"github.com/headgate/headgate/throttle"
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
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			hosts := map[string]http.HandlerFunc{"a.test": robotsAt(tt.answer), "b.test": robotsAt(text(nothing))}
			crawl(t, hosts, func(c *crawling) {
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

// A robots.txt with many wildcards is not held against all links of a page at once. The other links
// get jobs, and these do not request what the file disallows.
func TestCrawl_ManyWildcards_LinksAskLater(t *testing.T) {
	const links, disallowed = 40, 13 // those with the digit 1
	rule := "Disallow: /" + strings.Repeat("*a", 900) + "*%d\n"
	robots := "User-agent: *\nAllow: /$\n"
	for i := range 270 {
		robots += fmt.Sprintf(rule, i+links)
	}
	robots += fmt.Sprintf(rule, 1)
	var to []string
	for i := range links {
		to = append(to, "/"+strings.Repeat("a", 1000)+fmt.Sprint(i))
	}
	crawl(t, map[string]http.HandlerFunc{"a.test": pages(robots, map[string][]string{"/": to})}, func(c *crawling) {
		id := c.seed(tasks.CrawlFetch{URL: "http://a.test/", Depth: 1})
		p := c.wait()
		// About 25 links take the steps of a page. The last disallowed one is /aa…31.
		if got, want := c.result(id), fmt.Sprintf(`"new":%d`, links-disallowed+1); !strings.Contains(got, want) {
			t.Errorf("result %s, want %s", got, want)
		}
		if p.Missing != links-disallowed || p.LeftOut.Disallowed != disallowed || len(c.web.requests()) != 2+p.Missing {
			t.Errorf("%+v, %d requests; want %d disallowed", p, len(c.web.requests()), disallowed)
		}
	})
}

// Pages whose robots.txt answers 503 or 429, or not at all, wait for hours without an attempt:
// one job asks now and then, and when the host is up again all are fetched.
func TestCrawl_RobotsUnavailable_PagesWait(t *testing.T) {
	for _, status := range []int{429, 503, 0} {
		var up atomic.Bool
		host := func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/robots.txt") && !up.Load() {
				if status == 0 {
					panic(http.ErrAbortHandler) // no answer
				}
				w.WriteHeader(status)
			}
		}
		crawl(t, map[string]http.HandlerFunc{"a.test": host}, func(c *crawling) {
			for n := range 5 {
				c.seed(tasks.CrawlFetch{URL: fmt.Sprintf("http://a.test/%d", n), Start: 1}, asynq.MaxRetry(0))
			}
			time.Sleep(5 * time.Minute)
			queue, err := c.tasks.GetQueueInfo("default")
			if err != nil || queue.Archived > 0 || queue.Failed > 0 || queue.Active > 0 {
				t.Errorf("status %d: %+v, %v; want all to wait without a failure", status, queue, err)
			}
			if n := c.web.requests()["http://a.test/robots.txt"]; status == 503 && n != 4 {
				t.Errorf("robots.txt was asked for %d times, want at 0, 30 s, 1.5 and 3.5 min", n)
			}
			up.Store(true)
			if p := c.wait(); p.Fetched != 5 {
				t.Errorf("status %d: %+v, want 5 fetched", status, p.Counts)
			}
			c.wantIntervals(nil)
		})
	}
}

// After half a day pages of a host without a robots.txt are archived, so that the crawl ends.
func TestCrawl_RobotsUnavailable_EndsAfterHours(t *testing.T) {
	down := robotsAt(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) })
	crawl(t, map[string]http.HandlerFunc{"a.test": down}, func(c *crawling) {
		since := time.Now().Add(-12 * time.Hour)
		c.rdb.HSet(c.t.Context(), "hg:{default}:robots:http://a.test", "failing", since.UnixMilli())
		id := c.seed(tasks.CrawlFetch{URL: "http://a.test/page"})
		if p := c.wait(); p.Failed != 1 || p.Waiting != 0 {
			t.Errorf("%+v, want 1 failed", p.Counts)
		}
		want := "archived: since " + since.UTC().Format(time.RFC3339) + " robots.txt is not available, so the page is not fetched: http://a.test/robots.txt "
		if got := c.result(id); !strings.HasPrefix(got, want) {
			t.Errorf("job %s, want %s", got, want)
		}
	})
}

// A robots.txt that answers 503 or 429 with a Retry-After is not asked for again before that
// time, and meanwhile nothing else of its host is.
func TestCrawl_RobotsRetryAfter_BlocksHost(t *testing.T) {
	for _, status := range []int{429, 503} {
		var up atomic.Bool
		host := robotsAt(func(w http.ResponseWriter, _ *http.Request) {
			if !up.Swap(true) {
				w.Header().Set("Retry-After", "120")
				w.WriteHeader(status)
			}
		})
		crawl(t, map[string]http.HandlerFunc{"a.test": host, "a.test:81": host}, func(c *crawling) {
			c.seed(tasks.CrawlFetch{URL: "http://a.test/1", Start: 1}, asynq.MaxRetry(0))
			time.Sleep(2 * time.Second)
			c.seed(tasks.CrawlFetch{URL: "http://a.test:81/1", Start: 1}, asynq.MaxRetry(0))
			if p := c.wait(); p.Fetched != 2 {
				t.Errorf("status %d: %+v, want 2 fetched", status, p.Counts)
			}
			if first, second := c.web.asked[0], c.web.asked[1]; second.at.Sub(first.at) < 2*time.Minute {
				t.Errorf("status %d: %s was asked for %s after the 503 or 429, want 2 min", status, second.url, second.at.Sub(first.at))
			}
		}, new(tasks.Feedback).Middleware)
	}
}

// A Crawl-delay keeps all requests to its host apart, whatever the limit of the host lets
// through, and changes no limit.
func TestCrawl_CrawlDelay(t *testing.T) {
	const delay = 10 * time.Second
	for name, override := range map[string]throttle.Override{
		"fast": {Rate: throttle.PerSecond(50)}, "bursts": {Capacity: 10}, "slow": {Rate: throttle.Every(15 * time.Second)},
	} {
		around := new(tasks.Feedback).Middleware
		host := pages("User-agent: *\nCrawl-delay: 10\n", map[string][]string{"/0": {"/1", "/2", "/3"}, "/1": {}, "/2": {}, "/3": {}})
		moved := robotsAt(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://a.test/robots.txt", http.StatusFound)
		})
		crawl(t, map[string]http.HandlerFunc{"a.test": host, "b.test": moved}, func(c *crawling) {
			if err := c.limiter.SetKey(c.t.Context(), "host", "a.test", override); err != nil {
				t.Fatal(err)
			}
			c.seed(tasks.CrawlFetch{URL: "http://a.test/0", Depth: 1, Start: 1}, asynq.MaxRetry(0))
			if p := c.wait(); p.Fetched != 4 {
				t.Errorf("%s: %+v, want 4 fetched", name, p.Counts)
			}
			least := max(delay, override.Rate.Per) - time.Millisecond
			for i, r := range c.web.asked[1:] {
				if apart := r.at.Sub(c.web.asked[i].at); apart < least || apart > least+2*time.Second {
					t.Errorf("%s: %s came %s after the one before, want %s", name, r.url, apart, least)
				}
			}
			if _, state, err := c.limiter.Internals().Key(c.t.Context(), "host", "a.test"); err != nil || state.Override != override {
				t.Errorf("%s: the host counts by %v, %v; want %v", name, state.Override, err, override)
			}
		}, around)
		// and with a robots.txt that is on another host
		crawl(t, map[string]http.HandlerFunc{"a.test": host, "b.test": moved}, func(c *crawling) {
			for i := range 3 {
				c.seed(tasks.CrawlFetch{URL: fmt.Sprintf("http://b.test/%d", i), Start: 1}, asynq.MaxRetry(0))
			}
			c.wait()
			var last time.Time
			for _, r := range c.web.asked {
				if r.host == "b.test" && !strings.HasSuffix(r.url, "/robots.txt") {
					if r.at.Sub(last) < delay-time.Millisecond {
						t.Errorf("%s came %s after the one before, want %s", r.url, r.at.Sub(last), delay)
					}
					last = r.at
				}
			}
		}, around)
	}
}

// TestCrawl_NoLimitByHost: without a limit with the host in its key, the handler itself asks a host
// once a second, or at its Rate.
func TestCrawl_NoLimitByHost(t *testing.T) {
	for _, test := range []struct {
		rate  throttle.Rate
		rule  scheduler.Rule
		apart time.Duration
	}{
		{throttle.Rate{}, scheduler.Rule{}, time.Second},
		{throttle.Rate{}, scheduler.Rule{Needs: []throttle.Need{{Limit: "host", Key: "another.example"}}}, time.Second},
		{throttle.Rate{}, scheduler.Rule{Needs: []throttle.Need{{Limit: "host", Key: "extra.test"}}}, time.Second}, // contains a.test
		{throttle.Every(5 * time.Second), scheduler.Rule{}, 5 * time.Second},
	} {
		links := map[string][]string{"/0": {}}
		for i := range 12 {
			links["/0"] = append(links["/0"], fmt.Sprint("/page", i))
			links[fmt.Sprint("/page", i)] = nil
		}
		crawlWith(t, map[string]http.HandlerFunc{"a.test": pages("", links)}, func(string) scheduler.Rule { return test.rule }, func(c *crawling) {
			c.handler.Rate = test.rate
			if err := c.limiter.SetKey(c.t.Context(), "host", "extra.test", throttle.Override{Rate: throttle.PerSecond(100)}); err != nil {
				c.t.Fatal(err)
			}
			c.seed(tasks.CrawlFetch{URL: "http://a.test/0", Depth: 1})
			time.Sleep(2 * time.Minute)
			var last time.Time
			pages := 0
			c.web.mu.Lock()
			defer c.web.mu.Unlock()
			for _, r := range c.web.asked {
				if r.url == "http://a.test/robots.txt" {
					continue
				}
				if apart := r.at.Sub(last); apart < test.apart-time.Millisecond {
					t.Errorf("%+v: %s comes %s after the request before, want %s", test.rule, r.url, apart, test.apart)
				}
				last = r.at
				pages++
			}
			if pages != 13 {
				t.Errorf("%+v: %d pages were requested, want 13", test.rule, pages)
			}
		})
	}
}
