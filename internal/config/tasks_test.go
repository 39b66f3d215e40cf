package config

import (
	"errors"
	"strings"
	"testing"

	"github.com/hibiken/asynq"
)

// What is wrong with a payload is wrong with each attempt: the job is archived at once.
func TestRulesThatPayloadsDoNotFit(t *testing.T) {
	c, err := Parse("rules", []byte(`
limits: {host: {kind: funnel, rate: 1/s}}
tasks: {"http:request": {limits: [{limit: host, key: host(payload.url)}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	_, err = RuleIn(func() *Config { return c })(t.Context(), asynq.NewTask("http:request", []byte(`{"url":"nowhere"}`)))
	if !errors.Is(err, asynq.SkipRetry) || !strings.HasSuffix(err.Error(), `"nowhere" has no host: want an absolute URL such as https://example.com/`) {
		t.Errorf("%v: want one that says what is wrong, and archives the job", err)
	}
}
