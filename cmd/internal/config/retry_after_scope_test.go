package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/cmd/internal/expression"
)

// Which limits an answer may shut, and whether by the time that it tells.
func TestRetryAfterScope(t *testing.T) {
	for _, tt := range []struct {
		task   string
		trusts bool
		blocks []string // of the rule; nil means those with a key, or all
	}{
		{`{limits: [{limit: shared}]}`, false, nil},
		{`{limits: [{limit: shared}], retry_after_scope: host}`, false, nil},
		{`{limits: [{limit: shared}], retry_after_scope: all}`, true, nil},
		{`{limits: [{limit: shared}], block_on_429: [shared]}`, true, []string{"shared"}},
		{`{limits: [{limit: shared}, {limit: keyed, key: host(payload.url)}]}`, true, []string{"keyed"}},
		{`{limits: [{limit: shared}, {limit: keyed, key: host(payload.url)}], retry_after_scope: all}`, true, nil},
		{`{limits: [{limit: shared, key: payload.method}, {limit: keyed, key: host(payload.url)}]}`, true, []string{"keyed"}},
		{`{limits: [{limit: keyed, key: payload.method}]}`, false, nil},
		{`{limits: [{limit: keyed, key: payload.method}], retry_after_scope: all}`, true, nil},
		{`{limits: [{limit: keyed, key: 'host(payload.url) + "/" + payload.method'}]}`, true, []string{"keyed"}},
		{`{limits: [{limit: keyed, key: 'payload["url"] | host()'}]}`, true, []string{"keyed"}},
		{`{limits: [{limit: keyed, key: 'host("https://" + payload.method)'}]}`, false, nil},
		{`{limits: [{limit: keyed, key: host(payload.body)}]}`, false, nil},
		{`{}`, false, nil},
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
		if diff := cmp.Diff(tt.blocks, rule.BlockOnRateLimit); diff != "" || c.Tasks["http:request"].TrustsRetryAfter() != tt.trusts {
			t.Errorf("%s: trusts %t, blocks %v", tt.task, !tt.trusts, rule.BlockOnRateLimit)
		}
	}
}
