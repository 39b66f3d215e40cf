package tasks

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// What ends before the call can leave says so, and nothing else does.
func TestErrNotCalled(t *testing.T) {
	site := serve(t, func(http.ResponseWriter, *http.Request) {})
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	breaks := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			conn.Close()
		}
	})
	silent := roundTrip(func(*http.Request) (*http.Response, error) { return nil, errors.New("it may have left") })
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer slow.Close()
	for name, tt := range map[string]struct {
		h         *HTTPHandler
		call      HTTPRequest
		notCalled bool
	}{
		"an address that is not public": {new(HTTPHandler), HTTPRequest{URL: "http://127.0.0.1/"}, true},
		"a name of such an address":     {new(HTTPHandler), HTTPRequest{URL: "http://localhost/"}, true},
		"a secret that it does not get": {local(), HTTPRequest{URL: site + "/?k=${env:NONE}"}, true},
		"no server listens":             {local(), HTTPRequest{URL: "http://" + closed.Addr().String()}, true},
		"no TLS":                        {local(), HTTPRequest{URL: "https" + site[len("http"):]}, true},
		"a body that breaks off":        {local(), HTTPRequest{URL: breaks}, false},
		"no answer in time":             {local(), HTTPRequest{URL: slow.URL, Timeout: 50 * time.Millisecond}, false},
		"an answer that is not wanted":  {local(), HTTPRequest{URL: site, Expect: []int{404}}, false},
		"a transport that says nothing": {&HTTPHandler{Transport: silent}, HTTPRequest{URL: "http://a.example/"}, false},
	} {
		err := processBy(t, tt.h, tt.call)
		if err == nil || errors.Is(err, ErrNotCalled) != tt.notCalled {
			t.Errorf("%s: that no call was made is %t: %v", name, !tt.notCalled, err)
		}
	}
	for name, notCalled := range map[string]bool{
		"none": true, "args": true, "absent": true, "secret": true, "fails": false, "long": false,
	} {
		args := func(a ...string) func(context.Context, *asynq.Task) ([]string, error) {
			return func(context.Context, *asynq.Task) ([]string, error) { return a, nil }
		}
		h := &ExecHandler{Commands: map[string]Command{
			"args": {Args: args()}, "absent": {Args: args("/there/is/none")}, "secret": {Args: args("true"), Env: []string{"A=${env:NONE_OF_THEM}"}},
			"fails": {Args: args("false")}, "long": {Args: args("sleep", "60"), Timeout: 50 * time.Millisecond},
		}}
		err := h.ProcessTask(t.Context(), asynq.NewTask(PrefixExec+name, nil))
		if err == nil || errors.Is(err, ErrNotCalled) != notCalled {
			t.Errorf("%s: that nothing was run is %t: %v", name, !notCalled, err)
		}
	}
}

// Check says of each payload what ProcessTask would say, without a call.
func TestCheck(t *testing.T) {
	calls := new(HTTPHandler)
	crawls := &CrawlHandler{HTTP: calls}
	commands := &ExecHandler{Commands: map[string]Command{"one": {}}}
	for _, tt := range []struct {
		check             func(*asynq.Task) error
		typename, payload string
		ok                bool
	}{
		{calls.Check, TypeHTTPRequest, `{"url":"https://example.com/"}`, true},
		{calls.Check, TypeHTTPRequest, `{"url":"https://93.184.215.14/"}`, true},
		{calls.Check, TypeHTTPRequest, `{"uri":"https://example.com/"}`, false},
		{calls.Check, TypeHTTPRequest, `{"url":"http://10.1.2.3/"}`, false},
		{calls.Check, TypeHTTPRequest, `{"url":"http://[::ffff:10.1.2.3]/"}`, false},
		{calls.Check, TypeHTTPRequest, `{"url":"http://0x7f.1/"}`, false},
		{calls.Check, TypeHTTPRequest, `{"url":"http://169.254.169.254/latest"}`, false},
		{(&HTTPHandler{Proxy: http.ProxyFromEnvironment}).Check, TypeHTTPRequest, `{"url":"http://10.1.2.3/"}`, true},
		{local().Check, TypeHTTPRequest, `{"url":"http://127.0.0.1/"}`, true},
		{crawls.Check, TypeCrawlFetch, `{"crawl":"a","url":"https://example.com/"}`, true},
		{crawls.Check, TypeCrawlFetch, `{"crawl":"a","url":"http://10.1.2.3/"}`, false},
		{crawls.Check, TypeCrawlFetch, `{"crawl":"a b","url":"https://example.com/"}`, false},
		{commands.Check, PrefixExec + "one", `[]`, false},
		{commands.Check, PrefixExec + "one", ``, true},
		{commands.Check, PrefixExec + "two", ``, false},
	} {
		err := tt.check(asynq.NewTask(tt.typename, []byte(tt.payload)))
		if (err == nil) != tt.ok || err != nil && (!errors.Is(err, asynq.SkipRetry) || !errors.Is(err, ErrNotCalled)) {
			t.Errorf("%s %s: %v", tt.typename, tt.payload, err)
		}
	}
}
