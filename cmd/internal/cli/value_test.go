package cli

import (
	"bytes"
	"strings"
	"testing"
)

// TestValue checks that objects and lists stay JSON, and that anything else is a string.
func TestValue(t *testing.T) {
	deep := strings.Repeat("[", 5000) + strings.Repeat("]", 5000)
	for text, want := range map[string]string{
		`{"b":1, "a": "<&>"}`:              `{"b":1,"a":"<&>"}`,
		" [1e400, 12345678901234567890]\n": `[1e400,12345678901234567890]`,
		`{"a":"` + "\u202e" + `"}`:         `{"a":"\u202e"}`,
		`5`:                                `"5"`, `"x"`: `"\"x\""`, `null`: `"null"`, ``: `""`, `{"a"`: `"{\"a\""`, "not": `"not"`,
		"{\xff}": `{"base64":"e/99"}`, deep: `"` + deep + `"`,
	} {
		var out bytes.Buffer
		if err := JSONLine(&out, Value(text)); err != nil || strings.TrimSpace(out.String()) != want {
			t.Errorf("%.40q is printed as %.60s, want %.60s; %v", text, &out, want, err)
		}
	}
}
