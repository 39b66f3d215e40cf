package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/canonical"
	"github.com/headgate/headgate/internal/frontier"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/tasks"
	"github.com/headgate/headgate/throttle"
)

// web is all servers of a test, in memory, and a record of what they were asked.
type web struct {
	mu    sync.Mutex
	hosts map[string]http.HandlerFunc
	asked []request
}

type request struct {
	url     string
	host    string
	at      time.Time
	head    http.Header
	limited bool // answered with 429
}

// RoundTrip implements http.RoundTripper.
func (w *web) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	n := len(w.asked)
	w.asked = append(w.asked, request{r.URL.String(), r.URL.Hostname(), time.Now(), r.Header.Clone(), false})
	handle := w.hosts[r.URL.Host]
	w.mu.Unlock()
	if handle == nil {
		return nil, errors.New("no such host")
	}
	rec := httptest.NewRecorder()
	if !answers(handle, rec, r) {
		return nil, errors.New("connection reset")
	}
	resp := rec.Result()
	resp.Request = r
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked[n].limited = resp.StatusCode == http.StatusTooManyRequests
	return resp, nil
}

// answers reports whether a handler answers, and does not panic with http.ErrAbortHandler.
func answers(handle http.HandlerFunc, w http.ResponseWriter, r *http.Request) (ok bool) {
	defer func() {
		if why := recover(); why != nil && why != any(http.ErrAbortHandler) {
			panic(why)
		}
	}()
	handle(w, r)
	return true
}

// requests counts the requests that got no 429, by URL.
func (w *web) requests() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := map[string]int{}
	for _, r := range w.asked {
		if !r.limited {
			n[r.url]++
		}
	}
	return n
}

// pages serves HTML pages by path, each with its links, and robots.txt as text.
func pages(robots string, links map[string][]string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		to, ok := links[r.URL.Path]
		switch {
		case r.URL.Path == "/robots.txt" && robots != "":
			fmt.Fprint(w, robots)
		case !ok:
			http.NotFound(w, r)
		default:
			w.Header().Set("Content-Type", "text/html")
			for _, url := range to {
				fmt.Fprintf(w, "<a href=%q>x</a>\n", url)
			}
		}
	}
}

// crawling is a worker that crawls a web.
type crawling struct {
	t        *testing.T
	web      *web
	rdb      redis.UniversalClient
	client   *scheduler.Client
	frontier *frontier.Frontier
	handler  *tasks.CrawlHandler
	tasks    *asynq.Inspector
	limiter  *waitdb.DB
}

// crawl runs f with a worker in a bubble whose clock jumps. Each host has a limit of a request a second.
func crawl(t *testing.T, hosts map[string]http.HandlerFunc, f func(c *crawling), around ...asynq.MiddlewareFunc) {
	t.Helper()
	crawlWith(t, hosts, func(host string) scheduler.Rule {
		return scheduler.Rule{Needs: []throttle.Need{{Limit: "host", Key: host}}}
	}, f, around...)
}

// crawlWith is crawl with the rule of the pages of a host.
func crawlWith(t *testing.T, hosts map[string]http.HandlerFunc, rule func(host string) scheduler.Rule, f func(c *crawling), around ...asynq.MiddlewareFunc) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Mini(t)
		log := slog.New(slog.DiscardHandler)
		c := &crawling{
			t: t, web: &web{hosts: hosts}, rdb: rdb, client: scheduler.NewClient(rdb), frontier: frontier.New(rdb, ""),
			tasks:   asynq.NewInspectorFromRedisClient(rdb),
			limiter: waitdb.New(throttle.New(rdb, throttle.Options{Logger: log})),
		}
		c.handler = &tasks.CrawlHandler{HTTP: &tasks.HTTPHandler{Transport: c.web}, Redis: rdb, Client: c.client}
		rules := scheduler.Rules{
			Limits: []throttle.Limit{{Name: "host", Kind: throttle.Funnel, Rate: throttle.Every(time.Second)}},
			RuleFor: func(_ context.Context, task *asynq.Task) (scheduler.Rule, error) {
				var page tasks.CrawlFetch
				err := page.UnmarshalJSON(task.Payload())
				return rule(canonical.HostOf(page.URL)), err
			},
		}
		server, err := scheduler.NewServer(rdb, rules, asynq.Config{
			Concurrency: 10, LogLevel: asynq.FatalLevel, TaskCheckInterval: 30 * time.Millisecond,
			RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Second },
			ErrorHandler: asynq.ErrorHandlerFunc(func(ctx context.Context, task *asynq.Task, err error) {
				if err := c.handler.Failed(ctx, task, err); err != nil {
					t.Errorf("Failed: %v", err)
				}
			}),
		}, scheduler.WithLimiter(c.limiter.Limiter), scheduler.WithLogger(log))
		if err != nil {
			t.Fatal(err)
		}
		mux := asynq.NewServeMux()
		mux.Use(around...)
		mux.Handle(tasks.TypeCrawlFetch, c.handler)
		if err := server.Start(mux); err != nil {
			t.Fatal(err)
		}
		f(c)
		server.Shutdown()
	})
}

// seed enqueues the first page of a crawl.
func (c *crawling) seed(page tasks.CrawlFetch, opts ...asynq.Option) string {
	c.t.Helper()
	if page.Crawl == "" {
		page.Crawl = "it"
	}
	task, err := tasks.NewCrawlFetch(page, append([]asynq.Option{asynq.MaxRetry(3), asynq.Retention(24 * time.Hour)}, opts...)...)
	if err != nil {
		c.t.Fatal(err)
	}
	info, err := c.client.Enqueue(task)
	if err != nil {
		c.t.Fatal(err)
	}
	return info.ID
}

// wait lets the crawl run until nothing of it waits, for an hour at most, and
// returns how far it has come.
func (c *crawling) wait() frontier.Progress {
	c.t.Helper()
	for range 3600 {
		time.Sleep(time.Second)
		queue, err := c.tasks.GetQueueInfo("default")
		if err == nil && queue.Pending+queue.Active+queue.Scheduled+queue.Retry == 0 {
			break
		}
	}
	p, ok, err := c.frontier.Progress(c.t.Context(), "it")
	if err != nil || !ok {
		c.t.Fatalf("progress: %v, %v", ok, err)
	}
	return p
}

// result is that of a job that is done.
func (c *crawling) result(id string) string {
	c.t.Helper()
	info, err := c.tasks.GetTaskInfo("default", id)
	if err != nil {
		c.t.Fatal(err)
	}
	if len(info.Result) == 0 {
		return info.State.String() + ": " + info.LastErr
	}
	return string(info.Result)
}

// wantOnce fails unless each of the URLs was asked for once, and nothing else
// but robots.txt.
func (c *crawling) wantOnce(urls ...string) {
	c.t.Helper()
	got := c.web.requests()
	for _, u := range urls {
		if got[u] != 1 {
			c.t.Errorf("%s was asked for %d times, want once", u, got[u])
		}
		delete(got, u)
	}
	maps.DeleteFunc(got, func(u string, _ int) bool { return strings.HasSuffix(u, "/robots.txt") })
	if len(got) > 0 {
		c.t.Errorf("asked for as well: %v", slices.Sorted(maps.Keys(got)))
	}
}

// rateLimiting answers each nth request with 429, and all others until the wait is over, to the
// microsecond, which is the unit of Redis's clock.
func rateLimiting(next http.HandlerFunc, nth int, wait time.Duration) http.HandlerFunc {
	var n int
	var until time.Time
	return func(w http.ResponseWriter, r *http.Request) {
		if n++; n%nth == 0 && time.Now().After(until) {
			until = time.Now().Add(wait - time.Microsecond)
		}
		if time.Now().Before(until) {
			w.Header().Set("Retry-After", fmt.Sprint(wait.Seconds()))
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		next(w, r)
	}
}

// The five hosts of TestPoliteCrawl, with 60 pages each.
const perHost = 60

// TestPoliteCrawl holds a crawl of 300 pages on 5 hosts against what is promised:
// one slow, one with a sitemap, one that answers 429 now and then, one that
// redirects elsewhere, and all with a robots.txt.
func TestPoliteCrawl(t *testing.T) {
	names := []string{"plain.test", "slow.test", "busy.test", "sitemap.test", "moved.test"}
	hosts := map[string]http.HandlerFunc{}
	var want []string
	for at, host := range names {
		links := map[string][]string{}
		for i := range perHost {
			path := func(n int) string { return fmt.Sprintf("/%d", n) }
			own := []string{"/secret/1", path(i) + "#part"}
			for _, child := range []int{2*i + 1, 2*i + 2} {
				if child < perHost {
					own = append(own, path(child))
				}
			}
			if next := names[(at+1)%len(names)]; i == 0 {
				own = append(own, "http://"+next+"/0", "http://other.test/", "mailto:a@b.test", "http://user:pass@"+next+"/")
			}
			links[path(i)] = own
			want = append(want, "http://"+host+path(i))
		}
		hosts[host] = pages("User-agent: *\nDisallow: /secret/\n", links)
	}
	site := hosts["sitemap.test"]
	hosts["sitemap.test"] = func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/robots.txt":
			fmt.Fprint(w, "Sitemap: http://sitemap.test/map.xml\nUser-agent: *\nDisallow: /secret/\n")
		case "/map.xml":
			fmt.Fprint(w, "<urlset><url><loc>http://sitemap.test/only-there</loc></url></urlset>")
		case "/only-there":
		default:
			site(w, r)
		}
	}
	want = append(want, "http://sitemap.test/map.xml", "http://sitemap.test/only-there")
	moved := hosts["moved.test"]
	hosts["moved.test"] = func(w http.ResponseWriter, r *http.Request) {
		if to, ok := strings.CutPrefix(r.URL.Path, "/from/"); ok {
			http.Redirect(w, r, "http://plain.test/to/"+to, http.StatusFound)
			return
		}
		moved(w, r)
	}
	for i := range 5 {
		want = append(want, fmt.Sprintf("http://moved.test/from/%d", i), fmt.Sprintf("http://plain.test/to/%d", i))
	}
	root := hosts["plain.test"]
	hosts["plain.test"] = func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/to/") {
			return
		}
		root(w, r)
		if r.URL.Path == "/1" {
			for i := range 5 {
				fmt.Fprintf(w, "<a href='http://moved.test/from/%d'>x</a>", i)
			}
		}
	}
	const wait = 3 * time.Second
	hosts["busy.test"] = rateLimiting(hosts["busy.test"], 15, wait)
	intervals := map[string]time.Duration{"slow.test": 2 * time.Second}
	crawl(t, hosts, func(c *crawling) {
		if err := c.limiter.SetKey(c.t.Context(), "host", "slow.test", throttle.Override{Rate: throttle.Every(intervals["slow.test"])}); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		c.seed(tasks.CrawlFetch{URL: "http://plain.test/0", Depth: 20, Allow: names})
		p := c.wait()
		c.wantOnce(want...)
		if p.Waiting != 0 || p.Failed != 0 || p.Missing != 0 || p.Redirected != 5 || p.Fetched != len(want)-5 || p.LeftOut.Disallowed != len(names) {
			t.Errorf("progress %+v, want %d fetched, 5 redirected, 5 disallowed", p.Counts, len(want)-5)
		}
		last := c.wantIntervals(intervals)
		if n := c.wantLeftAlone("busy.test", wait); n != perHost/15 {
			t.Errorf("busy.test limited %d requests, want each 15th of %d", n, perHost)
		}
		bound := time.Duration(perHost+1) * intervals["slow.test"]
		took := last.Sub(begin)
		t.Logf("%d requests on %d hosts took %s, %.3f of the slowest host's %s", len(want), len(names), took, took.Seconds()/bound.Seconds(), bound)
		if took > bound*11/10 {
			t.Errorf("took %s, want at most 1.1 of %s", took, bound)
		}
	}, new(tasks.Feedback).Middleware)
}

// wantIntervals fails if two requests to a host were nearer to each other than
// its limit, and returns when the last was made.
func (c *crawling) wantIntervals(intervals map[string]time.Duration) (last time.Time) {
	c.t.Helper()
	before := map[string]time.Time{}
	for _, r := range c.web.asked {
		r.at = r.at.Truncate(time.Microsecond) // finer no meter counts
		least := intervals[r.host]
		if least == 0 {
			least = time.Second
		}
		if at, ok := before[r.host]; ok && r.at.Sub(at) < least {
			c.t.Errorf("%s came %s after the one before, want at least %s", r.url, r.at.Sub(at), least)
		}
		before[r.host], last = r.at, r.at
	}
	return last
}

// wantLeftAlone fails if a host was called during the wait of a 429, and returns how many 429s
// there were.
func (c *crawling) wantLeftAlone(host string, wait time.Duration) (limited int) {
	c.t.Helper()
	var until time.Time
	for _, r := range c.web.asked {
		if r.host == host && r.at.Before(until) {
			c.t.Errorf("%s was asked for %s too early", r.url, until.Sub(r.at))
		}
		if r.host == host && r.limited {
			limited, until = limited+1, r.at.Add(wait-time.Microsecond)
		}
	}
	return limited
}
