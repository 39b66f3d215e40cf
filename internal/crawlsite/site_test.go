package crawlsite

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// asker asks a site for URLs, and follows no redirect.
func asker(t *testing.T, s *Site) func(url string) *http.Response {
	t.Helper()
	proxy, err := url.Parse(s.Proxy())
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{Proxy: http.ProxyURL(proxy)}
	t.Cleanup(transport.CloseIdleConnections)
	return func(url string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp
	}
}

// The report tells of everything that a crawler should not do.
func TestReport(t *testing.T) {
	s, err := Start(2)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ask := asker(t, s)
	for _, host := range Hosts {
		ask("http://" + host + "/")
		if host != Moved {
			ask("http://" + host + "/page/1")
		}
	}
	if s.Done() || s.Fetched() != 9 {
		t.Errorf("%d pages, done %v; want 9 of 10", s.Fetched(), s.Done())
	}
	ask("http://plain.test/")
	ask("http://robots.test/private/1")
	ask("http://elsewhere.example/")
	if to := ask("http://moved.test/away/1").Header.Get("Location"); to != "http://plain.test/page/1" {
		t.Errorf("moved.test redirects to %q", to)
	}
	r := s.Report()
	want := []string{
		"1 pages fetched again on plain.test", "1 requests for what is disallowed on robots.test", "1 pages missed on moved.test",
		"1 requests to hosts that the crawl should not go to",
	}
	if got := r.Wrong(); !slices.Equal(got, want) {
		t.Errorf("wrong is %q, want %q", got, want)
	}
	if r.Slowest().Host != Robots && r.Slowest().Host != Slow {
		t.Errorf("the slowest is %s", r.Slowest().Host)
	}
}

// Intervals are those of the requests as they came, and what the machine is late by
// is no fault of a crawler.
func TestUndercut(t *testing.T) {
	h := &host{answered: map[string]int{}}
	began := time.Now()
	for _, ms := range []int{0, 500, 200, 690} {
		h.note(began.Add(time.Duration(ms)*time.Millisecond), false)
	}
	row := h.row(1)
	row.Host, row.Limit = Plain, 200*time.Millisecond
	if row.Least != 190*time.Millisecond || row.Bound() != 600*time.Millisecond {
		t.Errorf("least %s, bound %s; want 190ms, 600ms", row.Least, row.Bound())
	}
	r := Report{Rows: []Row{row}}
	if wrong, n := r.Undercut(5 * time.Millisecond); n != 1 || !strings.Contains(wrong[0], "190ms") {
		t.Errorf("%q, %d; want one interval of 190ms", wrong, n)
	}
	r.Late = 10 * time.Millisecond
	if wrong, n := r.Undercut(5 * time.Millisecond); n != 0 {
		t.Errorf("on a late machine: %q", wrong)
	}
}

// Busy refuses all requests for a while, and counts those that do not wait for it.
func TestBusy(t *testing.T) {
	h := &host{answered: map[string]int{}}
	at := time.Now()
	for i := 1; i < refusedEvery; i++ {
		if wait := h.note(at, true); wait != 0 {
			t.Fatalf("request %d is refused for %s", i, wait)
		}
	}
	if wait := h.note(at, true); wait != retryAfter {
		t.Errorf("request %d is refused for %s, want %s", refusedEvery, wait, retryAfter)
	}
	if wait := h.note(at.Add(retryAfter/2), true); wait != retryAfter/2 || h.Early != 1 {
		t.Errorf("half way: refused for %s, %d early; want %s, 1", wait, h.Early, retryAfter/2)
	}
	if wait := h.note(at.Add(retryAfter), true); wait != 0 || h.Refused != 2 {
		t.Errorf("after it: refused for %s, %d in all", wait, h.Refused)
	}
}
