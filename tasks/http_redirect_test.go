package tasks

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/hibiken/asynq"
)

// site is a server under every host name. It records the requests. It redirects to the parameter to of
// the query, with the status s.
type site struct {
	handler *HTTPHandler
	seen    []string // "METHOD host/path body"
}

// movedError is the error of a job that is put back with another call.
type movedError struct{ next HTTPRequest }

func (*movedError) Error() string { return "put back" }

func putBackAs(payload []byte) error {
	next, err := parse[HTTPRequest](payload)
	if err != nil {
		return err
	}
	return &movedError{next}
}

func newSite() *site {
	s := new(site)
	s.handler = inMemory(s.ServeHTTP)
	s.handler.PutBackAs = putBackAs
	return s
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	host, _, _ := strings.Cut(r.Host, ":")
	s.seen = append(s.seen, strings.TrimSpace(r.Method+" "+host+r.URL.Path+" "+string(body)))
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

func siteURL(host, path string) string { return "http://" + host + path }

func TestRedirects(t *testing.T) {
	s := newSite()
	t.Setenv("KEY", "a secret of its own")
	s.handler.Secrets = []string{"env:KEY"}
	const off, follow = false, true
	for _, tt := range []struct {
		name      string
		redirects bool
		method    string // "" has no body, others have
		status    int
		to        string
		hops      int
		want      string // the end of the error, or the request of the next run
	}{
		{"off", off, "", 302, "/end", 0, "/end is not followed: redirects are off"},
		{"to the same host", follow, "", 302, "/end", 0, "GET a.example/end"},
		{"in other letters", follow, "", 302, siteURL("A.Example.", "/end"), 0, "GET A.Example./end"},
		{"to another host", follow, "", 302, siteURL("b.example", "/end#part"), 0, "GET b.example/end"},
		{"to another host without a scheme", follow, "", 302, "//b.example/end", 0, "GET b.example/end"},
		{"to a file", follow, "", 302, "file:///etc/hostname", 0, "want it to begin with http:// or https://"},
		{"with credentials", follow, "", 302, "http://u:p@a.example/", 0, "use a header Authorization with a secret"},
		{"not a URL", follow, "", 302, "http://[", 0, "not a URL"},
		{"not UTF-8", follow, "", 302, "/\xff", 0, "GET a.example/\xff"},
		{"too many", follow, "", 302, "/end", MaxRedirects, "it would be redirect 6: want at most 5"},
		{"a secret in the URL", follow, "", 302, "http://a.example:1/?key=a%20secret%20of%20its%20own", 0, "it is another origin, and the URL has a secret"},
		{"HEAD", follow, "HEAD", 302, "/end", 0, "HEAD a.example/end"},
		{"POST, 301", follow, "POST", 301, "/end", 0, "GET a.example/end"},
		{"PUT, 303", follow, "PUT", 303, siteURL("b.example", "/end"), 0, "GET b.example/end"},
		{"POST, 307", follow, "POST", 307, "/end", 0, "POST a.example/end text"},
		{"PUT, 308", follow, "PUT", 308, "/end", 0, "PUT a.example/end text"},
		{"a body for another host", follow, "POST", 307, siteURL("b.example", "/end"), 0, `it is another origin, and the call has a body: want "b.example" in http.redirect_bodies of the worker's config if that host may have the body`},
		{"a body for another port", follow, "POST", 308, "http://a.example:1/", 0, `it is another origin, and the call has a body: want "a.example" in http.redirect_bodies of the worker's config if that host may have the body`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s.seen = nil
			call := HTTPRequest{
				Method: tt.method, URL: siteURL("a.example", fmt.Sprintf("/?key=${env:KEY}&s=%d&to=%s", tt.status, strings.ReplaceAll(url.QueryEscape(tt.to), "+", "%20"))),
				Redirects: tt.redirects, Hops: tt.hops,
			}
			if tt.method != "" && tt.method != "HEAD" {
				call.Body = "text"
			}
			err := processBy(t, s.handler, call)
			if moved, ok := errors.AsType[*movedError](err); ok {
				if err := processBy(t, s.handler, moved.next); err != nil || s.seen[len(s.seen)-1] != tt.want || moved.next.Hops != tt.hops+1 {
					t.Errorf("the next run: %v, seen %q, want %q", err, s.seen, tt.want)
				}
				return
			}
			status, ok := errors.AsType[*StatusError](err)
			if !ok || !errors.Is(err, asynq.SkipRetry) || !strings.HasSuffix(status.Error(), tt.want) || Class(err) != Class3xx || len(s.seen) != 1 {
				t.Errorf("got %v, want a StatusError that ends in %q, and the job archived", err, tt.want)
			}
		})
	}
	if err := processBy(t, s.handler, HTTPRequest{URL: siteURL("a.example", "/?to=/end"), Redirects: follow, Expect: []int{302}}); err != nil {
		t.Errorf("an expected redirect: %v", err)
	}
}

func TestRedirects_Requeue_PutsBack(t *testing.T) {
	h := local()
	url := serve(t, http.RedirectHandler("/next", http.StatusFound).ServeHTTP)
	call := HTTPRequest{URL: url, Redirects: true}
	if err := processBy(t, h, call); !errors.Is(err, asynq.SkipRetry) {
		t.Errorf("without PutBackAs: got %v, want the job archived", err)
	}
	h.PutBackAs = func(next []byte) error { return errors.New(string(next)) }
	want := url + " answered 302 Found and leads to " + url + `/next: {"url":"` + url + `/next","redirects":true,"hops":1}`
	if err := processBy(t, h, call); err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// Headers whose names say that they are secret are not sent to another host, after any status.
func TestRedirects_SecretHeaders_StayAtOrigin(t *testing.T) {
	secret := []string{
		"Authorization", "Proxy-Authorization", "Cookie", "X-Api-Key", "x-api-key", "Api-Key", "ApiKey", "Private-Token", "X-Auth-Token", "X-Auth",
		"X-Vault-Token", "X-Amz-Security-Token", "Ocp-Apim-Subscription-Key", "X-Access-Key", "X-Client-Secret", "X-Session-Id", "X-Hub-Signature-256", "X-Own",
	}
	public := []string{"Accept", "X-Trace", "X-Request-Id", "If-None-Match", "X-Author", "X-Key-Count"}
	h := &HTTPHandler{SecretHeaders: []string{"x-own"}}
	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, name := range append(secret, public...) {
			call := HTTPRequest{URL: "https://a.example/", Redirects: true, Headers: map[string]string{name: "as it is written"}}
			req, _ := http.NewRequest("GET", call.URL, nil)
			a := &openResponse{Response: &http.Response{StatusCode: status, Header: http.Header{"Location": {"https://b.example/"}}, Request: req}, call: call}
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

// A body goes to another host only if the worker allows the host.
func TestRedirects_Bodies(t *testing.T) {
	for host, allowed := range map[string][]string{
		"b.example":     {"B.example"},
		"sub.b.example": {"*.b.example"},
	} {
		s := newSite()
		call := HTTPRequest{Method: "POST", Body: "text", Redirects: true, URL: siteURL("a.example", "/?s=308&to="+url.QueryEscape(siteURL(host, "/end")))}
		s.handler.RedirectBodies = []string{"a.example", "*.other.example"}
		if _, ok := errors.AsType[*StatusError](processBy(t, s.handler, call)); !ok {
			t.Errorf("%s: the redirect is followed", host)
		}
		s.handler.RedirectBodies = allowed
		moved, ok := errors.AsType[*movedError](processBy(t, s.handler, call))
		if !ok || moved.next.Body != "text" {
			t.Errorf("%s: the redirect is not followed with the body", host)
		}
	}
}

func TestSameOrigin(t *testing.T) {
	for _, tt := range []struct {
		from, to string
		want     bool
	}{
		{"http://a/", "http://A.:80/x", true},
		{"https://a:443/", "https://a/", true},
		{"http://a/", "https://a/", true},
		{"http://a/", "https://a:8443/", false},
		{"http://a:8080/", "https://a:8080/", false},
		{"http://a/", "http://a:8080/", false},
		{"https://a/", "http://a/", false},
		{"http://a/", "http://b.a/", false},
		{"http://[::1]/", "http://[::1]:80/", true},
	} {
		if got := sameOrigin(tt.from, tt.to); got != tt.want {
			t.Errorf("%s to %s: %t", tt.from, tt.to, got)
		}
	}
}
