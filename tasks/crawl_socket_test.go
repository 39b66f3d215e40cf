package tasks

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/frontier"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/scheduler"
)

// noClient enqueues nothing, and says that it is there.
type noClient struct{}

func (noClient) EnqueueContext(context.Context, *asynq.Task, ...asynq.Option) (*asynq.TaskInfo, error) {
	return nil, asynq.ErrTaskIDConflict
}

// crawlPage runs the job of a page until it is put back no more, robots.txt first.
// Within is the time that the page may take.
func crawlPage(ctx context.Context, t *testing.T, h *CrawlHandler, url string, within time.Duration) (CrawlResult, error) {
	t.Helper()
	for {
		task, err := NewCrawlFetch(CrawlFetch{Crawl: "it", Start: 1, URL: url, Depth: 1})
		if err != nil {
			t.Fatal(err)
		}
		j, err := h.job(task)
		if err != nil {
			t.Fatal(err)
		}
		limited, cancel := context.WithTimeout(ctx, within)
		err = j.run(limited)
		cancel()
		if !scheduler.IsPutBack(err) {
			return j.result, err
		}
	}
}

// Each answer of a bad server, over a real connection, gives a clear result, and
// leaves nothing half written.
func TestCrawl_BadServers(t *testing.T) {
	const most = 64 << 10
	write := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
	}
	bytesOf := func(text string) http.HandlerFunc { // the whole answer
		return func(w http.ResponseWriter, _ *http.Request) {
			conn, to, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_, _ = to.WriteString(text)
				_ = to.Flush()
				_ = conn.Close()
			}
		}
	}
	stuck := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	var giveUp context.CancelFunc // ends the job
	fine := write("a page")
	tests := []struct {
		name         string
		robots, page http.HandlerFunc
		within       time.Duration
		outcome      string // of a job that is done
		length       int
		err          string // of one that is not
	}{
		{name: "endless body", page: func(w http.ResponseWriter, _ *http.Request) {
			for err := error(nil); err == nil; {
				_, err = io.WriteString(w, strings.Repeat("x", 1000))
			}
		}, outcome: "fetched", length: most},
		{name: "gzip bomb", page: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			for range 64 {
				_, _ = z.Write(make([]byte, 1<<20))
			}
			_ = z.Close()
		}, outcome: "fetched", length: most},
		{name: "body that stops", page: func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, "half")
			_ = http.NewResponseController(w).Flush()
			stuck(w, r)
		}, within: 300 * time.Millisecond, err: "context deadline exceeded"},
		{name: "no answer", page: stuck, within: 300 * time.Millisecond, err: "context deadline exceeded"},
		{name: "longer than it says", page: bytesOf("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\ntext"), outcome: "fetched", length: 2},
		{name: "shorter than it says", page: bytesOf("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ntext"), err: "its body broke off: unexpected EOF"},
		{name: "no HTTP", page: bytesOf("\xff\xfe\x00garbage\r\n\r\n"), err: "did not answer: "},
		{name: "redirect to itself", page: func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/bad", http.StatusFound) }, outcome: "redirected"},
		{name: "robots.txt of 600 kB", robots: write("User-agent: *\nDisallow: /bad\n" + strings.Repeat("# padding\n", 60_000)), page: fine, outcome: "disallowed"},
		{name: "endless robots.txt", robots: func(w http.ResponseWriter, _ *http.Request) {
			for err := error(nil); err == nil; {
				_, err = io.WriteString(w, strings.Repeat("x", 1000)+"\n")
			}
		}, page: fine, outcome: "fetched", length: 6},
		{name: "robots.txt of garbage", robots: func(w http.ResponseWriter, _ *http.Request) {
			garbage := make([]byte, 500<<10)
			_, _ = rand.NewChaCha8([32]byte{1}).Read(garbage)
			_, _ = w.Write(garbage)
		}, page: fine, outcome: "fetched", length: 6},
		{name: "robots.txt that stops", robots: func(w http.ResponseWriter, r *http.Request) {
			giveUp() // and not when some time is over, which may be before it was asked for
			stuck(w, r)
		}, page: fine, err: "without robots.txt nothing is fetched"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			site := http.NewServeMux()
			site.HandleFunc("/bad", tt.page)
			if tt.robots != nil {
				site.HandleFunc("/robots.txt", tt.robots)
			}
			h := crawlHandler(t)
			h.MaxPage = most
			if tt.within == 0 {
				tt.within = time.Minute
			}
			url := serve(t, site.ServeHTTP)
			if tt.robots == nil {
				if err := frontier.New(h.Redis, "").StoreRobots(t.Context(), url, 404, nil, 0); err != nil {
					t.Fatal(err)
				}
			}
			var ctx context.Context
			ctx, giveUp = context.WithCancel(t.Context())
			defer giveUp()
			got, err := crawlPage(ctx, t, h, url+"/bad", tt.within)
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err) || errors.Is(err, asynq.SkipRetry)) {
				t.Errorf("got %v, want %q, to be tried again", err, tt.err)
			}
			if got.Outcome != tt.outcome || tt.outcome == "fetched" && (got.Length != tt.length || got.Truncated != (tt.length == most)) {
				t.Errorf("result %+v, want %s, of %d bytes", got, tt.outcome, tt.length)
			}
			wantSaved(t, h, tt.outcome == "fetched")
		})
	}
}

// crawlHandler may call this machine, and saves bodies.
func crawlHandler(t *testing.T) *CrawlHandler {
	t.Helper()
	_, rdb := redistest.Mini(t)
	return &CrawlHandler{
		HTTP: local(), Redis: rdb, Client: noClient{}, SaveDir: t.TempDir(),
	}
}

// wantSaved fails unless there is one whole file in the crawl's folder, or none.
func wantSaved(t *testing.T, h *CrawlHandler, some bool) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(h.SaveDir, "it", "*"))
	parts, _ := filepath.Glob(filepath.Join(h.SaveDir, "."+"*"))
	if err != nil || len(files) == 1 != some || len(files) > 1 || len(parts) > 0 {
		t.Errorf("saved are %q, parts %q, %v; want a file: %v", files, parts, err, some)
	}
}

// A host whose name leads elsewhere once its robots.txt was fetched.
func TestCrawl_NameRebound_IsRefused(t *testing.T) {
	names := newNameServer(t, "127.0.0.1")
	asked := 0
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked++
		w.Header().Set("Connection", "close")
		names.lead("127.0.0.3")
		http.NotFound(w, r)
	})
	h := crawlHandler(t)
	h.HTTP = &HTTPHandler{AllowPrivate: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, resolver: names.resolver()}
	_, err := crawlPage(t.Context(), t, h, "http://rebind.example:"+port(url)+"/", time.Minute)
	if refused, ok := errors.AsType[*AddressError](err); !ok || refused.Address != netip.MustParseAddr("127.0.0.3") || !errors.Is(err, asynq.SkipRetry) {
		t.Errorf("got %v, want an AddressError of 127.0.0.3, archived", err)
	}
	if asked != 1 {
		t.Errorf("the server was asked %d times, want once, for robots.txt", asked)
	}
}

// A page that there is no room for is not done: its job is tried again, and the
// page is saved once.
func TestCrawl_NoDisk_Retries(t *testing.T) {
	body := bytes.Repeat([]byte("a page "), 100)
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/robots.txt" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(body)
	}) + "/"
	h := crawlHandler(t)
	dir := h.SaveDir
	h.SaveDir = filepath.Join(dir, "gone")
	_, err := crawlPage(t.Context(), t, h, url, time.Minute)
	if err == nil || !strings.HasPrefix(err.Error(), "save ") || errors.Is(err, asynq.SkipRetry) {
		t.Errorf("got %v, want an error of the disk, to be tried again", err)
	}
	p, _, err := frontier.New(h.Redis, "").Progress(t.Context(), "it")
	if err != nil || p.Waiting != 1 || p.Fetched != 0 {
		t.Errorf("%+v, %v; want the page to wait", p.Counts, err)
	}
	h.SaveDir = dir
	got, err := crawlPage(t.Context(), t, h, url, time.Minute)
	if err != nil || got.Outcome != "fetched" || got.Saved == "" {
		t.Errorf("when there is one: %+v, %v", got, err)
	}
	wantSaved(t, h, true)
}

// X-Robots-Tag is for pages of all types, and for crawlers that are not named there
// it is not.
func TestCrawl_NoIndex_IsNotSaved(t *testing.T) {
	for _, media := range []string{"text/html", "application/pdf", "text/xml"} {
		for tag, kept := range map[string]bool{"noindex": false, "other: noindex": true} {
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/page" {
					http.NotFound(w, r)
					return
				}
				w.Header().Set("Content-Type", media)
				w.Header().Set("X-Robots-Tag", tag)
				_, _ = io.WriteString(w, "<urlset><url><loc>/p</loc></url></urlset>")
			})
			h := crawlHandler(t)
			result, err := crawlPage(t.Context(), t, h, url+"/page", time.Minute)
			if err != nil || result.Outcome != "fetched" || result.Saved != "" != kept {
				t.Errorf("%s, %s: %+v, %v; want it kept: %v", media, tag, result, err, kept)
			}
			wantSaved(t, h, kept)
		}
	}
}
