package metrics

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/script"
	"github.com/headgate/headgate/internal/stats"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/scheduler/cron"
	"github.com/headgate/headgate/throttle"
)

var update = flag.Bool("update", false, "write testdata/metrics.txt anew")

var silent = asynq.Config{Concurrency: 4, LogLevel: asynq.FatalLevel}

// serve runs a server whose jobs need the limit that their type names.
func serve(t *testing.T, rdb redis.UniversalClient, limits ...throttle.Limit) *scheduler.Server {
	t.Helper()
	rules := scheduler.Rules{Limits: limits, RuleFor: func(_ context.Context, task *asynq.Task) (scheduler.Rule, error) {
		return scheduler.Rule{Needs: []throttle.Need{{Limit: "api", Key: string(task.Payload())}}}, nil
	}}
	server, err := scheduler.NewServer(rdb, rules, silent)
	if err != nil {
		t.Fatal(err)
	}
	handler := func(_ context.Context, task *asynq.Task) error {
		if task.Type() == "fails" {
			return errors.New("boom")
		}
		return nil
	}
	if err := server.Start(asynq.HandlerFunc(handler)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	return server
}

// enqueue adds jobs, each with a key of the limit.
func enqueue(t *testing.T, rdb redis.UniversalClient, typename string, keys ...string) {
	t.Helper()
	client := asynq.NewClientFromRedisClient(rdb)
	for _, key := range keys {
		if _, err := client.Enqueue(asynq.NewTask(typename, []byte(key)), asynq.MaxRetry(0)); err != nil {
			t.Fatal(err)
		}
	}
}

// gather scrapes until a condition holds, and returns the values by series.
func gather(t *testing.T, c prometheus.Collector, ok func(map[string]float64) bool) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	pause := time.NewTicker(50 * time.Millisecond)
	defer pause.Stop()
	var values map[string]float64
	for range 2400 { // two minutes at least: a busy machine is slow
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		values = map[string]float64{}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				var labels []string
				for _, l := range m.GetLabel() {
					if l.GetName() == "scope" { // TestScope looks at it
						continue
					}
					labels = append(labels, l.GetName()+"="+l.GetValue())
				}
				series := strings.TrimPrefix(f.GetName(), "headgate_") + "{" + strings.Join(labels, ",") + "}"
				values[series] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
		if ok(values) {
			return values
		}
		<-pause.C
	}
	t.Fatalf("it never came so far: %v", values)
	return nil
}

// TestValues has jobs run, fail, wait and be refused, and looks at what is told.
func TestValues(t *testing.T) {
	rdb := redistest.Real(t)
	api := throttle.Limit{Name: "api", Kind: throttle.SlidingLog, Rate: throttle.PerSecond(5)}
	server := serve(t, rdb, api, throttle.Limit{Name: "none", Kind: throttle.Funnel, Rate: throttle.PerHour(1)})
	enqueue(t, rdb, "mail", slices.Repeat([]string{"a"}, 12)...)
	enqueue(t, rdb, "fails", "a")
	schedules := cron.New(rdb, asynq.NewClientFromRedisClient(rdb), cron.Options{})
	if err := schedules.Set([]cron.Entry{{Name: "hourly", Cron: "@hourly", Type: "mail"}, {Name: "other", Cron: "@hourly", Type: "mail"}}); err != nil {
		t.Fatal(err)
	}
	c := New(server, rdb, Options{Schedules: schedules})
	got := gather(t, c, func(v map[string]float64) bool {
		return v["jobs_total{outcome=done,queue=default,task=mail}"] == 12 && v["jobs_total{outcome=failed,queue=default,task=fails}"] == 1 &&
			v["scope_queue_jobs{queue=default,state=archived}"] == 1 && // asynq has it there a moment later
			v["dispatcher{}"] == 1 && v["scope_dispatcher_alive{}"] == 1 && v["scope_up{}"] == 1 // also on a machine that let it sleep meanwhile
	})
	denied := got["decisions_total{limit=api,outcome=denied}"]
	for series, want := range map[string]float64{
		"decisions_total{limit=api,outcome=allowed}":                 13,
		"permits_total{limit=api}":                                   13,
		"unkeyed_permits_total{limit=api}":                           0,
		"refused_calls_total{limit=api}":                             0,
		"scope_permits_per_second{limit=api}":                        5,
		"retry_after_seconds{limit=api}":                             denied,
		"denials_per_job{}":                                          13,
		"limiter_call_duration_seconds{}":                            13 + denied,
		"job_duration_seconds{queue=default,task=mail}":              12,
		"release_fallback{}":                                         0,
		"scope_permits_capacity{limit=api}":                          5,
		"scope_schedule_ticks_total{outcome=failed,schedule=hourly}": 0,
		"scope_schedule_ticks_total{outcome=failed,schedule=other}":  0,
	} {
		if is, told := got[series]; is != want || !told {
			t.Errorf("%s is %v (told: %v), want %v", series, is, told, want)
		}
	}
	// A job that is called and comes too late is denied once more.
	if late, waited := got["lateness_seconds{}"], got["wait_seconds{}"]; late == 0 || late > waited || waited > denied {
		t.Errorf("%v came when they were called and %v waited, of %v denials; want some, and none more often", late, waited, denied)
	}

	limiter := throttle.New(rdb, throttle.RedisOptions{})
	if err := errors.Join(limiter.Pause(t.Context(), "api"), limiter.Block(t.Context(), "api", "x", time.Now().Add(time.Hour))); err != nil {
		t.Fatal(err)
	}
	enqueue(t, rdb, "mail", "k", "k", "k", "l", "l", "")
	got = gather(t, c, func(v map[string]float64) bool { return v["scope_waiting_permits{limit=api}"] == 6 })
	if got["scope_waiting_keys{limit=api}"] != 3 || got["scope_oldest_wait_seconds{limit=api}"] <= 0 || got["scope_paused{limit=api}"] != 1 ||
		got["scope_blocked_keys{limit=api}"] != 1 || got["scope_oldest_wait_seconds{limit=none}"] != 0 {
		t.Errorf("of what waits: %v", got)
	}
}

// TestRefusedAndReturned: what the other side refuses, and what a limit without
// keys gives and is given back.
func TestRefusedAndReturned(t *testing.T) {
	_, rdb := redistest.Mini(t)
	rules := scheduler.Rules{
		Limits: []throttle.Limit{
			{Name: "tokens", Kind: throttle.FixedWindow, Rate: throttle.PerHour(7200)},
			{Name: "host", Kind: throttle.Funnel, Rate: throttle.PerSecond(100), Capacity: 100},
		},
		RuleFor: func(context.Context, *asynq.Task) (scheduler.Rule, error) {
			return scheduler.Rule{Needs: []throttle.Need{{Limit: "tokens", Cost: 40}, {Limit: "host", Key: "a"}, {Limit: "host", Key: "b"}}}, nil
		},
	}
	server, err := scheduler.NewServer(rdb, rules, silent, scheduler.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	handler := func(ctx context.Context, task *asynq.Task) error {
		if string(task.Payload()) == "refused" {
			return scheduler.RateLimited(time.Now().Add(time.Hour))
		}
		return scheduler.Settle(ctx, "tokens", 15)
	}
	if err := server.Start(asynq.HandlerFunc(handler)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	c := New(server, rdb, Options{})
	enqueue(t, rdb, "call", "", "")
	gather(t, c, func(v map[string]float64) bool { return v["jobs_total{outcome=done,queue=default,task=call}"] == 2 })
	enqueue(t, rdb, "call", "refused")
	got := gather(t, c, func(v map[string]float64) bool { return v["refused_calls_total{limit=host}"] == 1 })
	for series, want := range map[string]float64{
		"permits_total{limit=tokens}":                  120,
		"permits_total{limit=host}":                    6,
		"unkeyed_permits_total{limit=tokens}":          120,
		"unkeyed_permits_total{limit=host}":            0,
		"unkeyed_permits_returned_total{limit=tokens}": 50,
		"refused_calls_total{limit=tokens}":            0, // its keys are not shut
		"scope_permits_per_second{limit=tokens}":       2,
	} {
		// A job that begins late, as on a busy machine, takes its permits once more.
		again := strings.Contains(series, "permits_total") && want > 0 && got[series] > want
		if got[series] != want && !again {
			t.Errorf("%s is %v, want %v", series, got[series], want)
		}
	}
}

// TestFullest: of the busiest keys that one tells of the limit of which the greatest
// share is taken, which need not be the one of which most permits are.
func TestFullest(t *testing.T) {
	_, rdb := redistest.Mini(t)
	limiter := throttle.New(rdb, throttle.RedisOptions{})
	bucket := throttle.Limit{Name: "bucket", Kind: throttle.TokenBucket, Rate: throttle.PerHour(1), Capacity: 10}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(limiter.Define(t.Context(), bucket))
	must(limiter.SetKey(t.Context(), "bucket", "small", throttle.Override{Capacity: 1}))
	for key, n := range map[string]int{"large": 5, "small": 1} {
		for range n {
			_, err := limiter.Allow(t.Context(), "bucket", key)
			must(err)
		}
	}
	server, err := scheduler.NewServer(rdb, scheduler.Rules{RuleFor: func(context.Context, *asynq.Task) (scheduler.Rule, error) { return scheduler.Rule{}, nil }}, silent)
	must(err)
	waits := stats.Demand{Waiting: 2, All: 2, Keys: 2, Busiest: []string{"large", "small"}}
	text, err := json.Marshal(stats.Survey{At: time.Now(), Limits: map[string]stats.Demand{"bucket": waits}})
	must(err)
	must(rdb.Set(t.Context(), script.Prefix("default")+"survey", text, time.Minute).Err())
	got := gather(t, New(server, rdb, Options{}), func(map[string]float64) bool { return true })
	if used, of := got["scope_permits_used{limit=bucket}"], got["scope_permits_capacity{limit=bucket}"]; used != 1 || of != 1 {
		t.Errorf("%g of %g permits are used, want 1 of 1", used, of)
	}
}

// TestScope: scopes do not add up, so each metric says whose it is.
func TestScope(t *testing.T) {
	_, rdb := redistest.Mini(t)
	limiter := waitdb.New(throttle.New(rdb, throttle.RedisOptions{Scope: "eu"}))
	rules := scheduler.Rules{RuleFor: func(context.Context, *asynq.Task) (scheduler.Rule, error) { return scheduler.Rule{}, nil }}
	server, err := scheduler.NewServer(rdb, rules, silent, scheduler.WithLimiter(limiter.Redis))
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(New(server, rdb, Options{}))
	families, err := registry.Gather()
	if err != nil || len(families) == 0 {
		t.Fatalf("%d metrics, %v", len(families), err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			of := func(l *dto.LabelPair) bool { return l.GetName() == "scope" && l.GetValue() == "eu" }
			if !slices.ContainsFunc(m.GetLabel(), of) {
				t.Errorf("%s %v: want scope eu", f.GetName(), m.GetLabel())
			}
		}
	}
}

// TestNames holds names, types and labels against a list, and against the rules
// of Prometheus.
func TestNames(t *testing.T) {
	var lines []string
	for _, m := range all {
		kind := map[prometheus.ValueType]string{counter: "counter", gauge: "gauge", histogram: "histogram"}[m.kind]
		lines = append(lines, strings.Join(append([]string{m.name, kind}, m.labels...), " "))
	}
	slices.Sort(lines)
	text := strings.Join(lines, "\n") + "\n"
	if *update {
		if err := os.WriteFile("testdata/metrics.txt", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/metrics.txt")
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(text, "\n")); diff != "" || err != nil {
		t.Errorf("%v; if that is meant: go test ./dashboards/metrics -update\n%s", err, diff)
	}
	_, rdb := redistest.Mini(t)
	server := serve(t, rdb, throttle.Limit{Name: "api", Kind: throttle.Funnel, Rate: throttle.PerSecond(100)})
	enqueue(t, rdb, "mail", "a")
	c := New(server, rdb, Options{})
	gather(t, c, func(v map[string]float64) bool { return v["jobs_total{outcome=done,queue=default,task=mail}"] == 1 })
	problems, err := testutil.CollectAndLint(c)
	if len(problems) > 0 || err != nil {
		t.Errorf("%v, %v", problems, err)
	}
}

// TestLabelsAreBounded: a thousand task types, limits and queues.
func TestLabelsAreBounded(t *testing.T) {
	rdb := redistest.Real(t)
	server := serve(t, rdb, throttle.Limit{Name: "api", Kind: throttle.Funnel, Rate: throttle.PerSecond(1_000_000), Capacity: 1_000_000})
	for i := range 1000 {
		enqueue(t, rdb, fmt.Sprint("type-", i), "a")
	}
	client := asynq.NewClientFromRedisClient(rdb)
	for i := range 100 {
		if _, err := client.Enqueue(asynq.NewTask("x", nil), asynq.Queue(fmt.Sprint("queue-", i))); err != nil {
			t.Fatal(err)
		}
	}
	done := func(v map[string]float64) (n float64) {
		for series, value := range v {
			if strings.HasPrefix(series, "jobs_total{outcome=done") {
				n += value
			}
		}
		return n
	}
	got := gather(t, New(server, rdb, Options{}), func(v map[string]float64) bool { return done(v) == 1000 && v["scope_up{}"] == 1 })
	count := func(prefix string) (n int) {
		for _, series := range slices.Collect(maps.Keys(got)) {
			if strings.HasPrefix(series, prefix) {
				n++
			}
		}
		return n
	}
	if n := count("jobs_running"); n != 201 || got["jobs_total{outcome=done,queue=other,task=other}"] != 800 {
		t.Errorf("%d tasks by name, and %v other; want 200 and other", n, got["jobs_total{outcome=done,queue=other,task=other}"])
	}
	if n := count("scope_queue_latency"); n != maxQueues+1 {
		t.Errorf("%d queues, want %d and other", n, maxQueues)
	}
	if n := got["scope_queue_jobs{queue=other,state=pending}"]; n != 51 {
		t.Errorf("%v jobs pending in other queues, want 51", n)
	}
}

// TestWhatComesBeforeAnError: of many queues those are told of that were read in time, and no
// sum that lacks some.
func TestWhatComesBeforeAnError(t *testing.T) {
	_, rdb := redistest.Mini(t)
	server := serve(t, rdb, throttle.Limit{Name: "api", Kind: throttle.Funnel, Rate: throttle.PerSecond(100)})
	client := asynq.NewClientFromRedisClient(rdb)
	for _, queue := range []string{"a", "other", "z"} {
		if _, err := client.Enqueue(asynq.NewTask("x", nil), asynq.Queue(queue)); err != nil {
			t.Fatal(err)
		}
	}
	if err := rdb.Set(t.Context(), asynqdb.Key("z", "scheduled"), "of another type", 0).Err(); err != nil {
		t.Fatal(err)
	}
	got := gather(t, New(server, rdb, Options{}), func(map[string]float64) bool { return true })
	if n := got["scope_queue_jobs{queue=a,state=pending}"]; n != 1 || got["scope_up{}"] != 0 {
		t.Errorf("%v jobs of a, up %v; want 1, 0", n, got["scope_up{}"])
	}
	if _, told := got["scope_queue_jobs{queue=other,state=pending}"]; told {
		t.Error("the others are told of, and not all are known")
	}
}

// TestWithoutRedis: a scrape tells what the process knows.
func TestWithoutRedis(t *testing.T) {
	m, rdb := redistest.Mini(t)
	server := serve(t, rdb, throttle.Limit{Name: "api", Kind: throttle.Funnel, Rate: throttle.PerSecond(100)})
	m.SetError("LOADING not now")
	got := gather(t, New(server, rdb, Options{}), func(map[string]float64) bool { return true })
	if _, told := got["lateness_seconds{}"]; !told || got["scope_up{}"] != 0 {
		t.Errorf("%v; want what the process did, and that the scope is not up", got)
	}
	m.SetError("")
}
