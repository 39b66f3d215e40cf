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

// What follows on a job has the payload that its type needs: without one the job
// itself would be archived when it is done.
func TestThenNeedsAPayload(t *testing.T) {
	const commands = "commands: {a: {run: [echo]}, b: {run: [echo]}}\n"
	_, err := Parse("f", []byte(commands+`tasks: {"exec:a": {then: [{type: "exec:b"}]}}`))
	const want = `f:2:27: tasks.exec:a.then[0].payload: missing: want what exec:b needs, as an object`
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if _, err := Parse("f", []byte(commands+`tasks: {"exec:a": {then: [{type: "exec:b", payload: {}}]}}`)); err != nil {
		t.Error(err)
	}
}
