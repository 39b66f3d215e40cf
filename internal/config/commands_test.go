package config

import (
	"testing"

	"github.com/hibiken/asynq"
)

// A number is an argument as people write it.
func TestNumbersAsArguments(t *testing.T) {
	c, err := Parse("f", []byte(`commands: {a: {run: [resize, "${payload.n}"]}}`))
	if err != nil {
		t.Fatal(err)
	}
	for payload, want := range map[string]string{
		`{"n": 1000000}`: "1000000", `{"n": 12345678.5}`: "12345678.5", `{"n": 0.00001}`: "0.00001", `{"n": -2}`: "-2",
	} {
		args, err := c.Commands["a"].args(t.Context(), asynq.NewTask("exec:a", []byte(payload)))
		if err != nil || len(args) != 2 || args[1] != want {
			t.Errorf("%s: %q, %v; want %s", payload, args, err, want)
		}
	}
}
