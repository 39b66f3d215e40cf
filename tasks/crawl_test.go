package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/frontier"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/tasks"
)

// A seed joins the crawl in progress, and begins it again when nothing waits.
func TestCrawl_Seed_JoinsOrBeginsAgain(t *testing.T) {
	chain := map[string][]string{}
	for i := range 10 {
		chain[fmt.Sprintf("/%d", i)] = []string{fmt.Sprintf("/%d", i+1)}
	}
	chain["/other"] = nil
	crawl(t, map[string]http.HandlerFunc{"a.test": pages("", chain)}, func(c *crawling) {
		c.seed(tasks.CrawlFetch{URL: "http://a.test/0", Depth: 4, Start: 1})
		time.Sleep(4 * time.Second)
		joined := c.seed(tasks.CrawlFetch{URL: "http://a.test/other", Start: 2})
		again := c.seed(tasks.CrawlFetch{URL: "http://a.test/0", Start: 2})
		if p := c.wait(); p.Found != 6 || p.Fetched != 6 {
			t.Errorf("joined: %+v, want 6 pages", p)
		}
		if got := c.result(joined) + c.result(again); !strings.Contains(got, `"fetched"`) || !strings.Contains(got, `"seen"`) {
			t.Errorf("results of a new URL and of a URL that the crawl has fetched: %s", got)
		}
		c.seed(tasks.CrawlFetch{URL: "http://a.test/0", Depth: 1, Start: 3})
		if p := c.wait(); p.Found != 2 || p.LeftOut.TooDeep != 1 || c.web.requests()["http://a.test/0"] != 2 {
			t.Errorf("again: %+v, want 2 pages and 1 too deep", p.Counts)
		}
	})
}

// If a crawl starts again while a page is fetched, the page's links get no jobs: each would cost a permit
// of the new crawl.
func TestCrawl_StartedAgain_OldPageEnqueuesNothing(t *testing.T) {
	site := pages("", map[string][]string{"/": {"/1", "/2", "/3"}, "/new": nil})
	hosts := map[string]http.HandlerFunc{"a.test": func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			time.Sleep(10 * time.Second)
		}
		site(w, r)
	}}
	var old atomic.Int32 // jobs of the crawl that is over, from other pages
	count := func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			if text := string(task.Payload()); strings.Contains(text, `"start":1,`) && strings.Contains(text, `"from"`) {
				old.Add(1)
			}
			return next.ProcessTask(ctx, task)
		})
	}
	crawl(t, hosts, func(c *crawling) {
		c.seed(tasks.CrawlFetch{URL: "http://a.test/", Depth: 1, Start: 1})
		time.Sleep(5 * time.Second)
		if err := c.frontier.Begin(c.t.Context(), frontier.Crawl{Name: "it", Start: 2}); err != nil {
			t.Fatal(err)
		}
		c.seed(tasks.CrawlFetch{URL: "http://a.test/new", Start: 2})
		if p := c.wait(); p.Fetched != 1 || p.Found != 1 || old.Load() > 0 {
			t.Errorf("%+v, and %d jobs of the crawl before; want 1 page alone", p, old.Load())
		}
	}, count)
}

// A job that dies between the page and the last of its links enqueues all links when it runs again.
func TestCrawl_CrashBetweenLinks_FetchesAll(t *testing.T) {
	var to []string
	links := map[string][]string{}
	for i := range 20 {
		to = append(to, fmt.Sprintf("/%d", i))
		links[to[i]] = nil
	}
	links["/"] = to
	for _, after := range []int{0, 1, 10, 20} {
		crawl(t, map[string]http.HandlerFunc{"a.test": pages("", links)}, func(c *crawling) {
			c.handler.Client = &dying{Client: c.client, after: after}
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

// dying enqueues so many jobs, and then returns an error once, although the job is enqueued.
type dying struct {
	*scheduler.Client
	after int
	died  atomic.Bool
}

func (d *dying) EnqueueAll(ctx context.Context, tasks ...*asynq.Task) []scheduler.EnqueueResult {
	if len(tasks) <= d.after || d.died.Swap(true) {
		return d.Client.EnqueueAll(ctx, tasks...)
	}
	added := d.Client.EnqueueAll(ctx, tasks[:d.after+1]...)
	added[d.after].Err = errors.New("the worker died")
	return append(added, make([]scheduler.EnqueueResult, len(tasks)-len(added))...)
}

// A page whose job is archived counts as failed, and a job that is run again by hand fetches it.
func TestCrawl_FailedPage_CanRunAgain(t *testing.T) {
	for name, noDisk := range map[string]bool{"a server error": false, "no disk for the page": true} {
		t.Run(name, func(t *testing.T) {
			var up atomic.Bool
			dir := filepath.Join(t.TempDir(), "gone")
			crawl(t, map[string]http.HandlerFunc{"a.test": func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/" && !noDisk && !up.Load() {
					w.WriteHeader(http.StatusBadGateway)
				}
			}}, func(c *crawling) {
				c.handler.SaveDir = dir
				id := c.seed(tasks.CrawlFetch{URL: "http://a.test/"})
				if p := c.wait(); p.Failed != 1 || p.Waiting != 0 {
					t.Errorf("%+v, want 1 failed", p.Counts)
				}
				if n := c.web.requests()["http://a.test/"]; n != 4 {
					t.Errorf("asked for %d times, want 1 and 3 retries", n)
				}
				up.Store(true)
				if err := errors.Join(os.Mkdir(dir, 0o700), c.tasks.RunTask("default", id)); err != nil {
					t.Fatal(err)
				}
				if p := c.wait(); p.Failed != 0 || p.Fetched != 1 {
					t.Errorf("%+v, want 1 fetched", p.Counts)
				}
				if saved, _ := filepath.Glob(dir + "/*/[0-9a-f]*[0-9a-f]"); len(saved) != 1 || !strings.Contains(c.result(id), `"saved":"it/`+filepath.Base(saved[0])) {
					t.Errorf("saved are %q: %s", saved, c.result(id))
				}
			})
		})
	}
}

// X-Robots-Tag is for pages of all types. A tag that names another crawler does not count.
func TestCrawl_NoIndex_IsNotSaved(t *testing.T) {
	for _, media := range []string{"text/html", "application/pdf", "text/xml"} {
		for tag, kept := range map[string]bool{"noindex": false, "other: noindex": true} {
			site := func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", media)
				w.Header().Set("X-Robots-Tag", tag)
				fmt.Fprint(w, "<urlset><url><loc>/p</loc></url></urlset>")
			}
			dir := t.TempDir()
			crawl(t, map[string]http.HandlerFunc{"a.test": site}, func(c *crawling) {
				c.handler.SaveDir = dir
				id := c.seed(tasks.CrawlFetch{URL: "http://a.test/page"})
				c.wait()
				saved, _ := filepath.Glob(dir + "/*/[0-9a-f]*[0-9a-f]")
				if result := c.result(id); !strings.Contains(result, `"fetched"`) || len(saved) == 1 != kept {
					t.Errorf("%s, %s: %s, saved %q; want it kept: %v", media, tag, result, saved, kept)
				}
			})
		}
	}
}

// A page whose job is dropped counts as failed. If it counted as waiting, the crawl would never start
// again.
func TestCrawl_DroppedJob_CountsAsFailed(t *testing.T) {
	drop := func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			if strings.Contains(string(task.Payload()), "http://a.test/slow\"") {
				return asynq.RevokeTask
			}
			return next.ProcessTask(ctx, task)
		})
	}
	hosts := map[string]http.HandlerFunc{"a.test": pages("", map[string][]string{"/": {"/slow"}})}
	crawl(t, hosts, func(c *crawling) {
		for n := range 2 {
			c.seed(tasks.CrawlFetch{URL: "http://a.test/", Depth: 1})
			if p := c.wait(); p.Fetched != 1 || p.Failed != 1 || p.Waiting != 0 || c.web.requests()["http://a.test/"] != n+1 {
				t.Errorf("%+v, want 1 fetched and 1 failed each time", p)
			}
		}
	}, drop)
}
