package tasks_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/tasks"
	"github.com/headgate/headgate/tasks/warc"
)

// Links are followed where the patterns say, and into no trap; what somebody enqueued himself
// is fetched all the same.
func TestLinksThatAreFollowed(t *testing.T) {
	links := map[string][]string{
		"/":        {"/docs/a", "/docs/a?print=1", "/blog/b", "/docs/calendar/2099/01", "/docs/up/up/up/"},
		"/docs/a":  {"/docs/moved", "/docs/b"},
		"/docs/b":  nil,
		"/blog/b":  nil,
		"/docs/up": nil,
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
		c.wantOnce("http://a.test/", "http://a.test/docs/a", "http://a.test/docs/b", "http://a.test/docs/moved")
		if p.Found != 4 || p.Redirected != 1 || p.Ended.Before(p.Began) || p.Ended.IsZero() {
			t.Errorf("progress %+v, ended %s", p.Counts, p.Ended)
		}
		if n := len(c.web.requests()); n != 5 {
			t.Errorf("%d requests, want those for 4 pages and robots.txt: %v", n, c.web.requests())
		}
	})
}

// Redirects and what is missing are in the archive, too, and its file is finished a minute
// after the last page.
func TestWhatIsNoPageIsArchived(t *testing.T) {
	site := pages("", map[string][]string{"/": {"/old", "/gone"}, "/new": nil})
	hosts := map[string]http.HandlerFunc{"a.test": func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/old" {
			http.Redirect(w, r, "/new", http.StatusMovedPermanently)
			return
		}
		site(w, r)
	}}
	dir := t.TempDir()
	crawl(t, hosts, nil, func(c *crawling) {
		c.handler.Archive = &warc.Folder{Dir: dir}
		c.seed(tasks.CrawlFetch{URL: "http://a.test/", Depth: 5})
		c.wait()
		time.Sleep(2 * time.Minute)
		files, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil || len(files) != 1 || !strings.HasSuffix(files[0], ".warc.gz") {
			t.Fatalf("the archive has %q, %v; want one file that is finished", files, err)
		}
		file, err := os.Open(files[0])
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		in, err := gzip.NewReader(file)
		if err != nil {
			t.Fatal(err)
		}
		all, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"HTTP/1.1 301 Moved Permanently", "Location: /new", "HTTP/1.1 404 Not Found", "WARC-Target-URI: http://a.test/old", "WARC-Target-URI: http://a.test/gone", "WARC-Target-URI: http://a.test/new"} {
			if !strings.Contains(string(all), want) {
				t.Errorf("the archive has no %q", want)
			}
		}
	})
}
