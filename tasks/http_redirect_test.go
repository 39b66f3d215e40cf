package tasks

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
)

// site is a server under every name there is, which notes who is asked for
// what. It redirects /to/URL to URL, with the status of the query's s.
type site struct {
	handler *HTTPHandler
	port    string
	mu      sync.Mutex
	seen    []string // "METHOD host/path body"
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{handler: local()}
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	s.port = port(srv.URL)
	s.handler.resolver = newNameServer(t, "127.0.0.1").resolver()
	return s
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	host, _, _ := strings.Cut(r.Host, ":")
	s.seen = append(s.seen, strings.TrimSpace(r.Method+" "+host+r.URL.Path+" "+string(body)))
	s.mu.Unlock()
	if to := r.URL.Query().Get("to"); to != "" {
		status := http.StatusFound
		_, _ = fmt.Sscan(r.URL.Query().Get("s"), &status)
		w.Header()["Location"] = []string{to}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "moved")
		return
	}
	_, _ = io.WriteString(w, "here")
}

// url is one of the site's under the name.
func (s *site) url(host, path string) string { return "http://" + host + ":" + s.port + path }

func TestRedirects(t *testing.T) {
	s := newSite(t)
	tests := []struct {
		name      string
		redirects Redirects
		to        string
		expect    []int
		want      string   // the end of the error
		seen      []string // after the first
	}{
		{"off is the default", "", "/end", nil, s.url("a.example", "/end") + ": redirects are off", nil},
		{"off", RedirectsOff, "/end", nil, s.url("a.example", "/end") + ": redirects are off", nil},
		{"off, expected", "", "/end", []int{302}, "", nil},
		{"off, another status expected", "", "/end", []int{301}, "redirects are off", nil},
		{"same host", RedirectsSameHost, "/end", nil, "", []string{"GET a.example/end"}},
		{"same host, expected", RedirectsSameHost, "/end", []int{302}, "", nil},
		{"same host, in other letters", RedirectsSameHost, s.url("A.Example.", "/end"), nil, "", []string{"GET A.Example./end"}},
		{"another host", RedirectsSameHost, s.url("b.example", "/end"), nil, "another host, and redirects are for the same host", nil},
		{"another host without scheme", RedirectsSameHost, "//b.example:" + s.port + "/end", nil, "another host, and redirects are for the same host", nil},
		{"another address", RedirectsSameHost, s.url("127.0.0.1", "/end"), nil, "another host, and redirects are for the same host", nil},
		{"a file", RedirectsSameHost, "file:///etc/hostname", nil, "want it to begin with http:// or https://", nil},
		{"a file, requeued", RedirectsRequeue, "file:///etc/hostname", nil, "want it to begin with http:// or https://", nil},
		{"credentials", RedirectsSameHost, "http://u:p@a.example/", nil, "a header Authorization with a secret is for these", nil},
		{"not a URL", RedirectsSameHost, "http://[", nil, "not a URL", nil},
		{"not UTF-8", RedirectsSameHost, "/\xff", nil, "", []string{"GET a.example/\xff"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s.seen = nil
			call := HTTPRequest{URL: s.url("a.example", "/start?to=") + strings.NewReplacer(":", "%3A", "\xff", "%ff").Replace(tt.to), Redirects: tt.redirects, Expect: tt.expect}
			err := processBy(t, s.handler, call)
			if diff := cmp.Diff(append([]string{"GET a.example/start"}, tt.seen...), s.seen); diff != "" {
				t.Errorf("seen: -want +got:\n%s", diff)
			}
			if tt.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			status, ok := errors.AsType[*StatusError](err)
			if !ok || !errors.Is(err, asynq.SkipRetry) || !strings.HasSuffix(status.Error(), tt.want) || Class(err) != Class3xx {
				t.Errorf("got %v, want a StatusError that ends in %q, and the job archived", err, tt.want)
			}
		})
	}
}

func TestRedirects_SameHost_Methods(t *testing.T) {
	s := newSite(t)
	tests := []struct {
		method, status, want string
	}{
		{"GET", "302", "GET a.example/end"},
		{"HEAD", "302", "HEAD a.example/end"},
		{"POST", "301", "GET a.example/end"},
		{"POST", "302", "GET a.example/end"},
		{"PUT", "303", "GET a.example/end"},
		{"POST", "307", "POST a.example/end text"},
		{"PUT", "308", "PUT a.example/end text"},
	}
	for _, tt := range tests {
		s.seen = nil
		call := HTTPRequest{Method: tt.method, URL: s.url("a.example", "/?to=/end&s="+tt.status), Redirects: RedirectsSameHost}
		if tt.method != "GET" && tt.method != "HEAD" {
			call.Body = "text"
		}
		result, err := s.handler.fetch(t, call)
		if err != nil {
			t.Errorf("%s %s: %v", tt.method, tt.status, err)
			continue
		}
		if got := s.seen[len(s.seen)-1]; got != tt.want || len(s.seen) != 2 {
			t.Errorf("%s %s: the server saw %q, want %q last", tt.method, tt.status, s.seen, tt.want)
		}
		if want := s.url("a.example", "/end"); result.URL != want {
			t.Errorf("%s %s: the result is from %q, want %q", tt.method, tt.status, result.URL, want)
		}
	}
}

// One permit pays for a bounded number of requests, whatever the server does.
func TestRedirects_Loop_Ends(t *testing.T) {
	h := local()
	requests := 0
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		requests++
		http.Redirect(w, r, "/", http.StatusFound)
	})
	err := processBy(t, h, HTTPRequest{URL: url, Redirects: RedirectsSameHost})
	if !errors.Is(err, asynq.SkipRetry) || !strings.Contains(err.Error(), "that would be redirect 6, want at most 5") {
		t.Errorf("got %v, want an error about redirect 6, and the job archived", err)
	}
	if requests != 1+MaxRedirects {
		t.Errorf("%d requests, want %d", requests, 1+MaxRedirects)
	}
}

func TestRedirects_Requeue_EndsRun(t *testing.T) {
	s := newSite(t)
	call := HTTPRequest{
		Method: "POST", URL: s.url("a.example", "/?to="+strings.ReplaceAll(s.url("b.example", "/end#part"), ":", "%3A")),
		Headers:   map[string]string{"Authorization": "Bearer x", "cookie": "a=1", "X-Key": "${env:KEY}", "X-Trace": "7", "Content-Type": "text/plain", "Host": "a.example:" + s.port},
		Body:      "text",
		Redirects: RedirectsRequeue, KeepHeaders: []string{"ETag"},
	}
	t.Setenv("KEY", "a secret of its own")
	s.handler.Secrets = []string{"env:KEY"}
	err := processBy(t, s.handler, call)
	moved, ok := errors.AsType[*RedirectError](err)
	if !ok || !errors.Is(err, asynq.SkipRetry) {
		t.Fatalf("got %v, want a RedirectError", err)
	}
	want := &RedirectError{Status: 302, From: call.URL, Next: HTTPRequest{
		URL: s.url("b.example", "/end"), Headers: map[string]string{"X-Trace": "7"},
		Redirects: RedirectsRequeue, Hops: 1, KeepHeaders: []string{"ETag"},
	}}
	if diff := cmp.Diff(want, moved); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	payload, err := json.Marshal(moved.Next)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.handler.ProcessTask(t.Context(), asynq.NewTask(TypeHTTPRequest, payload)); err != nil {
		t.Errorf("the next run: %v", err)
	}
	if diff := cmp.Diff([]string{"POST a.example/ text", "GET b.example/end"}, s.seen); diff != "" {
		t.Errorf("seen: -want +got:\n%s", diff)
	}
}

// With something to put the job back, it is put back as its next call.
func TestRedirects_Requeue_PutsBack(t *testing.T) {
	errAgain := errors.New("again")
	var payload string
	h := local()
	h.PutBackAs = func(next []byte) error { payload = string(next); return errAgain }
	url := serve(t, http.RedirectHandler("/next", http.StatusFound).ServeHTTP)
	err := processBy(t, h, HTTPRequest{URL: url, Redirects: RedirectsRequeue})
	if _, ok := errors.AsType[*RedirectError](err); !ok || !errors.Is(err, errAgain) || errors.Is(err, asynq.SkipRetry) {
		t.Errorf("got %v, want a RedirectError that puts the job back", err)
	}
	if want := `{"url":"` + url + `/next","redirects":"requeue","hops":1}`; payload != want {
		t.Errorf("put back as %s, want %s", payload, want)
	}
}

// Headers whose names say that they are secret stay behind at another host, after each status,
// and whether the redirect is followed at once or by another run.
func TestRedirects_SecretHeaders_StayAtOrigin(t *testing.T) {
	secret := []string{
		"Authorization", "Proxy-Authorization", "Cookie", "X-Api-Key", "x-api-key", "Api-Key", "ApiKey", "Private-Token", "X-Auth-Token", "X-Auth",
		"X-Vault-Token", "X-Amz-Security-Token", "Ocp-Apim-Subscription-Key", "X-Access-Key", "X-Client-Secret", "X-Session-Id", "X-Hub-Signature-256", "X-Own",
	}
	public := []string{"Accept", "X-Trace", "X-Request-Id", "If-None-Match", "X-Author", "X-Key-Count"}
	h := &HTTPHandler{SecretHeaders: []string{"x-own"}}
	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, name := range append(secret, public...) {
			a := &openResponse{Response: Response{URL: "https://a.example/", Status: status}, Header: http.Header{"Location": {"https://b.example/"}}}
			a.url, _ = url.Parse(a.URL)
			a.call = HTTPRequest{URL: a.URL, Redirects: RedirectsRequeue, Headers: map[string]string{name: "as it is written"}}
			next, err := h.next(a)
			if err != nil {
				t.Fatal(err)
			}
			if _, went := next.Headers[name]; went != slices.Contains(public, name) {
				t.Errorf("%d: that %s goes along is %t", status, name, went)
			}
			a.Header.Set("Location", "/elsewhere")
			if next, err = h.next(a); err != nil || next.Headers[name] == "" {
				t.Errorf("%d: within the host %s stays behind: %v", status, name, err)
			}
		}
	}
}

// A body goes to another host or port only if the worker allows that host.
func TestRedirects_Bodies(t *testing.T) {
	s := newSite(t)
	for _, tt := range []struct {
		status, to string
		allowed    []string
		seen       string // at the end of the redirect, or "" if that is not followed
	}{
		{"307", "b.example", nil, ""},
		{"308", "b.example", nil, ""},
		{"308", "b.example", []string{"a.example", "*.b.example"}, ""},
		{"307", "b.example", []string{"B.example"}, "POST b.example/end text"},
		{"308", "sub.b.example", []string{"*.b.example"}, "POST sub.b.example/end text"},
		{"302", "b.example", nil, "GET b.example/end"},
		{"307", "a.example", nil, "POST a.example/end text"},
	} {
		s.seen, s.handler.RedirectBodies = nil, tt.allowed
		call := HTTPRequest{Method: "POST", Body: "text", Redirects: RedirectsRequeue, URL: s.url("a.example", "/?s="+tt.status+"&to="+url.QueryEscape(s.url(tt.to, "/end")))}
		err := processBy(t, s.handler, call)
		if tt.seen == "" {
			if _, ok := errors.AsType[*StatusError](err); !ok || !errors.Is(err, asynq.SkipRetry) || !strings.Contains(err.Error(), `redirect_bodies: ["`+tt.to+`"]`) {
				t.Errorf("%+v: %v, want the job archived with what would allow it", tt, err)
			}
			continue
		}
		moved, ok := errors.AsType[*RedirectError](err)
		if !ok {
			t.Errorf("%+v: %v, want a redirect", tt, err)
			continue
		}
		if err := processBy(t, s.handler, moved.Next); err != nil || s.seen[len(s.seen)-1] != tt.seen {
			t.Errorf("%+v: seen %q, %v", tt, s.seen, err)
		}
	}
	s.handler.RedirectBodies = nil
	other := newSite(t)
	to := url.QueryEscape(other.url("a.example", "/end"))
	err := processBy(t, s.handler, HTTPRequest{Method: "POST", Body: "text", Redirects: RedirectsSameHost, URL: s.url("a.example", "/?s=307&to="+to)})
	if err == nil || len(other.seen) > 0 {
		t.Errorf("another port: %v, seen %q; want nothing sent there", err, other.seen)
	}
}

func TestSameOrigin(t *testing.T) {
	for _, tt := range []struct {
		from, to     string
		host, origin bool
	}{
		{"http://a/", "http://A.:80/x", true, true},
		{"https://a:443/", "https://a/", true, true},
		{"http://a/", "https://a/", true, true},
		{"http://a/", "https://a:8443/", true, false},
		{"http://a:8080/", "https://a:8080/", true, false},
		{"http://a/", "http://a:8080/", true, false}, // limits count by host name
		{"https://a/", "http://a/", false, false},
		{"http://a/", "http://b.a/", false, false},
		{"http://[::1]/", "http://[::1]:80/", true, true},
	} {
		if host, origin := sameHost(tt.from, tt.to), sameOrigin(tt.from, tt.to); host != tt.host || origin != tt.origin {
			t.Errorf("%s to %s: same host %t, same origin %t", tt.from, tt.to, host, origin)
		}
	}
}

// A secret in the URL is not sent to another port, which can be another server.
func TestRedirects_SecretInURL_StaysAtOrigin(t *testing.T) {
	h, _ := secretive(t)
	other := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the other port was called") })
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other+"?"+r.URL.RawQuery, http.StatusTemporaryRedirect)
	})
	for _, follow := range []Redirects{RedirectsSameHost, RedirectsRequeue} {
		err := processBy(t, h, HTTPRequest{URL: url + "/?key=${env:API_KEY}", Redirects: follow})
		if err == nil || !strings.Contains(err.Error(), "another origin, and a secret of the call is in the URL") || !errors.Is(err, asynq.SkipRetry) {
			t.Errorf("%s: %v", follow, err)
		}
	}
}
