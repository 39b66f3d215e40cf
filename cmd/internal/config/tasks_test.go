package config

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/cmd/internal/expression"
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
