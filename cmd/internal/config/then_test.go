package config

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/cmd/internal/expression"
)

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
