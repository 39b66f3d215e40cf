package api

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/testutil/redistest"
)

const (
	testToken = "open sesame"
	oneJob    = "application/json"
	manyJobs  = "application/x-ndjson"
)

func newHandler(t *testing.T, rdb *redistest.Server, text string) *Handler {
	t.Helper()
	c, err := config.Parse("headgate.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return &Handler{Token: testToken, Config: func() *config.Config { return c }, Client: c.NewClient(rdb.Client())}
}

// post sends a request as clients do.
func (h *Handler) post(t *testing.T, kind string, body io.Reader, change ...func(*http.Request)) (*http.Response, answer) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/jobs", body)
	r.Header.Set("Authorization", "Bearer "+testToken)
	r.Header.Set("Content-Type", kind)
	for _, change := range change {
		change(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	resp := w.Result()
	matchesDescription(t, resp, w.Body.Bytes())
	var a answer
	if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
	return resp, a
}

// slowBody is a request body that sends nothing until the server's deadline has passed.
type slowBody struct{}

func (slowBody) Read([]byte) (int, error) { return 0, fmt.Errorf("read: %w", os.ErrDeadlineExceeded) }

// TestHandler_Statuses: each status that the description has occurs, no other one does, and each answer
// has the described form.
func TestHandler_Statuses(t *testing.T) {
	rdb := redistest.Run(t)
	h := newHandler(t, rdb, "limits: {api: {kind: funnel, rate: 1/s}}\ncommands: {mine: {run: [\"true\"]}}\ntasks: {\"exec:mine\": {limits: [{limit: api, cost: payload.n}]}}\n")
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	const job = `{"type":"exec:mine","payload":{"n":1},"id":"a"}`
	lines := func(n int) string { return strings.Repeat("{\"type\":\"exec:mine\",\"payload\":{\"n\":1}}\n", n) }
	seen := map[string]bool{}
	for _, tt := range []struct {
		name, kind, body string
		change           func(*http.Request)
		code             int
		error            string // the beginning
	}{
		{"no token", oneJob, job, header("Authorization", ""), 401, "the token of the API is missing or wrong"},
		{"a beginning of the token", oneJob, job, header("Authorization", "Bearer open sesam"), 401, "the token of the API is missing or wrong"},
		{"another scheme", oneJob, job, header("Authorization", "Basic "+testToken), 401, "the token of the API is missing or wrong"},
		{"the token in the address", oneJob, job, func(r *http.Request) { r.Header.Del("Authorization"); r.URL.RawQuery = "token=" + testToken }, 401, "the token"},
		{"GET", oneJob, job, func(r *http.Request) { r.Method = http.MethodGet }, 405, "method GET: want POST"},
		{"another path", oneJob, job, func(r *http.Request) { r.URL.Path = "/v1/job" }, 404, "path /v1/job: want /v1/jobs"},
		{"no Content-Type", "", job, nil, 415, `Content-Type ""`},
		{"a form, as curl -d sends it", "application/x-www-form-urlencoded", job, nil, 415, `Content-Type "application/x-www-form-urlencoded": want application/json for a job`},
		{"compressed", oneJob, job, header("Content-Encoding", "gzip"), 415, `Content-Encoding "gzip": want none`},
		{"a slow body", oneJob, "slow", nil, 408, "the body did not come within 30s"},
		{"too long", oneJob, strings.Repeat(" ", maxBody+1), nil, 413, "the body is longer than 4194304 bytes"},
		{"too many", manyJobs, lines(maxJobs + 1), nil, 413, "1001 jobs: want at most 1000"},
		{"as many as allowed", manyJobs, lines(maxJobs), nil, 202, ""},
		{"no job", manyJobs, "\n \n", nil, 400, "the body is empty"},
		{"an empty body", oneJob, "", nil, 400, "job "},
		{"a list", oneJob, "[" + job + "]", nil, 400, "job ["},
		{"two jobs in one", oneJob, job + job, nil, 400, "job "},
		{"an unknown field", oneJob, `{"type":"exec:mine","Queue":"q"}`, nil, 400, `unknown field "Queue": want one of type, payload`},
		{"a cost above the capacity", oneJob, `{"type":"exec:mine","payload":{"n":2}}`, nil, 400, "cost 2 is above the capacity 1 of limit api: it can never run; no job was added"},
		{"a bad line", manyJobs, job + "\n\n{\"type\":\"exec:mine\",\"in\":\"soon\"}", nil, 400, `line 3: in "soon": want a duration in quotes`},
		{"a job", oneJob + "; charset=utf-8", job, nil, 202, ""},
		{"the job again", oneJob, job, nil, 409, `id "a": queue default already has a job with this ID`},
		{"a mixture", "application/jsonl", job + "\r\n{\"type\":\"exec:mine\",\"payload\":{\"n\":1},\"id\":\"b\"}", nil, 202, `id "a": queue default already`},
	} {
		body := io.Reader(strings.NewReader(tt.body))
		if tt.body == "slow" {
			body = slowBody{}
		}
		var changes []func(*http.Request)
		if tt.change != nil {
			changes = append(changes, tt.change)
		}
		resp, a := h.post(t, tt.kind, body, changes...)
		seen[strconv.Itoa(resp.StatusCode)] = true
		if resp.StatusCode != tt.code || !strings.HasPrefix(a.Error, tt.error) || tt.error == "" && a.Error != "" {
			t.Errorf("%s: %d %+v, want %d with %q", tt.name, resp.StatusCode, a, tt.code, tt.error)
		}
		if tt.code >= 400 && a.Enqueued > 0 {
			t.Errorf("%s: %d jobs were added", tt.name, a.Enqueued)
		}
	}

	if err := rdb.Client().ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	resp, a := h.post(t, oneJob, strings.NewReader(`{"type":"exec:mine","payload":{"n":1},"id":"full"}`))
	if seen[strconv.Itoa(resp.StatusCode)] = true; resp.StatusCode != 503 || resp.Header.Get("Retry-After") != "5" || !strings.Contains(a.Error, "OOM") || a.Jobs[0].Status != unknown {
		t.Errorf("a full Redis: %d %v %+v", resp.StatusCode, resp.Header, a)
	}
	off := &Handler{Config: h.Config, Client: h.Client}
	if resp, a := off.post(t, oneJob, strings.NewReader(job), header("Authorization", "Bearer ")); resp.StatusCode != 404 || !strings.HasPrefix(a.Error, "the API is off") {
		t.Errorf("without a token: %d %+v", resp.StatusCode, a)
	}
	if got, want := slices.Sorted(maps.Keys(seen)), slices.Sorted(maps.Keys(describedResponses(t))); !slices.Equal(got, want) {
		t.Errorf("the statuses %q occur, and %s describes %q", got, description, want)
	}
}

// TestHandler_Jobs: jobs have the options of the request and of the config, each line has its result,
// and a repeated request adds none.
func TestHandler_Jobs(t *testing.T) {
	rdb := redistest.Run(t)
	h := newHandler(t, rdb, "tasks: {\"http:request\": {max_retry: 3}}\n")
	const body = "\ufeff" + `{"type":"http:request","payload":{"url":"https://example.com/"},"id":"a","queue":"q","retention":"1h","timeout":"7s"}

{"type":"http:request","payload":{"url":"https://example.com/"},"id":"b","in":"1h"}
{"type":"mine","id":"c","unique":"1h"}
{"type":"mine","id":"d","unique":"1h"}
{"type":"mine","id":"c"}
`
	warnings := []string{`type "mine" is not built in (crawl:fetch, http:request, exec:NAME): only your own worker program can run it`}
	duplicate := "unique: queue default already has a job with this type and payload"
	exists := func(id, queue string) string {
		return fmt.Sprintf("id %q: queue %s already has a job with this ID", id, queue)
	}
	want := answer{Enqueued: 3, There: 2, Error: duplicate, Warnings: warnings, Jobs: []jobAnswer{
		{1, "a", enqueued, ""}, {3, "b", enqueued, ""}, {4, "c", enqueued, ""}, {5, "d", thereAlready, duplicate}, {6, "c", thereAlready, exists("c", "default")},
	}}
	if _, got := h.post(t, manyJobs, strings.NewReader(body)); cmp.Diff(want, got) != "" {
		t.Errorf("-want +got:\n%s", cmp.Diff(want, got))
	}
	resp, got := h.post(t, manyJobs, strings.NewReader(body))
	if resp.StatusCode != 409 || got.Enqueued != 0 || got.There != 5 || got.Error != exists("a", "q") {
		t.Errorf("repeated: %d %+v", resp.StatusCode, got)
	}
	inspector := asynq.NewInspectorFromRedisClient(rdb.Client())
	a, err := inspector.GetTaskInfo("q", "a")
	if err != nil || a.MaxRetry != 3 || a.Timeout != 7*time.Second || a.Retention != time.Hour {
		t.Errorf("job a is %+v, %v", a, err)
	}
	if b, err := inspector.GetTaskInfo("default", "b"); err != nil || b.State != asynq.TaskStateScheduled {
		t.Errorf("job b is %+v, %v", b, err)
	}
	if n := rdb.Client().LLen(t.Context(), asynqdb.Key("default", asynqdb.Pending)).Val(); n != 1 {
		t.Errorf("%d jobs are pending, want c", n)
	}
}

// TestHandler_Batch: jobs of a batch are counted, and what the config says follows the batch.
func TestHandler_Batch(t *testing.T) {
	rdb := redistest.Run(t)
	h := newHandler(t, rdb, "commands: {mine: {run: [\"true\"]}}\non_done: {type: \"exec:mine\", payload: {}}\n")
	if _, a := h.post(t, manyJobs, strings.NewReader(strings.Repeat("{\"type\":\"exec:mine\",\"batch\":\"b\"}\n", 2))); a.Enqueued != 2 {
		t.Fatalf("%+v", a)
	}
	b, err := h.Client.Batch(t.Context(), "b")
	if err != nil || b.Jobs != 2 || b.Unfinished != 2 || b.Closed {
		t.Errorf("%+v, %v; want an open batch of two jobs", b, err)
	}
	if record, err := asynqdb.New(rdb.Client()).Batch(t.Context(), "b"); err != nil || record.FollowUp == nil {
		t.Errorf("nothing follows the batch: %+v, %v", record, err)
	}
}
