package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestLine(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"plain", `{"a": "b\n"}`, `{"a": "b\n"}`},
		{"letters", "größe 大きさ 🙂", "größe 大きさ 🙂"},
		{"colour", "\x1b[31mred", "␛[31mred"},
		{"lines", "one\r\ntwo\tthree", "one␍␊two␉three"},
		{"upper control", "\u009b31m", "\ufffd31m"},
		{"direction", "gpj\u202eexe", "gpj\ufffdexe"},
		{"not UTF-8", "a\xffb\xc3", "a\ufffdb\ufffd"},
		{"the replacement character", "\ufffd", "\ufffd"},
		{"long", strings.Repeat("x", 1<<20), strings.Repeat("x", lineBytes) + "… (1,044,576 bytes more)"},
		{"cut in a letter", strings.Repeat("x", lineBytes-1) + "ößß", strings.Repeat("x", lineBytes-1) + "… (6 bytes more)"},
	}
	for _, tt := range tests {
		if got := Line(tt.text); got != tt.want {
			t.Errorf("%s: %.100q, want %.100q", tt.name, got, tt.want)
		}
	}
}

// The result is one line without control characters, for any text.
func TestLine_IsSafe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")) + rapid.String().Draw(t, "text")
		checkHarmless(t, Line(text))
		checkHarmless(t, Cell(text))
	})
}

func checkHarmless(t rapid.TB, shown string) {
	if !utf8.ValidString(shown) {
		t.Fatalf("%q is not UTF-8", shown)
	}
	for _, r := range shown {
		if r < 0x20 || r >= 0x7f && r < 0xa0 || r >= 0x2028 && r <= 0x202e || r >= 0x2066 && r <= 0x2069 {
			t.Fatalf("%q has %U", shown, r)
		}
	}
}

// JSON contains no control characters, and the exact value.
func TestJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
		var out bytes.Buffer
		if err := JSONLine(&out, map[string]Text{"is": Text(text)}); err != nil {
			t.Fatal(err)
		}
		checkHarmless(t, strings.TrimSuffix(out.String(), "\n"))
		var back struct{ Is any }
		if err := json.Unmarshal(out.Bytes(), &back); err != nil {
			t.Fatalf("%s: %v", &out, err)
		}
		if utf8.ValidString(text) {
			if back.Is != text {
				t.Fatalf("%q came back as %q", text, back.Is)
			}
			return
		}
		var exact struct{ Is struct{ Base64 []byte } }
		if err := json.Unmarshal(out.Bytes(), &exact); err != nil || string(exact.Is.Base64) != text {
			t.Fatalf("%q came back as %q, %v", text, exact.Is.Base64, err)
		}
	})
}

// An empty cell does not shift a column. The last field of a name is printed.
func TestTable(t *testing.T) {
	type limit struct {
		Name     string  `json:"name"`
		Rate     float64 `json:"rate"`
		Zone     string  `json:"zone"`
		Paused   bool
		Wait     Seconds
		Capacity int `json:",omitempty"`
	}
	type row struct {
		limit
		Apps   []string
		paused string
	}
	var out strings.Builder
	err := Table(&out, []row{
		{limit{Name: "a", Rate: 1, Capacity: 1}, nil, "paused"},
		{limit{Name: "long-name"}, nil, ""},
		{limit{"b", 1000, "UTC", true, Seconds(90 * time.Second), 20}, []string{"x", "y"}, "open"},
	}, "NAME", "RATE", "ZONE", "CAPACITY", "WAIT", "APPS", "PAUSED")
	const want = `NAME       RATE      ZONE  CAPACITY  WAIT        APPS  PAUSED
a          1.0/s           1         -                 paused
long-name  0.0/s                     -
b          1000.0/s  UTC   20        1 min 30 s  x,y   open
`
	if err != nil || out.String() != want {
		t.Errorf("%v, got\n%swant\n%s", err, out.String(), want)
	}
}

func TestFields(t *testing.T) {
	var out bytes.Buffer
	if err := Fields(&out, [][2]string{{"id", "a\nb"}, {"longest", ""}, {"error", "no"}}); err != nil {
		t.Fatal(err)
	}
	if want := "id     a␊b\nerror  no\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

func TestLogger_NoColor(t *testing.T) {
	for value, colors := range map[string]bool{"": true, "1": false} {
		t.Setenv("NO_COLOR", value)
		var out bytes.Buffer
		LogFlags{}.logger(&out, true).Warn("text", "key", "value")
		if strings.Contains(out.String(), "\x1b") != colors || !strings.Contains(out.String(), "text") {
			t.Errorf("NO_COLOR=%q: %q", value, &out)
		}
	}
}
