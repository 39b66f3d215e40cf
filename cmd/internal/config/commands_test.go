package config

import (
	"strings"
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
		`{"n": 1000000}`: "1000000", `{"n": 12345678.5}`: "12345678.5", `{"n": 0.00001}`: "0.00001",
	} {
		args, err := c.Commands["a"].args(t.Context(), asynq.NewTask("exec:a", []byte(payload)))
		if err != nil || len(args) != 2 || args[1] != want {
			t.Errorf("%s: %q, %v; want %s", payload, args, err, want)
		}
	}
}

// A number below zero is an option to a program as much as a text is, but behind a --.
func TestArguments_NumbersAreNoOptions(t *testing.T) {
	c, err := Parse("f", []byte(`commands: {a: {run: [resize, "${payload.n}"]}, b: {run: [resize, --, "${payload.n}"]}, c: {run: [resize, "${payload.n}px"]}}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, payload := range []string{`{"n": -5}`, `{"n": -0.5}`, `{"n": "-5"}`} {
		task := asynq.NewTask("exec:a", []byte(payload))
		for _, name := range []string{"a", "c"} {
			if args, err := c.Commands[name].args(t.Context(), task); err == nil || !strings.Contains(err.Error(), "would be read as an option") {
				t.Errorf("%s: %q, %v", payload, args, err)
			}
		}
		if args, err := c.Commands["b"].args(t.Context(), task); err != nil || len(args) != 3 {
			t.Errorf("%s behind --: %q, %v", payload, args, err)
		}
	}
}

// More retries than asynq can keep would be another number there.
func TestMaxRetryIsBounded(t *testing.T) {
	_, err := Parse("f", []byte("tasks: {\"http:request\": {max_retry: 2147483648}}"))
	const want = "f:1:37: tasks.http:request.max_retry: 2147483648: want at most 2147483647, the most that asynq stores"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
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
