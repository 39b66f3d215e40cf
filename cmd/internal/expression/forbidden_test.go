package expression

import (
	"fmt"
	"strings"
	"testing"
)

// TestForbiddenFormulas: what could take long, or make much, by a payload is refused when the config is read.
func TestForbiddenFormulas(t *testing.T) {
	for text, want := range map[string]string{
		`filter(payload, # == "a")`:           "filter(…) is a loop, and loops are not allowed: compute the value before enqueuing the job, and put it into the payload",
		`len(map(payload.items, .price)) + 1`: "map(…) is a loop",
		`reduce(payload, #acc + #acc, "a")`:   "reduce(…) is a loop",
		`1..payload.n`:                        "1..payload.n: ranges are not allowed",
		`payload.n in 1..3`:                   "1..3: ranges are not allowed",
		`replace(payload.a, "a", payload.b)`:  "replace(…, payload.b): want a literal instead of payload.b",
		`payload.a | replace(payload.b, "")`:  "replace(…, payload.b): want a literal instead of payload.b",
		`repeat("ab", payload.n)`:             "repeat(…, payload.n): want a literal instead of payload.n",
		`uniq(payload)`:                       "uniq(…) is not allowed: it compares every element with all others",
		`payload.a matches payload.b`:         "matches payload.b: want a literal pattern in quotes",
	} {
		_, err := ParseTemplate("${"+text+"}", JobVars)
		if err == nil || !strings.Contains(reason(err), want) {
			t.Errorf("%s: %v, want %q", text, reason(err), want)
		}
	}
}

// TestFormula_TimeIsLinear: a formula that is accepted makes little more than the payload.
func TestFormula_TimeIsLinear(t *testing.T) {
	long := `"` + strings.Repeat("a", 20_000) + `"`
	for text, payload := range map[string]string{
		`toJSON(payload)`:                         strings.Repeat("[", 9000) + strings.Repeat("]", 9000),
		`payload + payload + payload`:             long,
		`string(split(payload, "a"))`:             long,
		`toBase64(toBase64(payload))`:             long,
		`string(concat(payload, payload))`:        "[" + strings.Repeat("1,", 5000) + "1]",
		`trim(payload, "ab") + upper(payload)`:    long,
		`string(sort(payload)) + string(payload)`: "[" + strings.Repeat("1,", 5000) + "1]",
	} {
		template, err := ParseTemplate("${"+text+"}", JobVars)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		value, err := template.Of(job(payload))
		if made := fmt.Sprint(value); err != nil || len(made) > 10*len(payload) {
			t.Errorf("%s makes %d bytes of %d, %v", text, len(made), len(payload), err)
		}
	}
}

// TestFormula_Examples: answers of a megabyte, and lists of a hundred thousand.
func TestFormula_Examples(t *testing.T) {
	long := strings.Repeat("a line of text\n", 1<<20/16)
	list := "[" + strings.Repeat(`"a",`, 100_000-1) + `"a"]`
	tests := []struct{ text, payload, want string }{
		{`len(split(payload, "\n"))`, fmt.Sprintf("%q", long), "65537"},
		{`len(replace(payload, "\n", "\r\n"))`, fmt.Sprintf("%q", long), fmt.Sprint(len(long) + 1<<16)},
		{`len(fromJSON(payload))`, fmt.Sprintf("%q", list), "100000"},
		{`len(toJSON(payload))`, list, fmt.Sprint(len(list))},
		{`payload.a[0] ?? trim("  x ") | replace("x", "y") | repeat(2)`, `{"a":[]}`, ""},
		{`trim(payload, "/") + replace(payload, "a", "b", 1) + repeat("ab", 2) + join(["a", payload], "-")`, `"/aa/"`, "aa/ba/ababa-/aa/"},
		{`payload matches "^a+$" and payload startsWith "a" and not (payload contains "b")`, `"aaa"`, "true"},
		{`len(payload) == 3 ? "three" : "other"`, `"aaa"`, "three"},
		{`sum(payload)`, `[1, 2, 3]`, "6"},
	}
	for _, test := range tests {
		template, err := ParseTemplate("${"+test.text+"}", JobVars)
		if err != nil {
			t.Error(err)
			continue
		}
		value, err := template.Of(job(test.payload))
		if test.want == "" {
			continue
		}
		if got := fmt.Sprint(value); err != nil || got != test.want {
			t.Errorf("%s gives %.100s, %v: want %s", test.text, got, err, test.want)
		}
	}
}

// An error says what was wrong with a value, and not all of the value.
func TestFormula_ErrorsAreShort(t *testing.T) {
	payload := `"` + strings.Repeat("ä", 100_000) + `"`
	for _, text := range []string{`int(payload)`, `date(payload)`, `duration(payload)`, `timezone(payload)`, `{"a": 1}[payload].b`, `payload["b"]`, `fromJSON(payload)`} {
		key, err := parse[Key](text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if _, err := key.Of(job(payload)); err == nil || len(err.Error()) > 400 {
			t.Errorf("%s: an error of %d bytes: want one of at most 400", text, len(reason(err)))
		}
	}
}
