package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hibiken/asynq"
)

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
