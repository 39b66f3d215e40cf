package worker

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/tasks"
	"github.com/headgate/headgate/throttle"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// evilAnswers would block a limit for a year, each in its own way.
var evilAnswers = map[string]struct {
	status int
	header http.Header
}{
	"429": {429, http.Header{"Retry-After": {"99999999999"}}},
	"503": {503, http.Header{"Retry-After": {"99999999999"}}},
	"403": {403, http.Header{"X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"999999999"}}},
	"404": {404, http.Header{"X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"999999999"}}},
	"200": {200, http.Header{"X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"999999999"}}},
}

// A host that answers with harm shuts what its own key is, and for as long as the limit
// allows; a limit that others share it shuts only where the config trusts it.
func TestAnswer_Blocks(t *testing.T) {
	for _, tt := range []struct {
		name, task string
		blocked    map[string]time.Duration // by limit and key
	}{
		{"nothing that others share", `{limits: [{limit: shared}]}`, nil},
		{"nor by another key", `{limits: [{limit: keyed, key: payload.method}]}`, nil},
		{"its own key", `{limits: [{limit: shared}, {limit: keyed, key: host(payload.url)}]}`, map[string]time.Duration{"keyed|evil.example": time.Hour}},
		{"all, if trusted", `{limits: [{limit: shared}], retry_after_scope: all}`, map[string]time.Duration{"shared|": throttle.Day}},
		{"what the config names", `{limits: [{limit: shared}], block_on_429: [shared]}`, map[string]time.Duration{"shared|": throttle.Day}},
	} {
		for answer, evil := range evilAnswers {
			t.Run(tt.name+"/"+answer, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					conf := parse(t, `
limits:
  shared: {kind: sliding_log, rate: 100/s}
  keyed: {kind: sliding_log, rate: 100/s, max_block: 1h}
tasks:
  http:request: `+tt.task)
					calls := map[string]int{}
					transport := roundTrip(func(r *http.Request) (*http.Response, error) {
						calls[r.Host]++
						resp := &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody, Request: r}
						if r.Host == "evil.example" && calls[r.Host] == 1 {
							resp.StatusCode, resp.Header = evil.status, evil.header
						}
						return resp, nil
					})
					w, _ := upstreamWorker(t, conf, transport)
					limiter := throttle.New(w.options.Redis, throttle.Options{})
					enqueue := func(host string) {
						enqueueCall(t, w.options.Redis, "http://"+host+"/")
					}
					enqueue("evil.example")
					time.Sleep(5 * time.Second)
					synctest.Wait()
					blocked := map[string]time.Duration{}
					for _, limit := range []string{"shared", "keyed"} {
						blocks, err := limiter.Blocks(t.Context(), limit)
						if err != nil {
							t.Fatal(err)
						}
						for _, b := range blocks {
							if time.Until(b.Until) > time.Minute { // more than a block without a time
								blocked[limit+"|"+b.Key] = (time.Until(b.Until) + 5*time.Second).Round(5 * time.Second)
							}
						}
					}
					if fmt.Sprint(blocked) != fmt.Sprint(tt.blocked) {
						t.Errorf("blocked are %v, want %v", blocked, tt.blocked)
					}
					enqueue("good.example")
					time.Sleep(20 * time.Second)
					synctest.Wait()
					if want := tt.blocked["shared|"] == 0; calls["good.example"] != map[bool]int{true: 1}[want] {
						t.Errorf("a host that did no harm was called %d times", calls["good.example"])
					}
				})
			})
		}
	}
}

// A 429 blocks a limit without a key, but not until the time in the answer: for five minutes at most.
func TestAnswer_429_BlocksSharedLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conf := parse(t, "limits: {api: {kind: sliding_log, rate: 100/s}}\ntasks: {\"http:request\": {limits: [{limit: api}]}}")
		calls, evil := 0, evilAnswers["429"]
		w, _ := upstreamWorker(t, conf, roundTrip(func(r *http.Request) (*http.Response, error) {
			calls++
			return &http.Response{StatusCode: evil.status, Header: evil.header, Body: http.NoBody, Request: r}, nil
		}))
		enqueueCall(t, w.options.Redis, "http://evil.example/")
		longest := time.Duration(0)
		limiter := throttle.New(w.options.Redis, throttle.Options{})
		for range time.Hour / (10 * time.Second) {
			time.Sleep(10 * time.Second)
			blocks, err := limiter.Blocks(t.Context(), "api")
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range blocks {
				longest = max(longest, time.Until(b.Until))
			}
		}
		if longest < time.Minute || longest > 5*time.Minute || calls < 10 || calls > 30 {
			t.Errorf("blocked for %s at most, in %d calls of an hour", longest, calls)
		}
	})
}

// A condition on status, header and body decides instead of the status: the keys are blocked and the
// job spends no attempt, or the attempt fails and is retried. The result has the whole body.
func TestAnswer_Conditions(t *testing.T) {
	const conditions = `
    rate_limited_if: 'status in [403, 409] && json?.error?.reason == "quotaExceeded" || header("X-Reason") == "limit"'
    retry_if: 'json?.errors != nil || task.type == "crawl:fetch" && status == 404'`
	for name, tt := range map[string]struct {
		typename, body string
		status         int
		header         http.Header
		blocked        bool
		calls, retried int
		after          time.Duration // of the second call
	}{
		"403 of a quota":        {status: 403, body: `{"error":{"reason":"quotaExceeded"}}`, blocked: true, calls: 2, after: 500 * time.Millisecond},
		"409 of a quota, time":  {status: 409, body: `{"error":{"reason":"quotaExceeded"}}`, header: http.Header{"Retry-After": {"60"}}, blocked: true, calls: 2, after: time.Minute},
		"200 by a header":       {status: 200, header: http.Header{"X-Reason": {"limit"}}, blocked: true, calls: 2, after: 500 * time.Millisecond},
		"302 by a header":       {status: 302, header: http.Header{"X-Reason": {"limit"}, "Location": {"/x"}}, blocked: true, calls: 2, after: 500 * time.Millisecond},
		"403 of something else": {status: 403, body: `{"error":{"reason":"forbidden"}}`, calls: 1},
		"403, no JSON":          {status: 403, body: `<html>`, calls: 1},
		"GraphQL, an error":     {status: 200, body: `{"data":null,"errors":[{"message":"busy"}]}`, calls: 2, retried: 1},
		"GraphQL, told a time":  {status: 200, body: `{"errors":[]}`, header: http.Header{"Retry-After": {"60"}}, calls: 2, retried: 1, after: time.Minute},
		"GraphQL, no error":     {status: 200, body: `{"data":{}}`, calls: 1},
		"crawl, a quota":        {typename: "crawl:fetch", status: 200, header: http.Header{"X-Reason": {"limit"}}, blocked: true, calls: 2, after: 500 * time.Millisecond},
		"crawl, 404":            {typename: "crawl:fetch", status: 404, calls: 2, retried: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				typename := cmp.Or(tt.typename, "http:request")
				conf := parse(t, "limits: {host: {kind: sliding_log, rate: 100/s}}\ntasks:\n  "+typename+":\n    limits: [{limit: host, key: host(payload.url)}]"+conditions)
				var calls []time.Time
				w, said := upstreamWorker(t, conf, roundTrip(func(r *http.Request) (*http.Response, error) {
					resp := &http.Response{StatusCode: 404, Header: http.Header{}, Body: http.NoBody, Request: r}
					if r.URL.Path == "/robots.txt" {
						return resp, nil
					}
					resp.StatusCode, resp.Body = 200, io.NopCloser(strings.NewReader("the whole body"))
					if calls = append(calls, time.Now()); len(calls) == 1 {
						resp.StatusCode, resp.Body = tt.status, io.NopCloser(strings.NewReader(tt.body))
						resp.Header = maps.Clone(tt.header)
					}
					return resp, nil
				}))
				payload := map[string]string{"http:request": `{"url":"http://api.example/"}`, "crawl:fetch": `{"url":"http://api.example/","crawl":"it"}`}
				id := addJob(t, w.options.Redis, typename, payload[typename])
				time.Sleep(400 * time.Millisecond)
				blocks, err := throttle.New(w.options.Redis, throttle.Options{}).Blocks(t.Context(), "host")
				if err != nil || (len(blocks) > 0) != tt.blocked {
					t.Errorf("blocked are %v, %v, want %v", blocks, err, tt.blocked)
				}
				time.Sleep(2 * time.Minute)
				info, err := asynq.NewInspectorFromRedisClient(w.options.Redis).GetTaskInfo("default", id)
				if err != nil {
					t.Fatal(err)
				}
				if len(calls) != tt.calls || info.Retried != tt.retried {
					t.Fatalf("%d calls, %d retries, want %d and %d; the log says\n%s", len(calls), info.Retried, tt.calls, tt.retried, said)
				}
				if tt.calls == 2 && calls[1].Sub(calls[0]) < tt.after {
					t.Errorf("called again after %s, want %s", calls[1].Sub(calls[0]), tt.after)
				}
				if body := cmp.Or(map[bool]string{true: "the whole body"}[tt.calls == 2], tt.body); typename == "http:request" && !strings.Contains(string(info.Result), strings.ReplaceAll(body, `"`, `\"`)) {
					t.Errorf("the result is %s, want its body %s", info.Result, body)
				}
			})
		})
	}
}

// A call that the upstream always refuses does not keep the other jobs of its host waiting, whatever
// status says so: they run within their max_wait, and the refused one ends in the archive.
func TestAnswer_RefusedJob_HoldsUpNoOthers(t *testing.T) {
	for name, refusal := range map[string]http.Response{
		"429":             {StatusCode: 429},
		"503 with a time": {StatusCode: 503, Header: http.Header{"Retry-After": {"2"}}},
		"529 with a time": {StatusCode: 529, Header: http.Header{"Retry-After": {"2"}}},
		"a condition":     {StatusCode: 402},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conf := parse(t, `
limits: {host: {kind: funnel, rate: 1/s}}
tasks: {"http:request": {limits: [{limit: host, key: host(payload.url)}], max_wait: 15s, rate_limited_if: status == 402}}`)
				w, said := upstreamWorker(t, conf, roundTrip(func(r *http.Request) (*http.Response, error) {
					resp := &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody, Request: r}
					if r.URL.Path == "/refused" {
						resp.StatusCode, resp.Header = refusal.StatusCode, maps.Clone(refusal.Header)
					}
					return resp, nil
				}))
				refused := addJob(t, w.options.Redis, "http:request", `{"url":"http://api.example/refused"}`)
				var others []string
				for i := range 10 {
					others = append(others, addJob(t, w.options.Redis, "http:request", fmt.Sprintf(`{"url":"http://api.example/%d"}`, i)))
				}
				time.Sleep(10 * time.Minute)
				inspector := asynq.NewInspectorFromRedisClient(w.options.Redis)
				for _, id := range others {
					if info, err := inspector.GetTaskInfo("default", id); err != nil || info.State != asynq.TaskStateCompleted {
						t.Fatalf("%+v, %v, want it completed; the log says\n%s", info, err, said)
					}
				}
				info, err := inspector.GetTaskInfo("default", refused)
				if err != nil || info.State != asynq.TaskStateArchived || info.Retried != info.MaxRetry || asynqdb.Refusals(throttle.JobID{Queue: "default", ID: refused}, info.Headers) != 2+info.MaxRetry+1 {
					t.Errorf("%+v, %v, want the refused job archived after all attempts; the log says\n%s", info, err, said)
				}
			})
		})
	}
}

// addJob enqueues a job that is kept when it is done, and returns its ID.
func addJob(t *testing.T, rdb redis.UniversalClient, typename, payload string) string {
	t.Helper()
	info, err := scheduler.NewClient(rdb).Enqueue(asynq.NewTask(typename, []byte(payload)), asynq.Retention(time.Hour), asynq.MaxRetry(3))
	if err != nil {
		t.Fatal(err)
	}
	return info.ID
}

// A condition that fails counts as false, and the worker says which one.
func TestAnswer_ConditionFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conf := parse(t, "tasks: {\"http:request\": {retry_if: 'json.error.code == 7'}}")
		w, said := upstreamWorker(t, conf, roundTrip(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
		}))
		id := addJob(t, w.options.Redis, "http:request", `{"url":"http://api.example/"}`)
		time.Sleep(5 * time.Second)
		info, err := asynq.NewInspectorFromRedisClient(w.options.Redis).GetTaskInfo("default", id)
		if err != nil || info.State != asynq.TaskStateCompleted || !strings.Contains(said.String(), "condition json.error.code == 7: there is no error") {
			t.Errorf("%+v, %v, want the job done; the log says\n%s", info, err, said)
		}
	})
}

// slowBody takes its time before it ends.
type slowBody time.Duration

func (s slowBody) Read([]byte) (int, error) { time.Sleep(time.Duration(s)); return 0, io.EOF }
func (s slowBody) Close() error             { return nil }

// A Retry-After counts from when it came: what is read and kept after it takes time.
func TestAnswer_RetryAfter_CountsFromHeader(t *testing.T) {
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		synctest.Test(t, func(t *testing.T) {
			conf := parse(t, `
limits:
  host: {kind: sliding_log, rate: 100/s}
tasks:
  http:request: {limits: [{limit: host, key: host(payload.url)}]}`)
			began, again := time.Now(), time.Duration(0)
			w, _ := upstreamWorker(t, conf, roundTrip(func(r *http.Request) (*http.Response, error) {
				resp := &http.Response{StatusCode: status, Header: http.Header{"Retry-After": {"60"}}, Body: slowBody(20 * time.Second), Request: r}
				if again = time.Since(began); again > time.Second {
					resp.StatusCode, resp.Header, resp.Body = http.StatusOK, http.Header{}, http.NoBody
				}
				return resp, nil
			}))
			enqueueCall(t, w.options.Redis, "http://slow.example/")
			time.Sleep(5 * time.Minute)
			if again < time.Minute || again > 62*time.Second {
				t.Errorf("%d: called again after %s, want a minute", status, again)
			}
		})
	}
}

// upstreamWorker runs a worker of a config in a bubble, and returns its log.
func upstreamWorker(t *testing.T, conf *config.Config, transport http.RoundTripper) (*Worker, *bytes.Buffer) {
	t.Helper()
	_, rdb := redistest.Mini(t)
	said := new(bytes.Buffer)
	conf.Concurrency = 1
	return run(t, conf, Options{Redis: rdb, Transport: transport, Log: slog.New(slog.NewTextHandler(said, nil))}), said
}

// Jobs that are rejected before any call spend no permits.
func TestJobs_WithoutCall_TakeNoPermits(t *testing.T) {
	jobs := []*asynq.Task{
		asynq.NewTask(tasks.TypeHTTPRequest, []byte(`{"url":"http://10.1.2.3/NUMBER"}`)),
		asynq.NewTask(tasks.TypeHTTPRequest, []byte(`{"uri":"https://example.com/"}`)),
		asynq.NewTask(tasks.PrefixExec+"say", []byte(`[]`)),
	}
	synctest.Test(t, func(t *testing.T) {
		conf := parse(t, `
unknown_for: 5s
limits:
  daily: {kind: fixed_window, rate: 2000/day}
tasks:
  http:request: {limits: [{limit: daily}]}
  exec:say: {limits: [{limit: daily}]}
commands: {say: {run: [echo]}}
`)
		w, _ := upstreamWorker(t, conf, nil)
		limiter := throttle.New(w.options.Redis, throttle.Options{})
		for i := range 20 {
			for _, job := range jobs {
				payload := strings.Replace(string(job.Payload()), "NUMBER", fmt.Sprint(i), 1)
				if _, err := scheduler.NewClient(w.options.Redis).Enqueue(asynq.NewTask(job.Type(), []byte(payload))); err != nil {
					t.Fatal(err)
				}
			}
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if d, err := limiter.AllowN(t.Context(), "daily", "", 0); err != nil || d.Remaining != 2000 {
			t.Errorf("%d of 2000 permits are left, %v: want all", d.Remaining, err)
		}
		if queue, err := asynq.NewInspectorFromRedisClient(w.options.Redis).GetQueueInfo("default"); err != nil || queue.Archived != 60 {
			t.Errorf("%+v, %v: want 60 archived jobs", queue, err)
		}
		if d, err := limiter.AllowN(t.Context(), "daily", "", 2000); err != nil || !d.OK() {
			t.Fatal(d, err)
		}
		if _, err := scheduler.NewClient(w.options.Redis).Enqueue(jobs[1]); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if queue, err := asynq.NewInspectorFromRedisClient(w.options.Redis).GetQueueInfo("default"); err != nil || queue.Archived != 61 {
			t.Errorf("%+v, %v: want a malformed job archived although no permit is left", queue, err)
		}
	})
}

// A call that cannot connect gives back what it took of quotas, and is tried no faster than the
// funnel lets calls through. What left its worker counts, whatever comes of it.
func TestJobs_WithoutConnection_GiveBackQuotas(t *testing.T) {
	for _, tt := range []struct {
		name     string
		err      error
		sent     bool
		attempts int // of ten jobs; one that is not allowed to this worker is put back once
		daily    int // permits left after them
	}{
		{"no connection", errors.New("connection refused"), false, 10, 2000},
		{"not public", &tasks.AddressError{}, false, 20, 2000},
		{"a connection that broke off", errors.New("EOF"), true, 10, 1990},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conf := parse(t, `
unknown_for: 1us
limits:
  daily: {kind: fixed_window, rate: 2000/day}
  host:  {kind: funnel, rate: 1/s}
tasks:
  http:request: {max_retry: 0, limits: [{limit: daily}, {limit: host, key: host(payload.url)}]}
`)
				var attempts []time.Time
				w, _ := upstreamWorker(t, conf, roundTrip(func(r *http.Request) (*http.Response, error) {
					attempts = append(attempts, time.Now())
					trace := httptrace.ContextClientTrace(r.Context())
					trace.GetConn("api.example:80")
					if tt.sent {
						trace.GotConn(httptrace.GotConnInfo{})
					}
					return nil, tt.err
				}))
				for range 10 {
					enqueueCall(t, w.options.Redis, "http://api.example/")
				}
				time.Sleep(30 * time.Second)
				synctest.Wait()
				d, err := throttle.New(w.options.Redis, throttle.Options{}).AllowN(t.Context(), "daily", "", 0)
				if err != nil || d.Remaining != tt.daily || len(attempts) != tt.attempts {
					t.Errorf("%d permits are left after %d attempts, %v: want %d", d.Remaining, len(attempts), err, tt.daily)
				}
				_, isUnable := errors.AsType[*tasks.AddressError](tt.err)
				if took := attempts[len(attempts)-1].Sub(attempts[0]); !isUnable && took < 8*time.Second {
					t.Errorf("ten attempts in %s, want no more than one a second", took)
				}
			})
		})
	}
}
