package redact

import (
	"strings"
	"testing"
)

// TestDecode: a value is read up to a size and a depth, and brackets within texts do not count.
func TestDecode(t *testing.T) {
	deep := func(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }
	for text, wrong := range map[string]string{
		deep(64):                     "",
		deep(65):                     "nested 65 levels deep: want at most 64",
		deep(9000):                   "nested 9000 levels deep",
		`{"a":` + deep(63) + `}`:     "",
		`{"a":` + deep(64) + `}`:     "nested 65 levels deep",
		`["` + deep(5000) + `"]`:     "",
		`["\"` + deep(5000) + `\\"]`: "",
		strings.Repeat("[],", 900):   "want one value",
		`[]]`:                        "want one value",
		`{} {}`:                      "want one value",
		`"` + deep(10_000) + `"`:     "JSON of 20002 bytes: want at most 20000",
	} {
		_, err := Decode([]byte(text), 20_000)
		switch {
		case wrong == "" && err != nil:
			t.Errorf("%.40s is refused: %v", text, err)
		case wrong != "" && (err == nil || !strings.Contains(err.Error(), wrong)):
			t.Errorf("%.40s: %v, want %q", text, err, wrong)
		}
	}
}
