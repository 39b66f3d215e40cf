package tasks

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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
	type seen struct{ Method, URL, Host, Agent, Custom, Body string }
	var got seen
	h := inMemory(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = seen{r.Method, r.URL.String(), r.Host, r.UserAgent(), r.Header.Get("X-Custom"), string(body)}
	})
	all := HTTPRequest{
		Method: "PATCH", URL: "http://h/", Body: "bödy",
		Headers: map[string]string{"x-custom": "1", "host": "other.example", "User-Agent": "mine/1"},
	}
	for want, call := range map[seen]HTTPRequest{
		{"GET", "http://h/p?q=1&r", "h", "headgate", "", ""}:           {URL: "http://h/p?q=1&r"},
		{"PATCH", "http://h/", "other.example", "mine/1", "1", "bödy"}: all,
	} {
		if err := processBy(t, h, call); err != nil || got != want {
			t.Errorf("%v: got %+v, want %+v", err, got, want)
		}
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
		{299, nil, "", done, 0},
		{304, nil, "", retried, 0},
		{404, nil, "", archived, 0},
		{408, nil, "", retried, 0},
		{425, nil, "", retried, 0},
		{429, nil, "", retried, 0},
		{429, nil, "17", retried, 17 * time.Second},
		{403, nil, "60", retried, time.Minute},
		{403, nil, "nonsense", archived, 0},
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
			if status.Status != tt.status || !slices.Equal(status.Expect, tt.expect) || status.RetryAfter.Round(time.Second) != tt.wait || status.URL != url+"/x" {
				t.Errorf("got %+v", status)
			}
		})
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// inMemory returns a handler whose calls are answered without a network.
func inMemory(handle http.HandlerFunc) *HTTPHandler {
	return &HTTPHandler{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		rec := httptest.NewRecorder()
		handle(rec, r)
		return rec.Result(), nil
	})}
}

// The task's timeout counts if it is shorter than the call's.
func TestHTTP_TaskTimeout(t *testing.T) {
	hang := &HTTPHandler{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	})}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		start := time.Now()
		_, err := hang.do(ctx, HTTPRequest{URL: "http://h", Timeout: 7 * time.Second})
		if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took != 3*time.Second {
			t.Errorf("got %v after %s, want a deadline exceeded after 3s", err, took)
		}
	})
}

// runJobs runs http:request tasks on an asynq server in a bubble, and returns their state afterwards.
func runJobs(t *testing.T, handle func(context.Context, redis.UniversalClient, *asynq.Task) error, payloads ...string) (infos []*asynq.TaskInfo) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Mini(t)
		for i, payload := range payloads {
			job := asynq.NewTask(TypeHTTPRequest, []byte(payload), asynq.TaskID(fmt.Sprint(i)), asynq.Retention(time.Hour))
			if _, err := asynq.NewClientFromRedisClient(rdb).Enqueue(job); err != nil {
				t.Fatal(err)
			}
		}
		srv := asynq.NewServerFromRedisClient(rdb, asynq.Config{Concurrency: 2, LogLevel: asynq.FatalLevel})
		err := srv.Start(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error { return handle(ctx, rdb, task) }))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second) // before the first retry
		srv.Shutdown()
		for i := range payloads {
			info, err := asynq.NewInspectorFromRedisClient(rdb).GetTaskInfo("default", fmt.Sprint(i))
			if err != nil {
				t.Fatal(err)
			}
			infos = append(infos, info)
		}
	})
	return infos
}

func TestHTTP_OnAsynq(t *testing.T) {
	h := inMemory(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(map[string]int{"/fine": 200, "/gone": 410, "/busy": 503}[r.URL.Path])
		_, _ = io.WriteString(w, "here is <"+r.URL.Path+">")
	})
	tests := []struct {
		payload string
		state   asynq.TaskState
		lastErr string
		result  string // up to duration_ms
	}{
		{`{"url":"http://h/fine"}`, asynq.TaskStateCompleted, "", `{"status":200,"body":"here is </fine>","truncated":false,"length":15,`},
		{
			`{"url":"http://h/gone"}`, asynq.TaskStateArchived, "http://h/gone answered 410 Gone, want any 2xx: skip retry for the task",
			`{"status":410,"body":"here is </gone>","truncated":false,"length":15,`,
		},
		{
			`{"url":"http://h/busy"}`, asynq.TaskStateRetry, "http://h/busy answered 503 Service Unavailable, want any 2xx",
			`{"status":503,"body":"here is </busy>","truncated":false,"length":15,`,
		},
		{
			`{"uri":"http://h"}`, asynq.TaskStateArchived,
			`malformed payload: unknown field "uri": want one of method, url, headers, body, timeout, expect, redirects, hops, keep_headers, save, max_body: skip retry for the task`, "",
		},
	}
	var payloads []string
	for _, tt := range tests {
		payloads = append(payloads, tt.payload)
	}
	handle := func(ctx context.Context, _ redis.UniversalClient, task *asynq.Task) error {
		return h.ProcessTask(ctx, task)
	}
	for i, info := range runJobs(t, handle, payloads...) {
		tt := tests[i]
		kept, _, _ := strings.Cut(string(info.Result), `"duration_ms"`)
		if info.State != tt.state || info.LastErr != tt.lastErr || kept != tt.result || kept != "" && !json.Valid(info.Result) {
			t.Errorf("%s: %s, %q, result %s\nwant %s, %q, %s", tt.payload, info.State, info.LastErr, info.Result, tt.state, tt.lastErr, tt.result)
		}
	}
}

// A result that Redis does not take at once is kept later, and the call is not made again. An answer
// whose result cannot be kept does not count as a success.
func TestHTTP_Result_WaitsForRedis(t *testing.T) {
	const never = 1000 // failed writes, after the first of which the job's context ends
	for _, tt := range []struct {
		status, failures int
		state            asynq.TaskState
		lastErr          string
	}{
		{200, 2, asynq.TaskStateCompleted, ""},
		{200, never, asynq.TaskStateRetry, "cannot store the result: UNKNOWN: redis command error: HSET failed: out of order"},
		{404, never, asynq.TaskStateArchived, "answered 404 Not Found, want any 2xx: skip retry for the task (and cannot store the result: UNKNOWN: redis command error: HSET failed: out of order)"},
	} {
		h := inMemory(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(tt.status) })
		var failed atomic.Int64
		info := runJobs(t, func(ctx context.Context, rdb redis.UniversalClient, task *asynq.Task) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			rdb.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
				if cmd.Name() != "hset" || failed.Add(1) > int64(tt.failures) {
					return next(ctx, cmd)
				}
				if tt.failures == never {
					cancel()
				}
				return errors.New("out of order")
			}))
			return h.ProcessTask(ctx, task)
		}, `{"url":"http://h/"}`)[0]
		if info.State != tt.state || !strings.HasSuffix(info.LastErr, tt.lastErr) || len(info.Result) > 0 != (tt.failures < never) {
			t.Errorf("%d, %d failures: %s, %q, result %s; want %s, %q", tt.status, tt.failures, info.State, info.LastErr, info.Result, tt.state, tt.lastErr)
		}
	}
}

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
