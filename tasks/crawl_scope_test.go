package tasks_test

import (
	"compress/gzip"
	"fmt"
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

// Links are followed if the patterns say so, also to a page that looks like a trap. What a user
// enqueues is fetched all the same.
func TestLinksThatAreFollowed(t *testing.T) {
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
		all := archived(t, files[0])
		for _, want := range []string{"HTTP/1.1 301 Moved Permanently", "Location: /new", "HTTP/1.1 404 Not Found", "WARC-Target-URI: http://a.test/old", "WARC-Target-URI: http://a.test/gone", "WARC-Target-URI: http://a.test/new"} {
			if !strings.Contains(all, want) {
				t.Errorf("the archive has no %q", want)
			}
		}
	})
}

// archived is what a file of the archive has, unpacked.
func archived(t *testing.T, name string) string {
	t.Helper()
	file, err := os.Open(name)
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
	return string(all)
}

// What an earlier run has archived is referred to, whether the server says that it has not
// changed or sends it again; what has changed, or was not archived, is archived.
func TestWhatIsArchivedIsReferredTo(t *testing.T) {
	const between = 5 * time.Minute
	begun := time.Time{}
	hosts := map[string]http.HandlerFunc{"a.test": func(w http.ResponseWriter, r *http.Request) {
		run := int(time.Since(begun) / between)
		w.Header().Set("Content-Type", "text/html")
		switch r.URL.Path {
		case "/":
			fmt.Fprint(w, "<a href=tagged><a href=changes><a href=hidden>")
		case "/tagged":
			w.Header().Set("ETag", `"x"`)
			if r.Header.Get("If-None-Match") != "" {
				w.WriteHeader(http.StatusNotModified)
				return
			}
			fmt.Fprint(w, "tagged")
		case "/changes":
			fmt.Fprint(w, "change ", run/2)
		case "/hidden":
			if run == 1 {
				w.Header().Set("X-Robots-Tag", "noindex")
			}
			fmt.Fprint(w, "hidden")
		default:
			http.NotFound(w, r)
		}
	}}
	dir := t.TempDir()
	crawl(t, hosts, nil, func(c *crawling) {
		c.handler.Archive = &warc.Folder{Dir: dir}
		begun = time.Now()
		for run := range 4 {
			c.seed(tasks.CrawlFetch{URL: "http://a.test/", Depth: 5, Run: fmt.Sprint(run)})
			c.wait()
			time.Sleep(between - time.Since(begun)%between + time.Second)
		}
	})
	files, err := filepath.Glob(filepath.Join(dir, "*.warc.gz"))
	if err != nil || len(files) != 4 {
		t.Fatalf("the archive has %q, %v; want a file for each run", files, err)
	}
	kinds, ids := map[string]string{}, map[string]string{}
	for _, name := range files {
		for record := range strings.SplitSeq(archived(t, name), "WARC/1.1\r\n") {
			field := func(name string) string {
				_, rest, _ := strings.Cut(record, "\r\n"+name+": ")
				value, _, _ := strings.Cut(rest, "\r\n")
				return value
			}
			record = "\r\n" + record
			switch url := field("WARC-Target-URI"); field("WARC-Type") {
			case "response":
				kinds[url] += "+"
				ids[url] = field("WARC-Record-ID")
			case "revisit":
				kinds[url] += strings.TrimPrefix(field("WARC-Profile"), "http://netpreserve.org/warc/1.1/revisit/")[:1]
				if field("WARC-Refers-To") != ids[url] {
					t.Errorf("%s refers to %s, want %s", url, field("WARC-Refers-To"), ids[url])
				}
			}
		}
	}
	for url, want := range map[string]string{
		"http://a.test/": "+iii", "http://a.test/tagged": "+sss", "http://a.test/changes": "+i+i", "http://a.test/hidden": "++i",
	} {
		if kinds[url] != want {
			t.Errorf("%s: %s, want %s", url, kinds[url], want)
		}
	}
}
