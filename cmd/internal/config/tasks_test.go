package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/cmd/internal/expression"
	"github.com/headgate/headgate/internal/shard"
)

// A wrong payload is wrong in each attempt, so the job is archived at once.
func TestRule_WrongPayload(t *testing.T) {
	c := parse(t, `
limits: {host: {kind: funnel, rate: 1/s}}
tasks: {"http:request": {limits: [{limit: host, key: host(payload.url)}]}}`)
	_, err := RuleIn(func() *Config { return c })(t.Context(), asynq.NewTask("http:request", []byte(`{"url":"nowhere"}`)))
	if !errors.Is(err, asynq.SkipRetry) || !strings.Contains(err.Error(), `"nowhere" has no host: want an absolute URL such as https://example.com/`) {
		t.Errorf("%v: want one that says what is wrong, and archives the job", err)
	}
}

// TestDurationsInDays: days and weeks stand wherever hours do.
func TestDurationsInDays(t *testing.T) {
	c := parse(t, `shutdown_timeout: 1d
limits: {api: {kind: funnel, rate: 5/1d12h, max_block: 2w}}
tasks: {"http:request": {retention: 7d, max_wait: 1w1d, timeout: 1d}}
schedules: {s: {cron: "@every 2d", task: "http:request", payload: {url: "https://example.com/"}, retention: 14d}}`)
	const day = 24 * time.Hour
	task := c.Tasks["http:request"]
	got := []time.Duration{c.ShutdownTimeout, c.Limits[0].Rate.Per, c.Limits[0].MaxBlock, task.Retention, task.MaxWait, task.Timeout, c.Schedules["s"].Retention}
	if want := []time.Duration{day, 36 * time.Hour, 14 * day, 7 * day, 8 * day, day, 14 * day}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// The limits that a response may block, and those for which its time counts.
func TestRetryAfterScope(t *testing.T) {
	for _, tt := range []struct {
		task   string
		blocks []string // of the rule; nil means that no time of the upstream counts
	}{
		{`{limits: [{limit: shared}]}`, nil},
		{`{limits: [{limit: shared}], retry_after_scope: host}`, nil},
		{`{limits: [{limit: shared}], retry_after_scope: all}`, []string{"shared"}},
		{`{limits: [{limit: shared}], block_on_429: [shared]}`, []string{"shared"}},
		{`{limits: [{limit: shared}, {limit: keyed, key: host(payload.url)}]}`, []string{"keyed"}},
		{`{limits: [{limit: shared}, {limit: keyed, key: host(payload.url)}], retry_after_scope: all}`, []string{"keyed"}},
		{`{limits: [{limit: shared, key: payload.method}, {limit: keyed, key: host(payload.url)}]}`, []string{"keyed"}},
		{`{limits: [{limit: keyed, key: payload.method}]}`, nil},
		{`{limits: [{limit: keyed, key: payload.method}], retry_after_scope: all}`, []string{"keyed"}},
		{`{limits: [{limit: keyed, key: 'host(payload.url) + "/" + payload.method'}]}`, []string{"keyed"}},
		{`{limits: [{limit: keyed, key: 'payload["url"] | host()'}]}`, []string{"keyed"}},
		{`{limits: [{limit: keyed, key: 'host("https://" + payload.method)'}]}`, nil},
		{`{limits: [{limit: keyed, key: host(payload.body)}]}`, nil},
		{`{}`, nil},
	} {
		c := parse(t, `
limits: {shared: {kind: funnel, rate: 1/s}, keyed: {kind: funnel, rate: 1/s}}
tasks:
  http:request: `+tt.task)
		rule, err := c.Tasks.Rule(&expression.Job{Type: "http:request", Payload: []byte(`{"url":"https://h.example/","method":"GET","body":"https://b.example"}`)})
		if err != nil {
			t.Errorf("%s: %v", tt.task, err)
		}
		if diff := cmp.Diff(tt.blocks, rule.BlockOnRateLimit); diff != "" {
			t.Errorf("%s: blocks %v", tt.task, rule.BlockOnRateLimit)
		}
	}
}

// TestKeysOfHosts: a key of a limit that counts by host(…) is the normalized host.
func TestKeysOfHosts(t *testing.T) {
	const rules = `
limits:
  host: {kind: funnel, rate: 1/s, overrides: {LocalHost: 1/2s, "münchen.example.": 1/3s, "[2001:DB8::A]:8080": 1/4s}}
  tenant: {kind: funnel, rate: 1/s, overrides: {LocalHost: 1/2s}}
  mixed: {kind: funnel, rate: 1/s, overrides: {LocalHost: 1/2s}}
  unused: {kind: funnel, rate: 1/s, overrides: {LocalHost: 1/2s}}
tasks:
  http:request: {limits: [{limit: host, key: host(payload.url)}, {limit: tenant, key: payload.tenant}, {limit: mixed, key: host(payload.url)}]}
  crawl:fetch: {limits: [{limit: host, key: host(payload.url)}, {limit: mixed, key: payload.host}]}
`
	c := parse(t, rules)
	overrides := map[string][]string{}
	for _, l := range c.Limits {
		overrides[l.Name] = slices.Sorted(maps.Keys(l.Overrides))
	}
	for limit, want := range map[string][]string{
		"host": {"2001:db8::a", "localhost", "xn--mnchen-3ya.example"}, "tenant": {"LocalHost"}, "mixed": {"LocalHost"}, "unused": {"LocalHost"},
	} {
		if !slices.Equal(overrides[limit], want) {
			t.Errorf("limit %s has overrides of %q, want %q", limit, overrides[limit], want)
		}
	}
	for typed, want := range map[string]string{
		"localhost": "localhost", "LocalHost": "localhost", "localhost.": "localhost", "localhost:8080": "localhost",
		"HTTPS://LocalHost:8080/path": "localhost", "127.1": "127.0.0.1", "::1": "::1", "[::1]:80": "::1", "::FFFF:127.0.0.1": "127.0.0.1",
		"MÜNCHEN.example": "xn--mnchen-3ya.example",
	} {
		if got, err := c.Tasks.NormalizeKey("host", typed); got != want || err != nil {
			t.Errorf("key %s is %q (%v), want %q", typed, got, err, want)
		}
		if got, err := c.Tasks.NormalizeKey("tenant", typed); got != typed || err != nil {
			t.Errorf("key %s of a limit without hosts is %q (%v)", typed, got, err)
		}
	}
}

// A number is an argument as people write it. A number below zero is an option to a program as a text
// is, unless it follows a --.
func TestCommand_Args_Numbers(t *testing.T) {
	c := parse(t, `commands: {a: {run: [resize, "${payload.n}"]}, b: {run: [resize, --, "${payload.n}"]}, c: {run: [resize, "${payload.n}px"]}}`)
	const option = " would be read as an option"
	for _, test := range []struct{ command, n, want string }{
		{"a", "1000000", "resize 1000000"},
		{"a", "12345678.5", "resize 12345678.5"},
		{"a", "0.00001", "resize 0.00001"},
		{"a", "-5", option},
		{"a", "-0.5", option},
		{"a", `"-5"`, option},
		{"c", "-5", option},
		{"c", `"-5"`, option},
		{"b", "-5", "resize -- -5"},
		{"b", `"-5"`, "resize -- -5"},
	} {
		args, err := c.Commands[test.command].args(t.Context(), asynq.NewTask("exec:a", []byte(`{"n": `+test.n+`}`)))
		if got := fmt.Sprint(strings.Join(args, " "), err); !strings.Contains(got, test.want) || (err != nil) != (test.want == option) {
			t.Errorf("%s with %s: %s, want %s", test.command, test.n, got, test.want)
		}
	}
}

const sharded = `
queues:
  default: 1
  crawl: {weight: 4, shards: 16, shard_by: host(payload.url), divide: [all]}
limits:
  host: 1/s
  all: {kind: sliding_window, rate: 1000/s}
  api: 5/s
tasks:
  crawl:fetch: {limits: [{limit: host, key: host(payload.url)}, {limit: all}]}
  http:request: {limits: [api]}
`

func TestShards(t *testing.T) {
	c := parse(t, sharded)
	want := shard.Queues{"crawl": {Name: "crawl", Count: 16, ByKey: []string{"host"}, Divided: []string{"all"}}}
	if diff := cmp.Diff(want, c.Sharded); diff != "" {
		t.Error(diff)
	}
	if got := c.Queues.Weights(); got["crawl"] != 4 || got["default"] != 1 {
		t.Errorf("weights %v", got)
	}
	if got := c.ServedQueues(); len(got) != 17 || got[0] != "crawl.0" || got[16] != "default" {
		t.Errorf("served queues %v", got)
	}
	shards := c.Shards()
	key, err := shards[0].KeyOf(asynq.NewTask("crawl:fetch", []byte(`{"url": "https://Example.com/x"}`)))
	if len(shards) != 1 || key != "example.com" || err != nil {
		t.Errorf("%+v, key %q, %v", shards, key, err)
	}
	if _, err := shards[0].KeyOf(asynq.NewTask("crawl:fetch", []byte(`{}`))); err == nil {
		t.Error("a task without a key has no error")
	}
}

// What an expression yields refers to no secret, wherever it enters a payload and in
// whatever pieces; what the config says does.
func TestThen_ValuesAreNoReferences(t *testing.T) {
	const hostile = `{"whole":"${env:T}","dollar":"$","open":"${env:","name":"T","close":"}","rest":"{env:T}",
		"headers":{"X":"${env:T}"},"list":["${env:T}"],"call":{"url":"https://h.example/?${env:T}"},"Call":{"URL":"https://h.example/?${file:/t}"}}`
	for _, tt := range []struct{ payload, field, want string }{ // without want it fails
		{`{url: "https://h.example/?x=${result.whole}"}`, "", ""},
		{`{url: "https://h.example/?x=${result.dollar}${result.rest}"}`, "", ""},
		{`{url: "https://h.example/?x=${result.dollar}{en${result.open[4:]}"}`, "", ""},
		{`{url: "https://h.example/?x=${result.open}${result.name}${result.close}"}`, "", ""},
		{`{url: "https://h.example/?x=${result.open}T}"}`, "", ""},
		{`{url: "https://h.example/?x=${payload.whole}"}`, "", ""},
		{`{url: "https://h.example/?x=${task.id}"}`, "", ""},
		{`{url: "https://h.example/", headers: {X: "${result.list[0]}"}}`, "", ""},
		{`{url: "https://h.example/", headers: "${result.headers}"}`, "", ""},
		{`{url: "https://h.example/", headers: "${ {'X': result.whole} }"}`, "", ""},
		{`"${result.call}"`, "", ""},
		{`"${result.Call}"`, "", ""},
		{`{url: "https://h.example/?x=$${env:T}&y=${result.whole}"}`, "", ""},
		// Nothing is a reference there.
		{`{url: "https://h.example/", body: "${result.whole}"}`, "body", "${env:T}"},
		{`{url: "https://h.example/", body: "${result.open}"}`, "body", "${env:"},
		// What the author wrote.
		{`{url: "https://h.example/?x=$${env:T}&y=${result.name}"}`, "url", "https://h.example/?x=${env:T}&y=T"},
		{`{url: "https://h.example/", headers: {X: "${result.dollar}$${env:T}${result.close}"}}`, "headers.X", "$${env:T}}"},
	} {
		c := parse(t, "tasks:\n  http:request: {then: [{type: \"http:request\", payload: "+tt.payload+"}]}")
		done := &expression.Done{Job: expression.Job{ID: "${env:T}", Payload: []byte(hostile)}, Result: []byte(hostile)}
		payload, _, err := c.Tasks["http:request"].Then[0].Next(done)
		if tt.want == "" {
			if err == nil || !strings.Contains(err.Error(), "which refers to a secret") {
				t.Errorf("%s: %s, %v", tt.payload, payload, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.payload, err)
		} else if got := textAt(t, payload, tt.field); got != tt.want {
			t.Errorf("%s: %s is %q, want %q", tt.payload, tt.field, got, tt.want)
		}
	}
}

// textAt is the text at a path of a payload.
func textAt(t *testing.T, payload []byte, path string) string {
	t.Helper()
	var value any
	if err := json.Unmarshal(payload, &value); err != nil {
		t.Fatal(err)
	}
	for name := range strings.SplitSeq(path, ".") {
		fields, _ := value.(map[string]any)
		value = fields[name]
	}
	return fmt.Sprint(value)
}

// The same holds for schedules, and a then of another type has no references.
func TestValuesOfOtherPayloads(t *testing.T) {
	c := parse(t, `
commands: {a: {run: [echo, "${payload.x}"]}}
schedules:
  s: {cron: "@daily", task: http:request, payload: {url: "https://h.example/?a=$${env:T}"}}
tasks:
  exec:a: {then: [{type: exec:a, payload: {x: "${result}", y: "$${env:T}"}}]}
`)
	payload, err := c.Schedules["s"].payloadAt(time.Now())
	if got := textAt(t, payload, "url"); err != nil || got != "https://h.example/?a=${env:T}" {
		t.Error(got, err)
	}
	payload, _, err = c.Tasks["exec:a"].Then[0].Next(&expression.Done{Result: []byte(`"${env:T}"`)})
	if err != nil || string(payload) != `{"x":"${env:T}","y":"${env:T}"}` {
		t.Errorf("%s, %v", payload, err)
	}
	// Nor is it one where a command gets it.
	args, err := c.Commands["a"].args(t.Context(), asynq.NewTask("exec:a", payload))
	if err != nil || strings.Join(args, " ") != "echo ${env:T}" {
		t.Error(args, err)
	}
}
