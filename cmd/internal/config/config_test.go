package config

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/headgate/headgate/cmd/internal/expression"
	"github.com/headgate/headgate/internal/testutil/fuzzseed"
	"github.com/headgate/headgate/internal/testutil/proctest"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/scheduler/cron"
	"github.com/headgate/headgate/tasks"
	"github.com/headgate/headgate/throttle"
)

var update = flag.Bool("update", false, "write the golden files")

// Each file of testdata/bad gives exactly the errors beside it.
func TestErrors(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			c, err := Parse("headgate.yaml", []byte(proctest.ReadFile(t, file)))
			errs, ok := errors.AsType[Errors](err)
			if !ok || c != nil {
				t.Fatalf("got %v and an error of type %T, want only Errors", c, err)
			}
			golden, got := strings.TrimSuffix(file, ".yaml")+".txt", ""
			for _, err := range errs {
				got += err.Error() + "\n"
			}
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, readErr := os.ReadFile(golden)
			if readErr != nil {
				t.Fatal(readErr)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestManyErrors: a file that is not a config gives a short text.
func TestManyErrors(t *testing.T) {
	var file strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&file, "field%d: 1\n", i)
	}
	_, err := Parse("headgate.yaml", []byte(file.String()))
	lines := strings.Split(err.Error(), "\n")
	if last := lines[len(lines)-1]; len(lines) != 21 || last != "headgate.yaml: 980 more errors" {
		t.Errorf("%d lines, the last is %q", len(lines), last)
	}
}

// TestTooManyFields: a file with too many fields is refused before it is parsed.
func TestTooManyFields(t *testing.T) {
	_, err := Parse("headgate.yaml", []byte(strings.Repeat("a: 1\n", maxFields+1)))
	if want := "headgate.yaml:20001:2: too many fields: want at most 20000 in the file"; err == nil || err.Error() != want {
		t.Errorf("it says %.300v, want %s", err, want)
	}
}

// TestTooDeep: a file that is nested too deep is refused before it is parsed, because the parser's
// memory grows with the square of the depth.
func TestTooDeep(t *testing.T) {
	nested := func(open string, depth int) string { return "limits:\n  " + strings.Repeat(open, depth) }
	indented := "limits:\n"
	for i := range 100 {
		indented += strings.Repeat(" ", i+1) + "a:\n"
	}
	for name, test := range map[string]struct{ text, at string }{
		"lists in brackets":   {nested("[", 30_000), "2:102"},
		"maps in brackets":    {nested("{a: ", 10_000), "2:399"},
		"lists in a line":     {nested("- ", 15_000), "2:201"},
		"maps by indentation": {indented, "101:102"},
		"brackets in blocks":  {nested("- ", 60) + strings.Repeat("[", 60), "2:162"},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Parse("headgate.yaml", []byte(test.text))
		runtime.ReadMemStats(&after)
		if want := "headgate.yaml:" + test.at + ": nested too deep: want at most 100 levels"; err == nil || err.Error() != want {
			t.Errorf("%s: it says %.300v, want %s", name, err, want)
		}
		if used := (after.TotalAlloc - before.TotalAlloc) >> 20; used > 50 {
			t.Errorf("%s: %d MB were allocated, want at most 50", name, used)
		}
	}
	for _, text := range []string{nested("[", 98) + strings.Repeat("]", 98), "limits: {}\n# " + strings.Repeat("[", 200), `http: {proxy: "` + strings.Repeat("[", 200) + `"}`} {
		if _, err := Parse("headgate.yaml", []byte(text)); err != nil && strings.Contains(err.Error(), "too deep") {
			t.Errorf("%.30s…: it says %v", text, err)
		}
	}
	for _, expression := range []string{strings.Repeat("(", 101) + "1" + strings.Repeat(")", 101), strings.Repeat("[", 10_000)} {
		_, err := Parse("headgate.yaml", []byte("limits: {api: 1/s}\ntasks: {\"http:request\": {limits: [{limit: api, key: '"+expression+"'}]}}"))
		if want := "is nested more than 100 levels deep, at character 101: want at most 100"; err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "headgate.yaml:2:") || len(err.Error()) > 500 {
			t.Errorf("%.30s…: it says %.600v, want %s", expression, err, want)
		}
	}
}

func parse(t *testing.T, text string) *Config {
	t.Helper()
	c, err := Parse("headgate.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func load(t *testing.T, file string) *Config {
	t.Helper()
	c, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A rate and a limit's name alone are short for mappings that have only them.
func TestShorthands(t *testing.T) {
	short := parse(t, "limits: {daily: 2000/day}\ntasks: {\"http:request\": {limits: [daily]}}\n")
	long := parse(t, "limits: {daily: {kind: sliding_log, rate: 2000/day}}\ntasks: {\"http:request\": {limits: [{limit: daily}]}}\n")
	if diff := cmp.Diff(long.Limits, short.Limits); diff != "" {
		t.Error(diff)
	}
	if got, want := short.Tasks["http:request"].Limits, long.Tasks["http:request"].Limits; len(got) != 1 || got[0].Limit != want[0].Limit {
		t.Errorf("the task needs %v, want %v", got, want)
	}
}

func TestFull(t *testing.T) {
	got := load(t, "testdata/full.yaml")
	want := &Config{
		App: "shop", Scope: "eu", Concurrency: 20, StrictPriority: true, ShutdownTimeout: 20 * time.Second, ArchiveRetention: 30 * 24 * time.Hour, UnknownFor: 5 * time.Minute,
		Queues: Queues{"default": {Weight: 1}, "critical": {Weight: 6}},
		Page: Page{
			Token: "swordfish-and-chips", ReadOnly: true,
			HTTPS: true, OpenMetrics: true,
			Redact: []string{"iban", "x-*-key"},
		},
		Limits: []throttle.Limit{
			{
				Name: "api-daily", Kind: throttle.FixedWindow, Rate: throttle.PerDay(2000),
				Zone: "America/New_York", Margin: 100 * time.Millisecond, Apps: []string{"shop", "billing"},
			},
			{
				Name: "host", Kind: throttle.Funnel, Rate: throttle.Every(2 * time.Second),
				Adapt: &throttle.Adapt{Min: throttle.PerMinute(1), Latency: 500 * time.Millisecond},
				Overrides: map[string]throttle.Override{
					"slow.example": {Rate: throttle.Every(10 * time.Second)}, "big.example": {Rate: throttle.PerSecond(5), Capacity: 3},
				},
			},
			{Name: "slots", Kind: throttle.Concurrency, Capacity: 4, Lease: 10 * time.Second, MaxBlock: time.Hour},
		},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Config{}, "Redis", "Tasks", "HTTP", "Schedules", "Sections"), cmpopts.IgnoreFields(Queue{}, "ShardBy")); diff != "" {
		t.Error(diff)
	}
	if url := got.Redis.String(); url != "rediss://redis.example.com:6380/2" {
		t.Errorf("Redis: %s", url)
	}
	if n := got.Tasks["http:request"].MaxRetry; n == nil || *n != 5 {
		t.Errorf("max_retry: %v, want 5", n)
	}
}

func TestRule(t *testing.T) {
	c := load(t, "testdata/full.yaml")
	rule, err := c.Tasks.Rule(&expression.Job{Type: "http:request", Payload: []byte(`{"url":"http://A.example/","method":"POST"}`)})
	if err != nil {
		t.Fatal(err)
	}
	want := scheduler.Rule{
		Needs:    []throttle.Need{{Limit: "api-daily", Cost: 3}, {Limit: "host", Key: "a.example", Cost: 1}, {Limit: "slots", Cost: 1}},
		Priority: scheduler.PriorityHigh, FairnessKey: "POST", FairnessWeight: 6, BlockOnRateLimit: []string{"host"},
		MaxWait: 10 * time.Minute, OnMaxWait: scheduler.ActionDrop, OnNoLimit: scheduler.ActionRun, Retention: 24 * time.Hour,
		RetryPosition: scheduler.PositionBack,
	}
	if diff := cmp.Diff(want, rule, cmpopts.IgnoreFields(scheduler.Rule{}, "Retry")); diff != "" {
		t.Error(diff)
	}
	costs, err := c.Tasks.Costs(&expression.Job{Type: "http:request", Payload: []byte(`{}`)}, func() ([]byte, error) { return []byte(`{"status":304}`), nil })
	if diff := cmp.Diff(map[string]int{"api-daily": 0}, costs); diff != "" || err != nil {
		t.Errorf("costs: %v\n%s", err, diff)
	}
	if _, err = c.Tasks.Rule(&expression.Job{Type: "http:request", Payload: []byte(`{"url":"ftp"}`)}); err == nil {
		t.Error("a URL without host: no error")
	}
	other, err := c.Tasks.Rule(&expression.Job{Type: "other", Payload: []byte("not JSON")})
	if diff := cmp.Diff(scheduler.Rule{}, other); diff != "" || err != nil {
		t.Errorf("a type without rule: %v\n%s", err, diff)
	}
}

func TestRetryPolicy(t *testing.T) {
	policy := load(t, "testdata/full.yaml").Tasks["http:request"].Retry.Policy()
	want := scheduler.RetryPolicy{
		Backoff: scheduler.Backoff{Growth: scheduler.GrowthLinear, Base: 2 * time.Second},
		Classes: []scheduler.ErrorClass{
			{Backoff: scheduler.Backoff{Growth: scheduler.GrowthLinear, Base: 2 * time.Second, Cap: 10 * time.Minute, Jitter: scheduler.JitterNone}},
			{Backoff: scheduler.Backoff{Growth: scheduler.GrowthConstant, Base: 2 * time.Second, Cap: time.Hour}, MaxRetry: new(int)},
		},
	}
	if diff := cmp.Diff(&want, policy, cmpopts.IgnoreFields(scheduler.ErrorClass{}, "Match", "Is")); diff != "" {
		t.Error(diff)
	}
	if match := policy.Classes[0].Match.String(); match != "answered 5.." {
		t.Errorf("match: %s", match)
	}
	late := policy.Classes[1].Is
	if policy.Classes[0].Is != nil || !late(&tasks.NetworkError{Err: errors.New("timeout")}) || late(&tasks.StatusError{Status: 504}) {
		t.Error("a class: want the network's errors, and of those alone; and any where there is none")
	}
}

func TestEntries(t *testing.T) {
	entries := load(t, "testdata/full.yaml").Schedules.Entries()
	if len(entries) != 2 {
		t.Fatalf("%d entries, want 2", len(entries))
	}
	want := cron.Entry{
		Name: "nightly", Cron: "30 2 * * *", Zone: "America/New_York", Type: "http:request", Queue: "critical",
		Jitter: 5 * time.Second, Missed: cron.MissedAll, MissedMax: 3, Overlap: cron.OverlapSkip, OverlapCounts: cron.CountsRetrying,
	}
	nightly := entries[0]
	if diff := cmp.Diff(want, nightly, cmpopts.IgnoreFields(cron.Entry{}, "Payload", "Options")); diff != "" {
		t.Error(diff)
	}
	var options []string
	for _, entry := range entries {
		for _, option := range entry.Options {
			options = append(options, option.String())
		}
	}
	wantOptions := []string{"MaxRetry(5)", "Timeout(30s)", "Retention(1h0m0s)", "MaxRetry(0)", "Timeout(1m0s)", "Retention(24h0m0s)"}
	if diff := cmp.Diff(wantOptions, options); diff != "" {
		t.Error(diff)
	}
	if !entries[1].Disabled {
		t.Errorf("second: %+v, want it disabled", entries[1])
	}

	tick := nightly.Next(time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC))
	payload, err := nightly.Payload(tick)
	const wantPayload = `{"body":"plain ${text}","expect":[200,201],"headers":{"X-Tick":"2026-03-01T02:30:00-05:00"},` +
		`"method":"POST","url":"https://example.com/report?day=2026-03-01"}`
	if diff := cmp.Diff(wantPayload, string(payload)); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
}

// TestEntries_Numbers: a payload has each value as the file has it. testdata/bad/numbers.yaml has
// the numbers that YAML would take for others.
func TestEntries_Numbers(t *testing.T) {
	c, err := Parse("headgate.yaml", []byte(`commands: {c: {run: [/bin/true]}}
schedules:
  s: {cron: "@daily", task: "exec:c", payload: {010: 1, v: [0, 8, -8, 1_000, 1.0, 0.5, .5, "010", '+1', 0a, 1e3, +a, 0612 34, 2026-01-02, 10.0.0.1]}}`))
	if err != nil {
		t.Fatal(err)
	}
	payload, err := c.Schedules.Entries()[0].Payload(time.Now())
	const want = `{"010":1,"v":[0,8,-8,1000,1,0.5,0.5,"010","+1","0a","1e3","+a","0612 34","2026-01-02","10.0.0.1"]}`
	if string(payload) != want || err != nil {
		t.Errorf("%s, %v; want %s", payload, err, want)
	}
}

func TestConfig_NeedsRestart(t *testing.T) {
	const text = `
redis: rediss://:secret@h/1?pool_size=5
commands: {a: {run: [ls, -l, "${host(payload.url)}"], timeout: 1m, env: {A: "1 B:2"}}}
crawl: {include: [^a, ^b]}
limits: {api: {kind: funnel, rate: 1/s}}
tasks:
  exec:a: {priority: payload.p}
`
	for _, tt := range []struct{ from, to, fields string }{
		{"", "", "[]"},
		{"\ncrawl", "\n\n# a comment\ncrawl", "[]"},
		{"payload.p", "payload.q", "[]"},
		{"1/s", "2/s", "[]"},
		{"1m", "2m", "[commands]"},
		{`"1 B:2"`, `"1", B: "2"`, "[commands]"},
		{"secret", "other", "[redis]"},
		{"crawl: {include: [^a, ^b]}", "concurrency: 3\nqueues: {q: 1}", "[concurrency crawl queues]"},
	} {
		old, err := Parse("f", []byte(text))
		next, other := Parse("f", []byte(strings.Replace(text, tt.from, tt.to, 1)))
		if err != nil || other != nil {
			t.Fatal(err, other)
		}
		if got := fmt.Sprint(old.NeedsRestart(next)); got != tt.fields {
			t.Errorf("%s instead of %s needs a restart for %s, want %s", tt.to, tt.from, got, tt.fields)
		}
	}
}

func TestParse_EmptyFile(t *testing.T) {
	same := cmp.AllowUnexported(Redis{})
	for text, absent := range map[string]string{
		"":                              "headgate.yaml is empty",
		"\ufeff":                        "headgate.yaml is empty",
		"# only a comment\n":            "headgate.yaml is empty",
		"limits:\ntasks:\nschedules:\n": "",
	} {
		want := Default()
		want.DefaultReason = absent
		c, err := Parse("headgate.yaml", []byte(text))
		if diff := cmp.Diff(want, c, same, cmpopts.IgnoreFields(Queue{}, "ShardBy"), cmpopts.IgnoreFields(Config{}, "Sections")); diff != "" || err != nil {
			t.Errorf("%q: %v\n%s", text, err, diff)
		}
	}
	want, missing := Default(), filepath.Join(t.TempDir(), "missing.yaml")
	want.FileMissing, want.DefaultReason = true, "there is no "+missing
	c, err := Load(missing)
	if diff := cmp.Diff(want, c, same, cmpopts.IgnoreFields(Queue{}, "ShardBy"), cmpopts.IgnoreFields(Config{}, "Sections")); diff != "" || err != nil {
		t.Errorf("a missing file: %v\n%s", err, diff)
	}
	if _, err := Load(t.TempDir()); err == nil {
		t.Error("a folder: no error")
	}
}

// A file from Windows can begin with a byte order mark; columns count without.
func TestByteOrderMark(t *testing.T) {
	c, err := Parse("f", []byte("\ufeffapp: shop\n"))
	if err != nil || c.App != "shop" {
		t.Errorf("got %v, %v", c, err)
	}
	const want = `f:1:6: app: want text (in quotes if it looks like a number), not the number 5`
	if _, err := Parse("f", []byte("\ufeffapp: 5\n")); err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../../../examples/*/headgate.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("found %v, %v", files, err)
	}
	for _, file := range files {
		if c := load(t, file); len(c.Limits)+len(c.Schedules) == 0 {
			t.Errorf("%s has neither limits nor schedules", file)
		}
	}
}

// No file makes Parse panic, and its errors stand within the file and say
// something.
func FuzzParse(target *testing.F) {
	f := fuzzseed.More(target)
	files, err := filepath.Glob("testdata/*/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range append(files, "testdata/full.yaml") {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("f", data)
		if (c == nil) == (err == nil) {
			t.Fatalf("got %v, %v", c, err)
		}
		if err == nil {
			return
		}
		all, ok := errors.AsType[Errors](err)
		if !ok || len(all) == 0 {
			t.Fatalf("an error of type %T: %v", err, err)
		}
		for _, e := range all {
			if e.Line < 1 || e.Column < 1 || e.Message == "" {
				t.Errorf("%+v", e)
			}
		}
	})
}
