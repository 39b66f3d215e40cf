package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/redistest"
)

// serve is the URL of a server that lives as long as the test.
func serve(t *testing.T, handle http.HandlerFunc) string {
	t.Helper()
	srv := httptest.NewServer(handle)
	t.Cleanup(srv.Close)
	return srv.URL
}

// local is a handler that may call the test's own servers.
func local() *HTTPHandler {
	return &HTTPHandler{AllowPrivate: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
}

// process runs a local handler on the call.
func process(t *testing.T, call HTTPRequest) error {
	t.Helper()
	return processBy(t, local(), call)
}

func processBy(t *testing.T, h *HTTPHandler, call HTTPRequest) error {
	t.Helper()
	task, err := NewHTTPRequest(call)
	if err != nil {
		t.Fatal(err)
	}
	return h.ProcessTask(t.Context(), task)
}

// fetch makes the call.
func (h *HTTPHandler) fetch(t *testing.T, call HTTPRequest) (*HTTPResult, error) {
	t.Helper()
	return h.do(t.Context(), call)
}

func TestHTTP_Request_IsSentAsWritten(t *testing.T) {
	type seen struct{ Method, Path, Host, Agent, Custom, Body string }
	var got seen
	url := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = seen{r.Method, r.URL.String(), r.Host, r.UserAgent(), r.Header.Get("X-Custom"), string(body)}
	})
	host := strings.TrimPrefix(url, "http://")
	tests := []struct {
		name string
		call HTTPRequest
		want seen
	}{
		{"defaults", HTTPRequest{URL: url + "/p?q=1&r"}, seen{Method: "GET", Path: "/p?q=1&r", Host: host, Agent: "headgate"}},
		{
			"all set",
			HTTPRequest{
				Method: "PATCH", URL: url + "/", Body: "bödy",
				Headers: map[string]string{"x-custom": "1", "host": "other.example", "User-Agent": "mine/1"},
			},
			seen{"PATCH", "/", "other.example", "mine/1", "1", "bödy"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := process(t, tt.call); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestHTTP_StatusDecidesNextState(t *testing.T) {
	const done, retried, archived = "done", "retried", "archived"
	tests := []struct {
		status     int
		expect     []int
		retryAfter string
		want       string
		wait       time.Duration
	}{
		{200, nil, "", done, 0},
		{299, nil, "", done, 0},
		{304, nil, "", retried, 0},
		{400, nil, "", archived, 0},
		{404, nil, "", archived, 0},
		{408, nil, "", retried, 0},
		{425, nil, "", retried, 0},
		{429, nil, "", retried, 0},
		{429, nil, "17", retried, 17 * time.Second},
		{403, nil, "60", retried, time.Minute},
		{403, nil, "nonsense", archived, 0},
		{499, nil, "", archived, 0},
		{500, nil, "", retried, 0},
		{503, nil, "3", retried, 3 * time.Second},
		{404, []int{200, 404}, "", done, 0},
		{204, []int{200, 404}, "", retried, 0},
		{410, []int{200, 404}, "", archived, 0},
		{500, []int{500}, "", done, 0},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.status, tt.expect, tt.retryAfter), func(t *testing.T) {
			url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", tt.retryAfter)
				w.WriteHeader(tt.status)
			})
			err := process(t, HTTPRequest{URL: url + "/x", Expect: tt.expect})
			got := retried
			switch {
			case err == nil:
				got = done
			case errors.Is(err, asynq.SkipRetry):
				got = archived
			}
			if got != tt.want {
				t.Errorf("the job is %s by %v, want it %s", got, err, tt.want)
			}
			if err == nil {
				return
			}
			status, ok := errors.AsType[*StatusError](err)
			if !ok {
				t.Fatalf("got %v, want a StatusError", err)
			}
			if left := time.Until(status.Until); tt.wait > 0 && (left <= 0 || left > tt.wait) || tt.wait == 0 && !status.Until.IsZero() {
				t.Errorf("until %s, want %s from when the answer came", status.Until, tt.wait)
			}
			want := &StatusError{Status: tt.status, Expect: tt.expect, RetryAfter: tt.wait, Until: status.Until, URL: url + "/x"}
			if diff := cmp.Diff(want, status, cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(StatusError{})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestTimeouts(t *testing.T) {
	hang := &HTTPHandler{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, context.Cause(r.Context())
	})}
	tests := []struct {
		name      string
		own, task time.Duration
		want      time.Duration
	}{
		{"default", 0, time.Hour, DefaultTimeout},
		{"own", 7 * time.Second, time.Hour, 7 * time.Second},
		{"the task's is shorter", 7 * time.Second, 3 * time.Second, 3 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), tt.task)
				defer cancel()
				start := time.Now()
				_, err := hang.do(ctx, HTTPRequest{URL: "http://h", Timeout: tt.own})
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v, want a deadline exceeded", err)
				}
				if got := time.Since(start); got != tt.want {
					t.Errorf("gave up after %s, want %s", got, tt.want)
				}
			})
		})
	}
}

// The whole way: asynq's client, server and mux, and the result by Inspector.
func TestThroughAsynq(t *testing.T) {
	opt := asynq.RedisClientOpt{Addr: miniredis.RunT(t).Addr()}
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/gone" {
			w.WriteHeader(http.StatusGone)
		}
		if r.URL.Path == "/busy" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = io.WriteString(w, "here is <"+r.URL.Path+">")
	})
	payload := func(path string) string { return fmt.Sprintf(`{"url":%q}`, url+path) }
	tests := []struct {
		id, payload string
		state       asynq.TaskState
		lastErr     string
		result      string // as far as duration_ms
	}{
		{"fine", payload("/fine"), asynq.TaskStateCompleted, "", `{"status":200,"body":"here is </fine>","truncated":false,"length":15,`},
		{
			"gone", payload("/gone"), asynq.TaskStateArchived, url + "/gone answered 410 Gone, want any 2xx: skip retry for the task",
			`{"status":410,"body":"here is </gone>","truncated":false,"length":15,`,
		},
		{
			"busy", payload("/busy"), asynq.TaskStateRetry, url + "/busy answered 503 Service Unavailable, want any 2xx",
			`{"status":503,"body":"here is </busy>","truncated":false,"length":15,`,
		},
		{
			"malformed", `{"uri":"http://h"}`, asynq.TaskStateArchived,
			`malformed payload: unknown field "uri": want one of method, url, headers, body, timeout, expect, redirects, hops, keep_headers, save, max_body: skip retry for the task`, "",
		},
	}

	client := asynq.NewClient(opt)
	defer client.Close()
	for _, tt := range tests {
		task := asynq.NewTask(TypeHTTPRequest, []byte(tt.payload), asynq.TaskID(tt.id), asynq.Retention(time.Hour))
		if _, err := client.Enqueue(task); err != nil {
			t.Fatal(err)
		}
	}
	runAll(t, opt, len(tests))

	inspector := asynq.NewInspector(opt)
	defer inspector.Close()
	for _, tt := range tests {
		info, err := inspector.GetTaskInfo("default", tt.id)
		if err != nil {
			t.Fatal(err)
		}
		if info.State != tt.state || info.LastErr != tt.lastErr {
			t.Errorf("%s: %s, %q\nwant %s, %q", tt.id, info.State, info.LastErr, tt.state, tt.lastErr)
		}
		kept, _, _ := strings.Cut(string(info.Result), `"duration_ms"`)
		if kept != tt.result {
			t.Errorf("%s: result %s\nwant %s", tt.id, kept, tt.result)
		}
		if tt.result != "" && !json.Valid(info.Result) {
			t.Errorf("%s: result %s is not JSON", tt.id, info.Result)
		}
	}
}

// runAll runs an asynq server until its handlers have returned n times. Its
// Shutdown returns when what became of the tasks is in Redis.
func runAll(t *testing.T, opt asynq.RedisClientOpt, n int) {
	t.Helper()
	returned := make(chan struct{}, n)
	mux := asynq.NewServeMux()
	mux.Use(func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			defer func() { returned <- struct{}{} }()
			return next.ProcessTask(ctx, task)
		})
	})
	mux.Handle(TypeHTTPRequest, local())
	srv := asynq.NewServer(opt, asynq.Config{Concurrency: 2, LogLevel: asynq.FatalLevel})
	if err := srv.Start(mux); err != nil {
		t.Fatal(err)
	}
	for range n {
		<-returned
	}
	srv.Shutdown()
}

// lostResults makes the first writes of results fail.
type lostResults struct {
	left atomic.Int64
	lost func()
}

func (r *lostResults) around(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	if cmd.Name() == "hset" && r.left.Add(-1) >= 0 {
		r.lost()
		return errors.New("out of order")
	}
	return next(ctx, cmd)
}

// runWithLostResults runs a call that is answered with a status while the first n writes of its
// result fail. It reports whether there is a result, and returns the job's error. A job
// that is not patient ends with the first failure.
func runWithLostResults(t *testing.T, status int, n int64, patient bool) (kept bool, err error) {
	t.Helper()
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
	task, err := NewHTTPRequest(HTTPRequest{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	if _, err := asynq.NewClientFromRedisClient(rdb).Enqueue(task, asynq.TaskID("call")); err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	srv := asynq.NewServerFromRedisClient(rdb, asynq.Config{Concurrency: 1, LogLevel: asynq.FatalLevel})
	err = srv.Start(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		losing := &lostResults{lost: cancel}
		if patient {
			losing.lost = func() {}
		}
		losing.left.Store(n)
		rdb.AddHook(redistest.Hook(losing.around))
		err := local().ProcessTask(ctx, task)
		info, lost := asynq.NewInspectorFromRedisClient(rdb).GetTaskInfo("default", "call")
		kept = lost == nil && len(info.Result) > 0
		got <- err
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Shutdown()
	err = <-got
	return kept, err
}

// A result that Redis does not take at once is kept when it does: the call is not made
// again.
func TestHTTP_Result_WaitsForRedis(t *testing.T) {
	if kept, err := runWithLostResults(t, 200, 2, true); err != nil || !kept {
		t.Errorf("error %v, kept %v; want no error and a result", err, kept)
	}
}

// An answer whose result cannot be kept is not passed off as a success.
func TestHTTP_LostResult_IsAnError(t *testing.T) {
	lose := func(status int) error {
		_, err := runWithLostResults(t, status, math.MaxInt64, false)
		return err
	}
	const lost = "cannot store the result: "
	if err := lose(200); err == nil || !strings.Contains(err.Error(), lost) {
		t.Errorf("200: got %v, want %q in it", err, lost)
	}
	err := lose(404)
	if _, ok := errors.AsType[*StatusError](err); !ok || !errors.Is(err, asynq.SkipRetry) || !strings.Contains(err.Error(), lost) {
		t.Errorf("404: got %v, want the StatusError, SkipRetry and %q", err, lost)
	}
}
