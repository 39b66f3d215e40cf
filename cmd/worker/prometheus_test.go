package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/redistest"
)

// TestPrometheus has a real Prometheus scrape a worker under load, and asks it
// for each metric that there is. make test installs it.
func TestPrometheus(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/broken" {
			out.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer api.Close()
	rdb := redistest.Run(t)
	target, _ := runWorker(t, rdb, limited+fmt.Sprintf(`
http: {allow_private: [127.0.0.0/8]}
tasks: {"http:request": {limits: [{limit: api}]}}
schedules: {second: {cron: "@every 1s", task: "http:request", payload: {url: %s}}}
`, api.URL))
	load(t, rdb, api.URL)
	prometheus := runPrometheus(t, strings.TrimPrefix(target, "http://"))

	var names []string
	list, err := os.ReadFile("../../dashboards/metrics/testdata/metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(list)) {
		fields := strings.Fields(line)
		if fields[1] == "histogram" {
			fields[0] += "_bucket"
		}
		names = append(names, fields[0])
	}
	names = append(names, "headgate_config_reloads_total", "headgate_config_last_reload_success_timestamp_seconds")
	for _, name := range names {
		eventually(t, name, func() bool { return query(t, prometheus, "count("+name+")") > 0 })
	}
	for _, moving := range []string{
		`headgate_decisions_total{limit="api",outcome="denied"}`, `headgate_lateness_seconds_count`, `headgate_wait_seconds_count`,
		`headgate_jobs_total{outcome="archived",task="http:request"}`, `headgate_scope_waiting_jobs{limit="api"}`,
		`headgate_scope_permits_used{limit="api"}`, `headgate_turn_round_duration_seconds_count`,
		`headgate_scope_schedule_ticks_total{schedule="second",outcome="enqueued"}`,
	} {
		eventually(t, moving, func() bool { return query(t, prometheus, "max_over_time("+moving+"[1m])") > 0 })
	}
	checkMetrics(t, target)
}

// load enqueues what the limit lets through within some ten seconds.
func load(t *testing.T, rdb *redistest.Server, api string) {
	t.Helper()
	client := asynq.NewClientFromRedisClient(rdb.Client())
	defer client.Close()
	for i := range 200 {
		path := "/"
		if i%10 == 0 {
			path = "/broken"
		}
		payload, err := json.Marshal(map[string]string{"url": api + path})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Enqueue(asynq.NewTask("http:request", payload), asynq.MaxRetry(0)); err != nil {
			t.Fatal(err)
		}
	}
}

// runPrometheus scrapes a target each second until the test ends.
func runPrometheus(t *testing.T, target string) (url string) {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "prometheus.yml"),
		"global: {scrape_interval: 1s}\nscrape_configs: [{job_name: worker, static_configs: [{targets: ["+target+"]}]}]\n")
	var log output
	cmd := exec.CommandContext(t.Context(), "prometheus", "--config.file="+filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v: make test installs Prometheus", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	eventually(t, "Prometheus", func() bool {
		status, _ := get(t, "http://"+address+"/-/ready")
		return status == http.StatusOK
	})
	return "http://" + address
}

// query returns the value of an expression, 0 where it has none.
func query(t *testing.T, prometheus, expression string) float64 {
	t.Helper()
	status, text := get(t, prometheus+"/api/v1/query?query="+url.QueryEscape(expression))
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
	if len(answer.Data.Result) == 0 {
		return 0
	}
	var value float64
	_, _ = fmt.Sscan(fmt.Sprint(answer.Data.Result[0].Value[1]), &value)
	return value
}

// checkMetrics has promtool look at what a worker tells.
func checkMetrics(t *testing.T, target string) {
	t.Helper()
	_, text := get(t, target+"/metrics")
	cmd := exec.CommandContext(t.Context(), "promtool", "check", "metrics")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}
