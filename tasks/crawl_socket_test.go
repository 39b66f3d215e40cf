package tasks

import (
	"bytes"
	"context"
	"errors"
	"io"
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
