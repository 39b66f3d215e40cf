package expression

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/internal/testutil/fuzzseed"
)

func TestTemplate(t *testing.T) {
	newYork, err := time.LoadLocation("America/New_York")
	if err != nil {
		t.Fatal(err)
	}
	tick := time.Date(2026, 3, 1, 2, 30, 0, 0, newYork)
	tests := []struct {
		text string
		want any
		err  string
	}{
		{text: "", want: ""},
		{text: "plain", want: "plain"},
		{text: "https://example.com/?day=${tick.Format('2006-01-02')}&n=${1 + 1}", want: "https://example.com/?day=2026-03-01&n=2"},
		{text: "${tick.Year()}", want: 2026},
		{text: "at ${tick}", want: "at 2026-03-01T02:30:00-05:00"},
		{text: "${tick}", want: tick},
		{text: "in ${tick.Month()} at ${tick.Unix()}", want: "in March at 1772350200"},
		{text: "${ {'a': '}'} }", want: map[string]any{"a": "}"}},
		{text: `${"\"}"}`, want: `"}`},
		{text: "costs $5, $${not} and $", want: "costs $5, ${not} and $"},
		{text: "${nil}", err: "payload expression nil: its value is null, because the field is missing or null"},
		{text: "a ${[1]}", err: "payload expression [1]: the result is a list: want text, a number or true/false"},
		{text: "${[1][tick.Day()]}", err: "payload expression [1][tick.Day()]: index out of range: 1 (array length is 1)"},
	}
	for _, test := range tests {
		template, err := ParseTemplate(test.text, TickVars)
		if err != nil {
			t.Errorf("%s: %v", test.text, err)
			continue
		}
		got, err := template.Value(Tick(tick))
		if diff := cmp.Diff(test.want, got); diff != "" || reason(err) != test.err {
			t.Errorf("%s: %v\n%s", test.text, err, diff)
		}
	}
}

func TestTemplateDoesNotCompile(t *testing.T) {
	tests := []struct{ text, err string }{
		{"a ${tick", "${tick has no closing }; write $${ for a plain ${"},
		{"${'}", "${'} has no closing }; write $${ for a plain ${"},
		{"Bearer ${env:KEY}", "${env:KEY} is an expression here: a payload refers to a secret by $${env:KEY}"},
		{"${file:/run/key}", "${file:/run/key} is an expression here: a payload refers to a secret by $${file:/run/key}"},
		{"${}", "payload expression is empty: want an expression such as tick.Year()"},
		{"${payload.x}", "payload expression payload.x: unknown name payload: want one of tick, host(…), or text in quotes"},
		{"${1 % 0}", "payload expression 1 % 0: column 3: integer divide by zero"},
		{"${tick.Foo()}", "payload expression tick.Foo(): column 6: type time.Time has no method Foo"},
	}
	for _, test := range tests {
		if _, err := ParseTemplate(test.text, TickVars); reason(err) != test.err {
			t.Errorf("%s: %s\nwant %s", test.text, reason(err), test.err)
		}
	}
}

// No text makes the parser panic, and what compiles evaluates to something or
// an error.
func FuzzTemplate(target *testing.F) {
	f := fuzzseed.More(target)
	for _, seed := range []string{"a ${tick} b", "${", "$${x}", "${'}'}", "${{}}", "${tick.Format(`2`)}"} {
		f.Add(seed)
	}
	tick := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, text string) {
		template, err := ParseTemplate(text, TickVars)
		if err != nil {
			return
		}
		if value, err := template.Value(Tick(tick)); value == nil && err == nil {
			t.Errorf("%q gives nothing, without an error", text)
		}
	})
}

func TestQuoteBare(t *testing.T) {
	for text, want := range map[string]string{
		`{"url": ${row.url}}`:                    `{"url": "${row.url}"}`,
		`[${row["a}b"]},${1}]`:                   `["${row[\"a}b\"]}","${1}"]`,
		`{"a\"${b}": "${c} \\", "d": ${e}}`:      `{"a\"${b}": "${c} \\", "d": "${e}"}`,
		`{"n": 1, "open": ${`:                    `{"n": 1, "open": ${`,
		`"\`:                                     `"\`,
		`${`:                                     `${`,
		`{"text": "costs $${x}", "${y}": true} `: `{"text": "costs $${x}", "${y}": true} `,
	} {
		if got := QuoteBare(text); got != want {
			t.Errorf("%s becomes %s, want %s", text, got, want)
		}
	}
}
