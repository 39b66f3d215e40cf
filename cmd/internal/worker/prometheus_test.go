package worker

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/testutil/proctest"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// TestPrometheus has a real Prometheus scrape a worker under load, and asks it for
// each metric that there is, and for all that the dashboards and rules ask. make
// test installs it.
func TestPrometheus(t *testing.T) {
	t.Parallel()
	api := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/broken":
			out.WriteHeader(http.StatusInternalServerError)
		case "/busy":
			out.Header().Set("Retry-After", "3600")
			out.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer api.Close()
	rdb := redistest.Run(t)
	target, _ := runWorker(t, rdb, fmt.Sprintf(`
limits:
  api:     {kind: sliding_log, rate: 1/s}
  account: {kind: funnel, rate: 1000/s, capacity: 1000}
  off:     {kind: funnel, rate: 1/s}
http: {allow_private: [127.0.0.0/8]}
tasks: {"http:request": {limits: [{limit: api}, {limit: account, key: payload.headers.Account}]}}
schedules: {second: {cron: "@every 1s", task: "http:request", payload: {url: %s, headers: {Account: clock}}}}
`, api.URL))
	load(t, rdb, api.URL)
	prometheus := runPrometheus(t, strings.TrimPrefix(target, "http://"))

	queries := append(metricNames(t), dashboardQueries(t)...)
	for _, query := range append(queries, rules(t, prometheus)...) {
		proctest.Until(t, query, func() (bool, any) { return len(results(t, prometheus, query)) > 0, nil })
	}
	for _, moving := range []string{
		`headgate_decisions_total{limit="api",outcome="denied"}`, `headgate_lateness_seconds_count`, `headgate_wait_seconds_count`,
		`headgate_jobs_total{outcome="failed",task="http:request"}`, `headgate_scope_waiting_permits{limit="api"}`,
		`headgate_scope_permits_used{limit="api"}`, `headgate_dispatch_round_duration_seconds_count`,
		`headgate_scope_schedule_ticks_total{schedule="second",outcome="enqueued"}`,
		`headgate_upstream_rate_limited_total{limit="account"}`, `headgate_scope_blocked_keys{limit="account"}`, `headgate_unkeyed_permits_total{limit="api"}`,
	} {
		proctest.Until(t, moving, func() (bool, any) {
			values := results(t, prometheus, moving)
			return slices.Max(append(values, 0)) > 0, values
		})
	}
	checkMetrics(t, target)
}

// metricNames lists all metrics of a worker.
func metricNames(t *testing.T) []string {
	t.Helper()
	names := []string{"headgate_config_applied"}
	for line := range strings.Lines(proctest.ReadFile(t, "../../../dashboards/metrics/testdata/metrics.txt")) {
		fields := strings.Fields(line)
		if fields[1] == "histogram" {
			fields[0] += "_bucket"
		}
		names = append(names, fields[0])
	}
	return names
}

// dashboardQueries lists what the dashboards ask, with their variables filled in.
func dashboardQueries(t *testing.T) (queries []string) {
	t.Helper()
	variables := strings.NewReplacer("$scope", "default", "$__rate_interval", "30s", "$__range", "1m")
	for _, name := range []string{"headgate.json", "jobs.json"} {
		text := proctest.ReadFile(t, "../../../dashboards/grafana/"+name)
		var board struct {
			Panels []struct{ Targets []struct{ Expr string } }
		}
		if err := json.Unmarshal([]byte(text), &board); err != nil {
			t.Fatal(err)
		}
		for _, p := range board.Panels {
			for _, target := range p.Targets {
				queries = append(queries, variables.Replace(target.Expr))
			}
		}
	}
	if len(queries) == 0 {
		t.Fatal("no queries on the dashboards")
	}
	return queries
}

// rules waits until Prometheus has evaluated all rules without an error, and lists the names of
// recording rules.
func rules(t *testing.T, prometheus string) (records []string) {
	t.Helper()
	var answer struct {
		Data struct {
			Groups []struct {
				Rules []struct{ Name, Type, Health, LastError string }
			}
		}
	}
	proctest.Until(t, "evaluation of the rules", func() (bool, any) {
		_, text := proctest.Get(t, prometheus+"/api/v1/rules")
		if err := json.Unmarshal([]byte(text), &answer); err != nil {
			t.Fatal(err)
		}
		return len(answer.Data.Groups) > 0 && !strings.Contains(text, `"health":"unknown"`), text
	})
	for _, g := range answer.Data.Groups {
		for _, r := range g.Rules {
			if r.Health != "ok" {
				t.Errorf("rule %s is %s: %s", r.Name, r.Health, r.LastError)
			}
			if r.Type == "recording" {
				records = append(records, r.Name)
			}
		}
	}
	return records
}

// load enqueues jobs. The schedule adds a job for each one that runs, so jobs wait as long as Prometheus
// takes. Some fail and one is rate limited. It pauses a limit and a queue.
func load(t *testing.T, rdb *redistest.Server, api string) {
	t.Helper()
	redis := rdb.Client()
	defer redis.Close()
	client := asynq.NewClientFromRedisClient(redis)
	enqueue := func(path, account string, opts ...asynq.Option) {
		payload, err := json.Marshal(map[string]any{"url": api + path, "headers": map[string]string{"Account": account}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Enqueue(asynq.NewTask("http:request", payload), append(opts, asynq.MaxRetry(0))...); err != nil {
			t.Fatal(err)
		}
	}
	enqueue("/busy", "blocked")
	enqueue("/", "a", asynq.Queue("paused"))
	for i := range 100 {
		path := "/"
		if i%10 == 0 {
			path = "/broken"
		}
		enqueue(path, "a")
	}
	limiter := throttle.New(redis, throttle.Options{})
	if err := asynq.NewInspectorFromRedisClient(redis).PauseQueue("paused"); err != nil {
		t.Fatal(err)
	}
	proctest.Until(t, "limit off of the worker's config", func() (bool, any) {
		err := limiter.Pause(t.Context(), "off")
		return err == nil, err
	})
}

// runPrometheus scrapes a target, and evaluates the rules, each second until the test
// ends.
func runPrometheus(t *testing.T, target string) (url string) {
	t.Helper()
	dir := t.TempDir()
	rules, err := filepath.Abs("../../../dashboards/rules/headgate.yaml")
	if err != nil {
		t.Fatal(err)
	}
	proctest.Replace(t, filepath.Join(dir, "prometheus.yml"), "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\n"+
		"rule_files: ["+rules+"]\nscrape_configs: [{job_name: worker, static_configs: [{targets: ["+target+"]}]}]\n")
	url = proctest.Process(t, nil, "prometheus", "--config.file="+filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address=127.0.0.1:0").URL(t)
	proctest.Until(t, "Prometheus", func() (bool, any) {
		status, text := proctest.Get(t, url+"/-/ready")
		return status == http.StatusOK, text
	})
	return url
}

// results returns the values of an expression, of each series that has one.
func results(t *testing.T, prometheus, expression string) (values []float64) {
	t.Helper()
	status, text := proctest.Get(t, prometheus+"/api/v1/query?query="+url.QueryEscape(expression))
	if status != http.StatusOK {
		t.Fatalf("%s: %d %s", expression, status, text)
	}
	var answer struct {
		Data struct {
			Result []struct{ Value [2]any }
		}
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		t.Fatal(err)
	}
	for _, r := range answer.Data.Result {
		if value, err := strconv.ParseFloat(fmt.Sprint(r.Value[1]), 64); err == nil && !math.IsNaN(value) {
			values = append(values, value)
		}
	}
	return values
}

// checkMetrics runs promtool on the metrics of a worker.
func checkMetrics(t *testing.T, target string) {
	t.Helper()
	_, text := proctest.Get(t, target+"/metrics")
	cmd := exec.CommandContext(t.Context(), "promtool", "check", "metrics")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}
