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
	c, err := Parse("rules", []byte(`
limits: {host: {kind: funnel, rate: 1/s}}
tasks: {"http:request": {limits: [{limit: host, key: host(payload.url)}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	_, err = RuleIn(func() *Config { return c })(t.Context(), asynq.NewTask("http:request", []byte(`{"url":"nowhere"}`)))
	if !errors.Is(err, asynq.SkipRetry) || !strings.Contains(err.Error(), `"nowhere" has no host: want an absolute URL such as https://example.com/`) {
		t.Errorf("%v: want one that says what is wrong, and archives the job", err)
	}
}

// TestDurationsInDays: days and weeks stand wherever hours do.
func TestDurationsInDays(t *testing.T) {
	c, err := Parse("c", []byte(`shutdown_timeout: 1d
limits: {api: {kind: funnel, rate: 5/1d12h, max_block: 2w}}
tasks: {"http:request": {retention: 7d, max_wait: 1w1d, timeout: 1d}}
schedules: {s: {cron: "@every 2d", task: "http:request", payload: {url: "https://example.com/"}, retention: 14d}}`))
	if err != nil {
		t.Fatal(err)
	}
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
		c, err := Parse("trust", []byte(`
limits: {shared: {kind: funnel, rate: 1/s}, keyed: {kind: funnel, rate: 1/s}}
tasks:
  http:request: `+tt.task))
		if err != nil {
			t.Errorf("%s: %v", tt.task, err)
			continue
		}
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
	c, err := Parse("headgate.yaml", []byte(rules))
	if err != nil {
		t.Fatal(err)
	}
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
		if got, err := c.Tasks.Key("host", typed); got != want || err != nil {
			t.Errorf("key %s is %q (%v), want %q", typed, got, err, want)
		}
		if got, err := c.Tasks.Key("tenant", typed); got != typed || err != nil {
			t.Errorf("key %s of a limit without hosts is %q (%v)", typed, got, err)
		}
	}
}

// TestKey_NoHost: an override that can never count is an error, and so are two of one host.
func TestKey_NoHost(t *testing.T) {
	for overrides, want := range map[string]string{
		`{"a b": 1/s}`:                     `limits.host.overrides.a b: key of limit host: "a b" is not the name of a host: want one such as example.com`,
		`{"/path": 1/s}`:                   `"/path" is not the name of a host`,
		`{LocalHost: 1/s, localhost: 2/s}`: `limits.host.overrides.localhost: the same key as LocalHost: keep one of them`,
	} {
		_, err := Parse("headgate.yaml", []byte("limits: {host: {kind: funnel, rate: 1/s, overrides: "+overrides+"}}\n"+
			"tasks:\n  http:request: {limits: [{limit: host, key: host(payload.url)}]}\n"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("overrides %s: %v, want %q", overrides, err, want)
		}
	}
}

// A number is an argument as people write it. A number below zero is an option to a program as a text
// is, unless it follows a --.
func TestCommand_Args_Numbers(t *testing.T) {
	c, err := Parse("f", []byte(`commands: {a: {run: [resize, "${payload.n}"]}, b: {run: [resize, --, "${payload.n}"]}, c: {run: [resize, "${payload.n}px"]}}`))
	if err != nil {
		t.Fatal(err)
	}
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
	c, err := Parse("headgate.yaml", []byte(sharded))
	if err != nil {
		t.Fatal(err)
	}
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

func TestShards_Errors(t *testing.T) {
	for _, test := range []struct{ old, new, want string }{
		{"shards: 16", "shards: 0", "queues.crawl.shards: 0: want 1 to 1000; leave it out for a queue without shards"},
		{"shards: 16", "shards: 1001", "queues.crawl.shards: 1001: want 1 to 1000"},
		{"shards: 16, ", "", "queues.crawl.shard_by: the queue has no shards: want shards as well"},
		{"divide: [all]", "divide: [al]", `queues.crawl.divide[0]: no limit "al": did you mean all?`},
		{"rate: 1000/s", "rate: 15/s", "limits.all.rate: 15/s: want at least 16/s, one for each of the 16 shards of queue crawl"},
		{"divide: [all]", "divide: [all, api]", "limits.api.rate: 5/s: want at least 16/s, one for each of the 16 shards of queue crawl"},
		{"{limit: all}", "{limit: all, cost: 100}", "queues.crawl.divide[0]: a task takes 100 permits of limit all at once, and a shard has 62: no job could ever run"},
		{", divide: [all]", "", "tasks.crawl:fetch.limits[1]: limit all is not one of queue crawl: add it to the queue's divided limits"},
		{"limits: [api]", "limits: [{limit: host, key: payload.user}]", "tasks.http:request.limits[0]: limit host counts by the shard key of queue crawl in other tasks: want key: host(payload.url), or divide: [host] in queues.crawl"},
		{"default: 1", "other: {shards: 2, divide: [all]}", "queues: shards of queue other: limit all: queue crawl uses it already; want another limit"},
		{"default: 1", "crawl.3: 1", "queues.\"crawl.3\": it is a shard of queue crawl: want another name"},
	} {
		text := strings.Replace(sharded, test.old, test.new, 1)
		if _, err := Parse("headgate.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v\nwant %s", test.new, err, test.want)
		}
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
		c, err := Parse("headgate.yaml", []byte("tasks:\n  http:request: {then: [{type: \"http:request\", payload: "+tt.payload+"}]}"))
		if err != nil {
			t.Errorf("%s: %v", tt.payload, err)
			continue
		}
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
	c, err := Parse("headgate.yaml", []byte(`
commands: {a: {run: [echo, "${payload.x}"]}}
schedules:
  s: {cron: "@daily", task: http:request, payload: {url: "https://h.example/?a=$${env:T}"}}
tasks:
  exec:a: {then: [{type: exec:a, payload: {x: "${result}", y: "$${env:T}"}}]}
`))
	if err != nil {
		t.Fatal(err)
	}
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

// A reference that an expression would complete is an error of the config.
func TestThen_ReferencesAreWhole(t *testing.T) {
	for _, payload := range []string{
		`{url: "https://h.example/?x=$${env:${result.name}}"}`,
		`{url: "https://h.example/", headers: {X: "$${env:"}}`,
	} {
		_, err := Parse("headgate.yaml", []byte("tasks:\n  http:request: {then: [{type: \"http:request\", payload: "+payload+"}]}"))
		if err == nil || !strings.Contains(err.Error(), "want the whole name of a secret, as $${env:NAME}") {
			t.Errorf("%s: %v", payload, err)
		}
	}
}
