package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/tasks"
)

// A page that is found again by a shorter way is not fetched again, but its
// links are followed further.
func TestShorterWayFoundLater(t *testing.T) {
	links := map[string][]string{
		"/": {"/a", "http://slow.test/short"}, "/a": {"/b"}, "/b": {"/c"}, "/c": {"/d"}, "/d": {"/e"}, "/e": nil,
	}
	hosts := map[string]http.HandlerFunc{
		"a.test":    pages("", links),
		"slow.test": pages("", map[string][]string{"/short": {"http://a.test/c"}}),
	}
	crawl(t, hosts, map[string]time.Duration{"slow.test": 30 * time.Second}, func(c *crawling) {
		c.seed(tasks.CrawlFetch{URL: "http://a.test/", Depth: 3, Allow: []string{"*.test", "a.test"}})
		p := c.wait()
		c.wantOnce("http://a.test/", "http://a.test/a", "http://a.test/b", "http://a.test/c", "http://a.test/d", "http://slow.test/short")
		if p.Fetched != 6 || p.Waiting != 0 {
			t.Errorf("progress %+v, want 6 fetched", p.Counts)
		}
	})
}

// A crawl of the same name asks for what has changed, and follows the links of
// what has not as they were.
func TestRecrawl(t *testing.T) {
	var version atomic.Int32
	hosts := map[string]http.HandlerFunc{"a.test": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		etag := `"same"`
		switch r.URL.Path {
		case "/robots.txt":
			http.NotFound(w, r)
			return
		case "/news":
			etag = fmt.Sprintf(`"%d"`, version.Load())
		}
		w.Header().Set("ETag", etag)
		if r.Header.Get("If-None-Match") == etag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		if r.URL.Path == "/" {
			fmt.Fprint(w, `<a href="/news">`)
		}
		if r.URL.Path == "/news" {
			fmt.Fprintf(w, `<a href="/new-%d">`, version.Load())
		}
	}}
	crawl(t, hosts, nil, func(c *crawling) {
		seed := tasks.CrawlFetch{URL: "http://a.test/", Depth: 5, Run: "1"}
		c.seed(seed)
		if p := c.wait(); p.Fetched != 3 || p.Unchanged != 0 {
			t.Errorf("first: %+v, want 3 fetched", p.Counts)
		}
		version.Store(1)
		seed.Run = "2"
		id := c.seed(seed)
		if p := c.wait(); p.Run != "2" || p.Fetched != 2 || p.Unchanged != 1 {
			t.Errorf("second: %+v, want 2 fetched and 1 unchanged", p)
		}
		if got := c.result(id); !strings.Contains(got, `"outcome":"unchanged","status":304`) {
			t.Errorf("result of the page that has not changed: %s", got)
		}
		if n := c.web.requests()["http://a.test/robots.txt"]; n != 1 {
			t.Errorf("robots.txt was asked for %d times in a day, want once", n)
		}
	})
}

// A seed joins the run in progress, or begins it anew.
func TestRuns(t *testing.T) {
	chain := map[string][]string{}
	for i := range 10 {
		chain[fmt.Sprintf("/%d", i)] = []string{fmt.Sprintf("/%d", i+1)}
	}
	chain["/other"] = nil
	crawl(t, map[string]http.HandlerFunc{"a.test": pages("", chain)}, nil, func(c *crawling) {
		c.seed(tasks.CrawlFetch{URL: "http://a.test/0", Depth: 4, Run: "1"})
		time.Sleep(4 * time.Second)
		joined := c.seed(tasks.CrawlFetch{URL: "http://a.test/other", Run: "2"})
		again := c.seed(tasks.CrawlFetch{URL: "http://a.test/0", Run: "2"})
		if p := c.wait(); p.Run != "1" || p.Found != 6 || p.Fetched != 6 {
			t.Errorf("joined: %+v, want 6 pages of run 1", p)
		}
		if got := c.result(joined); !strings.Contains(got, `"fetched"`) {
			t.Errorf("a new URL of a run in progress: %s", got)
		}
		if got := c.result(again); !strings.Contains(got, `"seen"`) {
			t.Errorf("a URL that the run has: %s", got)
		}
		c.seed(tasks.CrawlFetch{URL: "http://a.test/0", Depth: 9, Run: "3"})
		time.Sleep(3 * time.Second)
		c.seed(tasks.CrawlFetch{URL: "http://a.test/other", Run: "4", Anew: true})
		if p := c.wait(); p.Run != "4" || p.Found != 1 {
			t.Errorf("anew: %+v, want 1 page of run 4", p)
		}
	})
}

// A page that is on its way when another run begins anew leads nowhere: each job of it
// would cost a permit of the new run's.
func TestAnewMeanwhile(t *testing.T) {
	site := pages("", map[string][]string{"/": {"/1", "/2", "/3"}, "/new": nil})
	hosts := map[string]http.HandlerFunc{"a.test": func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			time.Sleep(10 * time.Second)
		}
		site(w, r)
	}}
	var old atomic.Int32 // jobs of the run that is over, from other pages
	count := func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			if text := string(task.Payload()); strings.Contains(text, `"run":"1"`) && strings.Contains(text, `"from"`) {
				old.Add(1)
			}
			return next.ProcessTask(ctx, task)
		})
	}
	crawlWith(t, hosts, nil, count, func(c *crawling) {
		c.seed(tasks.CrawlFetch{URL: "http://a.test/", Depth: 1, Run: "1"})
		time.Sleep(5 * time.Second)
		c.seed(tasks.CrawlFetch{URL: "http://a.test/new", Run: "2", Anew: true})
		if p := c.wait(); p.Run != "2" || p.Fetched != 1 || p.Found != 1 || old.Load() > 0 {
			t.Errorf("%+v, and %d jobs of the run before; want 1 page of run 2 alone", p, old.Load())
		}
	})
}

// What dies between the page and the last of its links does them again.
func TestCrashBetweenLinks(t *testing.T) {
	var to []string
	links := map[string][]string{}
	for i := range 20 {
		to = append(to, fmt.Sprintf("/%d", i))
		links[to[i]] = nil
	}
	links["/"] = to
	for _, after := range []int{0, 1, 10, 20} {
		crawl(t, map[string]http.HandlerFunc{"a.test": pages("", links)}, nil, func(c *crawling) {
			c.handler.Client = &dying{Client: c.client.Client, after: int32(after)}
			c.seed(tasks.CrawlFetch{URL: "http://a.test/", Depth: 1})
			if p := c.wait(); p.Fetched != 21 || p.Found != 21 {
				t.Errorf("after %d: %+v, want 21 fetched", after, p.Counts)
			}
			for url, n := range c.web.requests() {
				if n > 1 && url != "http://a.test/" {
					t.Errorf("after %d: %s was asked for %d times", after, url, n)
				}
			}
		})
	}
}

// dying enqueues so many jobs, and then fails once: the job is enqueued, and who
// asked for that does not live to know.
type dying struct {
	*asynq.Client
	after int32
	done  atomic.Int32
}

func (d *dying) EnqueueContext(ctx context.Context, task *asynq.Task, opts ...asynq.Option) (*asynq.TaskInfo, error) {
	info, err := d.Client.EnqueueContext(ctx, task, opts...)
	if d.done.Add(1) == d.after+1 {
		return nil, errors.New("the worker died")
	}
	return info, err
}

// A page whose job is archived counts as failed, and a job that is tried again
// by hand fetches it.
func TestFailedPage(t *testing.T) {
	var up atomic.Bool
	crawl(t, map[string]http.HandlerFunc{"a.test": func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" && !up.Load() {
			w.WriteHeader(http.StatusBadGateway)
		}
	}}, nil, func(c *crawling) {
		id := c.seed(tasks.CrawlFetch{URL: "http://a.test/"})
		if p := c.wait(); p.Failed != 1 || p.Waiting != 0 {
			t.Errorf("%+v, want 1 failed", p.Counts)
		}
		if n := c.web.requests()["http://a.test/"]; n != 4 {
			t.Errorf("asked for %d times, want 1 and 3 retries", n)
		}
		up.Store(true)
		if err := c.tasks.RunTask("default", id); err != nil {
			t.Fatal(err)
		}
		if p := c.wait(); p.Failed != 0 || p.Fetched != 1 {
			t.Errorf("%+v, want 1 fetched", p.Counts)
		}
	})
}

// A page whose job is dropped, as a rule can have it for one that would wait too long,
// counts as failed: did it go on to wait, the next run would never begin.
func TestDroppedPage(t *testing.T) {
	drop := func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			if strings.Contains(string(task.Payload()), "http://a.test/slow\"") {
				return asynq.RevokeTask
			}
			return next.ProcessTask(ctx, task)
		})
	}
	hosts := map[string]http.HandlerFunc{"a.test": pages("", map[string][]string{"/": {"/slow"}})}
	crawlWith(t, hosts, nil, drop, func(c *crawling) {
		for _, run := range []string{"1", "2"} {
			c.seed(tasks.CrawlFetch{URL: "http://a.test/", Depth: 1, Run: run})
			if p := c.wait(); p.Run != run || p.Fetched != 1 || p.Failed != 1 || p.Waiting != 0 {
				t.Errorf("%+v, want run %s with 1 fetched and 1 failed", p, run)
			}
		}
	})
}
