package tasks_test

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/tasks"
	"github.com/headgate/headgate/throttle"
)

// upstream is the server of the calls. It answers the first call with a status and a header, all others
// with 200, and records the time of each call.
type upstream struct {
	status int
	header http.Header
	began  time.Time
	calls  []time.Duration
}

func (u *upstream) RoundTrip(r *http.Request) (*http.Response, error) {
	u.calls = append(u.calls, time.Since(u.began))
	resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: r}
	if len(u.calls) == 1 {
		resp.StatusCode, resp.Header = u.status, u.header
	}
	return resp, nil
}

// call is the handler of a program's own calls.
func (u *upstream) call(ctx context.Context, _ *asynq.Task) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://api.example/items", nil)
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Transport: u}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return tasks.CheckResponse(ctx, resp)
}

// serve runs the jobs of type "call" under a rule, in as many workers as there are
// feedbacks, with the limits "host" and "shared".
func (u *upstream) serve(t *testing.T, rdb redis.UniversalClient, rule scheduler.Rule, handle asynq.HandlerFunc, by ...*tasks.Feedback) *throttle.Limiter {
	t.Helper()
	u.began = time.Now()
	quiet := slog.New(slog.DiscardHandler)
	limiter := throttle.New(rdb, throttle.Options{Logger: quiet})
	rules := scheduler.Rules{
		Limits: []throttle.Limit{
			{Name: "host", Kind: throttle.TokenBucket, Rate: throttle.PerSecond(100), Capacity: 100},
			{Name: "shared", Kind: throttle.SlidingLog, Rate: throttle.PerSecond(100)},
		},
		RuleFor: func(context.Context, *asynq.Task) (scheduler.Rule, error) { return rule, nil },
	}
	for _, f := range by {
		server, err := scheduler.NewServer(rdb, rules, asynq.Config{Concurrency: 1, LogLevel: asynq.FatalLevel}, scheduler.WithLogger(quiet))
		if err != nil {
			t.Fatal(err)
		}
		mux := asynq.NewServeMux()
		mux.Use(f.Middleware)
		mux.Handle("call", handle)
		mux.Handle(tasks.TypeHTTPRequest, &tasks.HTTPHandler{Transport: u})
		if err := server.Start(mux); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(server.Shutdown)
	}
	return limiter
}

func enqueue(t *testing.T, rdb redis.UniversalClient, jobs ...*asynq.Task) {
	t.Helper()
	for _, job := range jobs {
		if _, err := scheduler.NewClient(rdb).Enqueue(job, asynq.MaxRetry(0)); err != nil {
			t.Fatal(err)
		}
	}
}

func byHost() scheduler.Rule {
	return scheduler.Rule{Needs: []throttle.Need{{Limit: "host", Key: "api.example"}, {Limit: "shared"}}}
}

// After a 429 no job of any worker makes a call until the block ends, and no job spends an attempt. This
// holds for http:request and for a handler of the program's own.
func TestFeedback_429_StopsAllWorkers(t *testing.T) {
	request, err := tasks.NewHTTPRequest(tasks.HTTPRequest{URL: "https://api.example/items"})
	if err != nil {
		t.Fatal(err)
	}
	for _, job := range []*asynq.Task{request, asynq.NewTask("call", nil)} {
		t.Run(job.Type(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, rdb := redistest.Mini(t)
				u := &upstream{status: http.StatusTooManyRequests, header: http.Header{"Retry-After": {"60"}}}
				u.serve(t, rdb, byHost(), u.call, new(tasks.Feedback), new(tasks.Feedback))
				enqueue(t, rdb, job)
				time.Sleep(5 * time.Second)
				enqueue(t, rdb, job, job, job, job)
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				if len(u.calls) != 6 || u.calls[1] < time.Minute || u.calls[5] > 62*time.Second {
					t.Errorf("the calls came after %v: want one, and five as soon as a minute is over", u.calls)
				}
				if queue, err := asynq.NewInspectorFromRedisClient(rdb).GetQueueInfo("default"); err != nil || queue.Size != 0 || queue.FailedTotal != 0 {
					t.Errorf("%+v, %v: want all jobs done, and no failure", queue, err)
				}
			})
		})
	}
}

// A response blocks limits whose key is the host, and limits that the rule names, for a day at most.
// Its time does not count for other limits.
func TestFeedback_Blocks(t *testing.T) {
	year := http.Header{"Retry-After": {"99999999"}}
	usedUp := http.Header{"X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"600"}}
	one := func(n throttle.Need) scheduler.Rule { return scheduler.Rule{Needs: []throttle.Need{n}} }
	shared := one(throttle.Need{Limit: "shared"})
	named := scheduler.Rule{Needs: shared.Needs, BlockOnRateLimit: []string{"shared"}}
	for _, tt := range []struct {
		name    string
		rule    scheduler.Rule
		status  int
		header  http.Header
		blocked string // limit|key, and for how long
	}{
		{"the host's own key", byHost(), 429, year, "host|api.example 24h0m0s"},
		{"503 with a time", byHost(), 503, year, "host|api.example 24h0m0s"},
		{"a used-up quota of a call that is done", byHost(), 200, usedUp, "host|api.example 10m0s"},
		{"403 with a used-up quota", byHost(), 403, usedUp, "host|api.example 10m0s"},
		{"202 that says when to look again", byHost(), 202, year, ""},
		{"404 with a time", byHost(), 404, year, ""},
		{"500 with a time", byHost(), 500, year, ""},
		{"403 with a time", byHost(), 403, year, "host|api.example 24h0m0s"},
		{"another's key", one(throttle.Need{Limit: "host", Key: "other.example"}), 503, year, ""},
		{"what others share", shared, 503, year, ""},
		{"what others share, as the program says", named, 503, year, "shared| 24h0m0s"},
		{"503 without a time", byHost(), 503, nil, ""},
		{"500", byHost(), 500, nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, rdb := redistest.Mini(t)
				u := &upstream{status: tt.status, header: tt.header}
				limiter := u.serve(t, rdb, tt.rule, u.call, &tasks.Feedback{Log: slog.New(slog.DiscardHandler)})
				enqueue(t, rdb, asynq.NewTask("call", nil))
				time.Sleep(5 * time.Second)
				blocked := ""
				for _, limit := range []string{"host", "shared"} {
					blocks, err := limiter.Blocks(t.Context(), limit)
					if err != nil {
						t.Fatal(err)
					}
					for _, b := range blocks {
						blocked += fmt.Sprintf("%s|%s %s", limit, b.Key, (time.Until(b.Until) + 5*time.Second).Round(5*time.Second))
					}
				}
				if blocked != tt.blocked {
					t.Errorf("blocked is %q, want %q", blocked, tt.blocked)
				}
			})
		})
	}
}

// A 429 without a time blocks shared limits, too, for a moment. The job is called again, and
// spends no attempt.
func TestFeedback_429WithoutTime_BlocksBriefly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Mini(t)
		u := &upstream{status: http.StatusTooManyRequests}
		u.serve(t, rdb, scheduler.Rule{Needs: []throttle.Need{{Limit: "shared"}}}, u.call, new(tasks.Feedback))
		enqueue(t, rdb, asynq.NewTask("call", nil))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if len(u.calls) != 2 || u.calls[1]-u.calls[0] < 500*time.Millisecond {
			t.Errorf("the calls came after %v: want another, half a second later at least", u.calls)
		}
	})
}

// Later jobs owe what a job has really cost: here 100 permits of 100 a second, by a result in Redis. An
// error leaves the cost, is logged, and fails no job.
func TestFeedback_Costs(t *testing.T) {
	for name, fails := range map[string]error{"costs": nil, "unknown costs": errors.New("no usage")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, rdb := redistest.Mini(t)
				var log bytes.Buffer
				f := &tasks.Feedback{Results: asynq.NewInspectorFromRedisClient(rdb), Log: slog.New(slog.NewTextHandler(&log, nil))}
				f.Costs = func(_ context.Context, _ *asynq.Task, result func() ([]byte, error)) (map[string]int, error) {
					used, err := result()
					return map[string]int{"host": len(used)}, errors.Join(err, fails)
				}
				u := &upstream{status: http.StatusOK}
				limiter := u.serve(t, rdb, byHost(), func(_ context.Context, task *asynq.Task) error {
					_, err := task.ResultWriter().Write(bytes.Repeat([]byte("x"), 10_000))
					return err
				}, f)
				enqueue(t, rdb, asynq.NewTask("call", nil))
				time.Sleep(10 * time.Second)
				synctest.Wait()
				d, err := limiter.AllowN(t.Context(), "host", "api.example", 0)
				if err != nil {
					t.Fatal(err)
				}
				owed, logged := d.Remaining == 0, strings.Contains(log.String(), "no usage")
				if owed != (fails == nil) || logged != (fails != nil) {
					t.Errorf("%s, and the log is %q", d, log.String())
				}
				if queue, err := asynq.NewInspectorFromRedisClient(rdb).GetQueueInfo("default"); err != nil || queue.FailedTotal != 0 {
					t.Errorf("%+v, %v: want no failure", queue, err)
				}
			})
		})
	}
}

// Under a plain asynq server an answer is an error as that of http:request, and archives the
// job if the same call would get the same answer.
func TestCheckResponse(t *testing.T) {
	for status, want := range map[int]string{200: "", 204: "", 304: "retry", 400: "archive", 403: "archive", 404: "archive", 408: "retry", 429: "retry", 500: "retry", 503: "retry"} {
		got := ""
		err := tasks.CheckResponse(t.Context(), &http.Response{StatusCode: status})
		answer, is := errors.AsType[*tasks.StatusError](err)
		switch {
		case errors.Is(err, asynq.SkipRetry):
			got = "archive"
		case err != nil:
			got = "retry"
		}
		if got != want || is != (want != "") || is && answer.Status != status {
			t.Errorf("%d: %v, want %q", status, err, want)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://ada:secret@api.example/items?token=secret", nil)
	if err != nil {
		t.Fatal(err)
	}
	err = tasks.CheckResponse(t.Context(), &http.Response{StatusCode: 500, Request: req})
	if text := err.Error(); !strings.Contains(text, "api.example/items") || strings.Contains(text, "secret") {
		t.Errorf("%q: want the URL, and no secret of it", text)
	}
}

// The program's Judge decides by the beginning of the body, which the handler can read again.
func TestFeedback_Judge(t *testing.T) {
	long := strings.Repeat("x", tasks.MaxJudgedBody+5)
	for name, tt := range map[string]struct {
		verdict tasks.Verdict
		err     string
		limited bool
	}{
		"by the status": {tasks.VerdictByStatus, "", false},
		"rate limited":  {tasks.VerdictRateLimited, "https://api.example/items answered 200 OK, which is a rate limit here", true},
		"retry":         {tasks.VerdictRetry, "https://api.example/items answered 200 OK, which is a failure here", false},
	} {
		t.Run(name, func(t *testing.T) {
			asked, body := 0, ""
			f := &tasks.Feedback{Judge: func(_ context.Context, task *asynq.Task, r tasks.Response) tasks.Verdict {
				asked = len(r.Body()) + len(r.Body())
				if task.Type() != "call" || r.Status != 200 {
					t.Errorf("asked about %s, %d", task.Type(), r.Status)
				}
				return tt.verdict
			}}
			err := f.Middleware(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
				req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "https://api.example/items", nil)
				resp := &http.Response{StatusCode: 200, Request: req, Body: io.NopCloser(strings.NewReader(long))}
				err := tasks.CheckResponse(ctx, resp)
				read, _ := io.ReadAll(resp.Body)
				body = string(read)
				return err
			})).ProcessTask(t.Context(), asynq.NewTask("call", nil))
			if fmt.Sprint(err) != cmp.Or(tt.err, "<nil>") || errors.Is(err, asynq.SkipRetry) || scheduler.IsPutBack(err) != tt.limited {
				t.Errorf("%v, put back: %v", err, scheduler.IsPutBack(err))
			}
			if asked != 2*tasks.MaxJudgedBody || body != long {
				t.Errorf("the judge got %d bytes, the handler %d of %d", asked/2, len(body), len(long))
			}
		})
	}
}

// TestFeedback_JudgeGzip: the Judge gets the content of a compressed body, and the handler the body. The
// content is bounded, too.
func TestFeedback_JudgeGzip(t *testing.T) {
	for name, content := range map[string]string{"short": `{"errors":[1]}`, "long": strings.Repeat("x", 100*tasks.MaxJudgedBody), "no gzip": ""} {
		t.Run(name, func(t *testing.T) {
			packed, want := bytes.NewBufferString("text"), "text"
			if content != "" {
				packed.Reset()
				w := gzip.NewWriter(packed)
				io.WriteString(w, content)
				w.Close()
				want = content[:min(len(content), tasks.MaxJudgedBody)]
			}
			judged, body := "", ""
			f := &tasks.Feedback{Judge: func(_ context.Context, _ *asynq.Task, r tasks.Response) tasks.Verdict {
				judged = string(r.Body())
				return tasks.VerdictByStatus
			}}
			err := f.Middleware(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
				resp := &http.Response{StatusCode: 200, Header: http.Header{"Content-Encoding": {"gzip"}}, Body: io.NopCloser(bytes.NewReader(packed.Bytes()))}
				err := tasks.CheckResponse(ctx, resp)
				read, _ := io.ReadAll(resp.Body)
				body = string(read)
				return err
			})).ProcessTask(t.Context(), asynq.NewTask("call", nil))
			if err != nil || judged != want || body != packed.String() {
				t.Errorf("%v, the judge got %.40q (%d bytes), want %.40q (%d)", err, judged, len(judged), want, len(want))
			}
		})
	}
}
