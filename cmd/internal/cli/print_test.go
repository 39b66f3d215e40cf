package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/cmd/internal/config"
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
		LogFlags{}.loggerFor(&out, true).Warn("text", "key", "value")
		if strings.Contains(out.String(), "\x1b") != colors || !strings.Contains(out.String(), "text") {
			t.Errorf("NO_COLOR=%q: %q", value, &out)
		}
	}
}

type testGrammar struct {
	Globals
	Fail failCommand `cmd:"" help:"Fail."`
}

// failCommand returns the error that is bound to it.
type failCommand struct{ err error }

func (c *failCommand) Run() error { return c.err }

func TestExitCodes(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	tests := []struct {
		name   string
		ctx    context.Context
		args   []string
		err    error
		code   int
		stderr string
	}{
		{"success", t.Context(), []string{"fail"}, nil, 0, ""},
		{"failure", t.Context(), []string{"fail"}, errors.New("no luck"), 1, "tool: no luck\n"},
		{"usage", t.Context(), []string{"fail"}, Usagef("n %d: want 1", 2), 2, "tool: n 2: want 1\n"},
		{"several", t.Context(), []string{"fail"}, errors.Join(errors.New("one"), errors.New("two")), 1, "tool: one\ntool: two\n"},
		{"config", t.Context(), []string{"fail"}, config.Errors{{File: "f", Line: 1, Column: 2, Message: "bad"}}, 2, "tool: f:1:2: bad\n"},
		{"said already", t.Context(), []string{"fail"}, BadInput, 2, ""},
		{"unknown flag", t.Context(), []string{"fail", "--no"}, nil, 2, "tool: unknown flag --no\ntool: see \"tool fail --help\"\n"},
		{"help", t.Context(), []string{"--help"}, nil, 0, ""},
		{"interrupted", canceled, []string{"fail"}, context.Canceled, 1, "tool: interrupted\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out, stderr bytes.Buffer
			g := &testGrammar{Fail: failCommand{tt.err}}
			code := Main(tt.ctx, "tool", "about", g, &g.Globals, tt.args, IO{Out: &out, Err: &stderr})
			if code != tt.code || stderr.String() != tt.stderr {
				t.Errorf("exit code %d, %q; want %d, %q", code, stderr.String(), tt.code, tt.stderr)
			}
		})
	}
}

// If the log is JSON, an error of traces is logged as a warning.
func TestLines_LogsTraceErrors(t *testing.T) {
	var out bytes.Buffer
	LogFlags{Format: "json"}.LogOutput("worker", IO{Err: &out})
	warnOfTraces(errors.New("traces export: no luck"))
	if text := out.String(); !strings.Contains(text, `"level":"WARN","msg":"cannot export traces","error":"no luck"`) {
		t.Error(text)
	}
}

// An error of Redis is shown without the words of asynq's packages.
func TestReport_AsynqWords(t *testing.T) {
	for said, want := range map[string]string{
		"asynq: UNKNOWN: UNKNOWN: the Redis user a may not run EVALSHA":       "the Redis user a may not run EVALSHA",
		"UNKNOWN: redis command error: SADD failed: the Redis user a may not": "the Redis user a may not",
		"line 2: UNKNOWN: redis eval error: the memory is full":               "line 2: the memory is full",
		"UNKNOWN: redis eval error: the Redis user a may not run EVALSHA":     "the Redis user a may not run EVALSHA",
		"INTERNAL_ERROR: redis eval error: the Redis user a may not run EVAL": "the Redis user a may not run EVAL",
		"job 7: asynq: UNKNOWN: the Redis user a may not run ZREM":            "job 7: the Redis user a may not run ZREM",
		"limit UNKNOWN: no such limit":                                        "limit UNKNOWN: no such limit",
	} {
		var out strings.Builder
		if report(&out, "worker", errors.New(said)); out.String() != "worker: "+want+"\n" {
			t.Errorf("%q is printed as %q, want %q", said, &out, want)
		}
	}
}
