package metrics

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redishealth"
	"github.com/headgate/headgate/internal/script"
	"github.com/headgate/headgate/internal/stats"
	"github.com/headgate/headgate/internal/testutil/proctest"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/scheduler/cron"
	"github.com/headgate/headgate/throttle"
)

var update = flag.Bool("update", false, "rewrite testdata/metrics.txt")

var silent = asynq.Config{Concurrency: 4, LogLevel: asynq.FatalLevel}

// noRules lets all jobs run.
var noRules = scheduler.Rules{RuleFor: func(context.Context, *asynq.Task) (scheduler.Rule, error) { return scheduler.Rule{}, nil }}

func newServer(t *testing.T, rdb redis.UniversalClient, rules scheduler.Rules, opts ...scheduler.Option) *scheduler.Server {
	t.Helper()
	server, err := scheduler.NewServer(rdb, rules, silent, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return server
}

// start starts the server, and stops it at the end of the test.
func start(t *testing.T, server *scheduler.Server, handler asynq.HandlerFunc) {
	t.Helper()
	if err := server.Start(handler); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
}

// serve runs a server whose jobs need the limit api with the key in their payload.
func serve(t *testing.T, rdb redis.UniversalClient, limits ...throttle.Limit) *scheduler.Server {
	t.Helper()
	rules := scheduler.Rules{Limits: limits, RuleFor: func(_ context.Context, task *asynq.Task) (scheduler.Rule, error) {
		return scheduler.Rule{Needs: []throttle.Need{{Limit: "api", Key: string(task.Payload())}}}, nil
	}}
	server := newServer(t, rdb, rules)
	start(t, server, func(_ context.Context, task *asynq.Task) error {
		if task.Type() == "fails" {
			return errors.New("boom")
		}
		return nil
	})
	return server
}

// enqueue adds a job for each key of the limit.
func enqueue(t *testing.T, rdb redis.UniversalClient, typename string, keys ...string) {
	t.Helper()
	client := asynq.NewClientFromRedisClient(rdb)
	for _, key := range keys {
		if _, err := client.Enqueue(asynq.NewTask(typename, []byte(key)), asynq.MaxRetry(0)); err != nil {
			t.Fatal(err)
		}
	}
}

// scrape returns the values of one scrape by series.
func scrape(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	return gather(t, c, func(map[string]float64) bool { return true })
}

// gather scrapes until a condition holds, and returns the values by series.
func gather(t *testing.T, c prometheus.Collector, ok func(map[string]float64) bool) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	var values map[string]float64
	proctest.Until(t, "wanted values", func() (bool, any) {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		values = map[string]float64{}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				var labels []string
				scope := ""
				for _, l := range m.GetLabel() {
					if l.GetName() == "scope" {
						scope = l.GetValue()
						continue
					}
					labels = append(labels, l.GetName()+"="+l.GetValue())
				}
				if scope != "default" {
					t.Fatalf("%s %v has the scope %q", f.GetName(), labels, scope)
				}
				series := strings.TrimPrefix(f.GetName(), "headgate_") + "{" + strings.Join(labels, ",") + "}"
				values[series] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
		return ok(values), values
	})
	return values
}

// TestValues runs in a bubble: on a busy machine jobs that start late would take permits twice.
func TestValues(t *testing.T) { synctest.Test(t, testValues) }

func testValues(t *testing.T) {
	_, rdb := redistest.Mini(t)
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
			v["scope_queue_jobs{queue=default,state=archived}"] == 1 && // asynq archives it a moment later
			v["dispatcher{}"] == 1 && v["scope_dispatcher_alive{}"] == 1 && v["scope_up{}"] == 1 // also on a busy machine
	})
	denied := got["decisions_total{limit=api,outcome=denied}"]
	for series, want := range map[string]float64{
		"decisions_total{limit=api,outcome=allowed}":                 13,
		"permits_total{limit=api}":                                   13,
		"unkeyed_permits_total{limit=api}":                           0,
		"upstream_rate_limited_total{limit=api}":                     0,
		"scope_permits_per_second{limit=api}":                        5,
		"retry_after_seconds{limit=api}":                             denied,
		"denials_per_job{}":                                          13,
		"limiter_call_duration_seconds{}":                            13 + denied,
		"job_duration_seconds{queue=default,task=mail}":              12,
		"polling_fallback{}":                                         0,
		"scope_permits_capacity{limit=api}":                          5,
		"scope_schedule_ticks_total{outcome=failed,schedule=hourly}": 0,
		"scope_schedule_ticks_total{outcome=failed,schedule=other}":  0,
	} {
		if is, sent := got[series]; is != want || !sent {
			t.Errorf("%s is %v (sent: %v), want %v", series, is, sent, want)
		}
	}
	// A job that comes too late after its grant is denied once more.
	if late, waited := got["lateness_seconds{}"], got["wait_seconds{}"]; late == 0 || late > waited || waited > denied {
		t.Errorf("%v lateness, %v waits, %v denials; want 0 < lateness <= waits <= denials", late, waited, denied)
	}

	limiter := throttle.New(rdb, throttle.Options{})
	if err := errors.Join(limiter.Pause(t.Context(), "api"), limiter.Block(t.Context(), "api", "x", time.Now().Add(time.Hour))); err != nil {
		t.Fatal(err)
	}
	enqueue(t, rdb, "mail", "k", "k", "k", "l", "l", "")
	got = gather(t, c, func(v map[string]float64) bool {
		return v["scope_waiting_permits{limit=api}"] == 6 && v["scope_waiting_keys{limit=api}"] == 3 // not an earlier sample
	})
	if got["scope_oldest_wait_seconds{limit=api}"] <= 0 || got["scope_paused{limit=api}"] != 1 ||
		got["scope_blocked_keys{limit=api}"] != 1 || got["scope_oldest_wait_seconds{limit=none}"] != 0 {
		t.Errorf("waiting jobs: %v", got)
	}
}

func TestUpstreamRateLimitedAndReturnedPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a job that begins late would take its permits once more
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
		server := newServer(t, rdb, rules, scheduler.WithLogger(slog.New(slog.DiscardHandler)))
		start(t, server, func(ctx context.Context, task *asynq.Task) error {
			if string(task.Payload()) == "rate limited" {
				return scheduler.RateLimited(time.Now().Add(time.Hour))
			}
			return scheduler.Settle(ctx, "tokens", 15)
		})
		c := New(server, rdb, Options{})
		enqueue(t, rdb, "call", "", "")
		gather(t, c, func(v map[string]float64) bool { return v["jobs_total{outcome=done,queue=default,task=call}"] == 2 })
		enqueue(t, rdb, "call", "rate limited")
		got := gather(t, c, func(v map[string]float64) bool { return v["upstream_rate_limited_total{limit=host}"] == 1 })
		for series, want := range map[string]float64{
			"permits_total{limit=tokens}":                  120,
			"permits_total{limit=host}":                    6,
			"unkeyed_permits_total{limit=tokens}":          120,
			"unkeyed_permits_total{limit=host}":            0,
			"unkeyed_permits_returned_total{limit=tokens}": 50,
			"upstream_rate_limited_total{limit=tokens}":    0, // none of its keys is blocked
			"scope_permits_per_second{limit=tokens}":       2,
		} {
			if got[series] != want {
				t.Errorf("%s is %v, want %v", series, got[series], want)
			}
		}
	})
}

// TestFullestMeter: the meter with the greatest share taken counts, not the one with most permits.
func TestFullestMeter(t *testing.T) {
	_, rdb := redistest.Mini(t)
	limiter := throttle.New(rdb, throttle.Options{})
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
	server := newServer(t, rdb, noRules)
	waits := stats.LimitDemand{Waiting: 2, WaitingPermits: 2, Total: 2, KeyCount: 2, TopKeys: []string{"large", "small"}}
	text, err := json.Marshal(stats.BacklogSample{At: time.Now(), Limits: map[string]stats.LimitDemand{"bucket": waits}})
	must(err)
	must(rdb.Set(t.Context(), script.Prefix("default")+"backlog", text, time.Minute).Err())
	got := scrape(t, New(server, rdb, Options{}))
	if used, of := got["scope_permits_used{limit=bucket}"], got["scope_permits_capacity{limit=bucket}"]; used != 1 || of != 1 {
		t.Errorf("%g of %g permits are used, want 1 of 1", used, of)
	}
}

// TestNames compares names, types and labels with a list, because dashboards go by them, and lints
// them by Prometheus's rules.
func TestNames(t *testing.T) {
	var lines []string
	for _, m := range allMetrics {
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
		t.Errorf("%v; if intended: go test ./dashboards/metrics -update\n%s", err, diff)
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

func TestLabels_Bounded(t *testing.T) {
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
	if n := count("jobs_running"); n != 101 || got["jobs_total{outcome=done,queue=other,task=other}"] != 900 {
		t.Errorf("%d tasks by name, and %v other; want 100 and other", n, got["jobs_total{outcome=done,queue=other,task=other}"])
	}
	if n := count("scope_queue_latency"); n != maxQueues {
		t.Errorf("%d queues, want %d", n, maxQueues)
	}
}

// hangs is a hook that answers no command while it is set, even if the context ends.
type hangs struct{ atomic.Bool }

func (h *hangs) hook(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	if h.Load() {
		time.Sleep(10 * time.Second)
		return errors.New("no answer")
	}
	return next(ctx, cmd)
}

// TestScrape_RedisAway: each scrape takes at most half a second, however long Redis takes, and has
// the metrics of the process. A Redis that does not answer is away after 5 seconds. Until then a
// scrape has the last metrics, with their age.
func TestScrape_RedisAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Mini(t)
		h := &hangs{}
		rdb.AddHook(redistest.Hook(h.hook))
		c := New(newServer(t, rdb, noRules), rdb, Options{})
		check := func(up, away, age float64) {
			t.Helper()
			began := time.Now()
			got := scrape(t, c)
			if took := time.Since(began); took > 500*time.Millisecond {
				t.Errorf("the scrape took %v, want at most half a second", took)
			}
			if got["scope_up{}"] != up || got["redis_trouble{trouble=away}"] != away {
				t.Errorf("up %v, away %v; want %v, %v", got["scope_up{}"], got["redis_trouble{trouble=away}"], up, away)
			}
			if is := got["scope_age_seconds{}"]; math.Abs(is-age) > 1 {
				t.Errorf("the metrics of the scope are %vs old, want %vs", is, age)
			}
			if _, sent := got["scope_dispatcher_alive{}"]; sent != (up == 1) {
				t.Errorf("metrics of the scope are sent: %v, want %v", sent, up == 1)
			}
			if _, sent := got["lateness_seconds{}"]; !sent {
				t.Errorf("%v; want the metrics of the process", got)
			}
		}
		check(1, 0, 0)
		time.Sleep(time.Minute)
		check(1, 0, 0)
		h.Store(true)
		for began := time.Now(); time.Since(began) < redishealth.AnswerTimeout-time.Second; time.Sleep(time.Second) {
			check(1, 0, time.Since(began).Seconds()+2*healthTimeout.Seconds())
		}
		time.Sleep(time.Second)
		for range 20 {
			check(0, 1, 0)
			time.Sleep(time.Second)
		}
		h.Store(false)
		time.Sleep(10 * time.Second)
		check(1, 0, 0)
	})
}

// TestEvicts_UnknownKeepsAnswer: while Redis does not answer, the metric of its eviction policy keeps
// the last answer, so that an alert goes on.
func TestEvicts_UnknownKeepsAnswer(t *testing.T) {
	m, rdb := redistest.Mini(t)
	redistest.Before(m, func(c *server.Peer, cmd string, _ ...string) bool {
		if cmd == "INFO" {
			c.WriteBulk("maxmemory_policy:allkeys-lru\r\n")
		}
		return cmd == "INFO"
	})
	var down atomic.Bool
	rdb.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if down.Load() {
			return syscall.ECONNREFUSED
		}
		return next(ctx, cmd)
	}))
	c := New(newServer(t, rdb, noRules, scheduler.WithLogger(slog.New(slog.DiscardHandler))), rdb, Options{})
	for _, away := range []bool{false, true, false} {
		down.Store(away)
		gather(t, c, func(v map[string]float64) bool {
			if away && v["redis_trouble{trouble=evicts}"] != 1 {
				t.Fatal("the metric forgets that Redis evicts keys")
			}
			return v["redis_trouble{trouble=evicts}"] == 1 && (v["scope_up{}"] == 0) == away
		})
	}
}
