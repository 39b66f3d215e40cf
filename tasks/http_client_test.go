package tasks

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
)

func TestTLS(t *testing.T) {
	var proto string
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { proto = r.Proto }))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())

	if err := process(t, HTTPRequest{URL: srv.URL}); Class(err) != ClassNetwork {
		t.Errorf("without the server's root: got %v, want a NetworkError", err)
	}
	h := local()
	h.TLS = &tls.Config{RootCAs: roots}
	if err := processBy(t, h, HTTPRequest{URL: srv.URL}); err != nil {
		t.Errorf("with the server's root: %v", err)
	}
	if proto != "HTTP/2.0" {
		t.Errorf("the call came by %s, want HTTP/2.0", proto)
	}
}

// Feedback sees every answer, including redirects that are followed.
func TestFeedback_SeesRedirects(t *testing.T) {
	h := &HTTPHandler{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		time.Sleep(time.Second)
		resp := &http.Response{StatusCode: 200, Header: header("X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 7"), Body: http.NoBody, Request: r}
		if r.URL.Path == "/" {
			resp.StatusCode, resp.Header = 302, header("Location: /end", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 5")
		}
		return resp, nil
	})}
	var seen []Response
	var of *asynq.Task
	f := &Feedback{BlockUntil: func(_ context.Context, task *asynq.Task, a Response) time.Time {
		seen, of = append(seen, a), task
		return time.Time{}
	}}
	task, err := NewHTTPRequest(HTTPRequest{URL: "http://h/", Redirects: RedirectsSameHost})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		if err := f.Middleware(h).ProcessTask(t.Context(), task); err != nil {
			t.Fatal(err)
		}
		if len(seen) != 2 || of != task {
			t.Fatalf("saw %+v of %v, want both answers of the task", seen, of)
		}
		first, last := seen[0], seen[1]
		if first.URL != "http://h/" || first.Status != 302 || first.Latency != time.Second {
			t.Errorf("first %+v, want 302 after 1s", first)
		}
		if last.URL != "http://h/end" || last.Status != 200 || !last.Upstream.Until.Equal(start.Add(9*time.Second)) {
			t.Errorf("last %+v, want 200 of /end, until 7s after the answer", last)
		}
	})
}
