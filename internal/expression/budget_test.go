package expression

import (
	"fmt"
	"strings"
	"testing"
)

// texts is a JSON list of that many texts.
func texts(n int) string { return "[" + strings.Repeat(`"a",`, n-1) + `"a"]` }

// Whatever others write into a payload or an answer, a formula ends, and makes no more than
// it may: those here would take from seconds to longer than anybody lives.
func TestFormulasAreBounded(t *testing.T) {
	tests := []struct{ name, text, payload string }{
		{"replace", `replace(payload, "a", payload)`, `"` + strings.Repeat("a", 20_000) + `"`},
		{"replace nothing", `replace(payload, "", payload)`, `"` + strings.Repeat("b", 20_000) + `"`},
		{"replace in a row", `payload | replace("a", "aaaaaaaaaa") | replace("a", "aaaaaaaaaa") | replace("a", "aaaaaaaaaa") | replace("a", "aaaaaaaaaa")`, `"` + strings.Repeat("a", 20_000) + `"`},
		{"repeat", `repeat(payload.s, payload.n)`, `{"s":"` + strings.Repeat("a", 20_000) + `","n":1000000}`},
		{"join", `join(payload.l, payload.s)`, `{"l":` + texts(20_000) + `,"s":"` + strings.Repeat("a", 20_000) + `"}`},
		{"join texts", `join(split(payload, ""), payload)`, `"` + strings.Repeat("a", 20_000) + `"`},
		{"split", `map(payload, split("` + strings.Repeat("a", 2000) + `", ""))`, texts(20_000)},
		{"splitAfter", `map(payload, splitAfter("` + strings.Repeat("a", 2000) + `", ""))`, texts(20_000)},
		{"trim", `trim(payload, replace(payload, "a", "ä"))`, `"` + strings.Repeat("a", 20_000) + `"`},
		{"plus", `reduce(payload, #acc + #acc, "a")`, texts(100)},
		{"plus in a list", `map(payload, task.id + "` + strings.Repeat("a", 2000) + `")[0] + string(map(payload, "` + strings.Repeat("a", 2000) + `"))`, texts(20_000)},
		{"lists that double", `string(reduce(payload, [#acc, #acc], "a"))`, texts(100)},
		{"lists that double, as the value", `reduce(payload, [#acc, #acc], "a")`, texts(100)},
		{"objects that double", `toJSON(reduce(payload, ({"a": #acc, "b": #acc}), "a"))`, texts(100)},
		{"concat", `reduce(payload, concat(#acc, #acc), [1])`, texts(100)},
		{"flatten", `flatten(reduce(payload, [#acc, #acc], [1]))`, texts(100)},
		{"toJSON", `len(toJSON(map(payload, payload)))`, texts(20_000)},
		{"toJSON, nested", `len(toJSON(payload))`, strings.Repeat("[", 9000) + strings.Repeat("]", 9000)},
		{"string", `len(string(map(payload, payload)))`, texts(20_000)},
		{"fromJSON", `map(payload, fromJSON("` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `"))`, texts(20_000)},
		{"toBase64", `map(payload, toBase64(toBase64("a" + payload[0] + "` + strings.Repeat("a", 2000) + `")))`, texts(20_000)},
		{"upper", `map(payload, upper("` + strings.Repeat("a", 2000) + `" + #))`, texts(20_000)},
		{"filter", `filter(payload, len(filter(payload, true)) > 0)`, texts(20_000)},
		{"map", `map(payload, map(payload, #))`, texts(20_000)},
		{"loops", `count(payload, any(payload, any(payload, any(payload, # == "b"))))`, texts(20_000)},
		{"all", `all(payload, none(payload, # == "b"))`, texts(20_000)},
		{"find", `find(payload, find(payload, # == "b") != nil)`, texts(20_000)},
		{"sum", `sum(payload, sum(payload, 1))`, texts(20_000)},
		{"sum of a list", `sum(payload, sum(payload))`, "[" + strings.Repeat("1,", 20_000) + "1]"},
		{"sortBy", `sortBy(payload, len(sortBy(payload, #)))`, texts(20_000)},
		{"sort", `map(payload, sort(payload))`, texts(20_000)},
		{"groupBy", `groupBy(payload, string(payload))`, texts(20_000)},
		{"uniq", `len(uniq(payload))`, "[" + strings.Join(numbered(20_000), ",") + "]"},
		{"reverse", `map(payload, reverse(payload))`, texts(20_000)},
		{"keys", `map(payload, keys(groupBy(payload, #)))`, texts(20_000)},
		{"toPairs and fromPairs", `map(payload.l, fromPairs(toPairs(payload)))`, `{"l":` + texts(20_000) + `,` + strings.Join(named(2000), ",") + `}`},
		{"max", `map(payload, max(payload))`, "[" + strings.Repeat("1,", 20_000) + "1]"},
		{"in", `filter(payload, "b" in payload)`, texts(20_000)},
		{"equal", `filter(payload, payload == payload)`, texts(20_000)},
		{"less", `filter(payload.l, payload.s < payload.s)`, `{"l":` + texts(20_000) + `,"s":"` + strings.Repeat("a", 2000) + `"}`},
		{"contains", `filter(payload.l, payload.s contains "b")`, `{"l":` + texts(20_000) + `,"s":"` + strings.Repeat("a", 2000) + `"}`},
		{"matches", `filter(payload.l, payload.s matches "b")`, `{"l":` + texts(20_000) + `,"s":"` + strings.Repeat("a", 2000) + `"}`},
		{"indexOf", `map(payload.l, indexOf(payload.s, "b"))`, `{"l":` + texts(20_000) + `,"s":"` + strings.Repeat("a", 2000) + `"}`},
		{"len", `map(payload.l, len(payload.s))`, `{"l":` + texts(20_000) + `,"s":"` + strings.Repeat("a", 2000) + `"}`},
		{"numbers", `map(1..payload, 1..payload)`, `900000`},
		{"more numbers", `1..payload`, `9000000000`},
		{"host", `map(payload, host("https://example.com/` + strings.Repeat("a", 2000) + `" + #))`, texts(20_000)},
		{"a layout", `map(payload, date("2020-01-01").Format("2` + strings.Repeat("2", 2000) + `" + #))`, texts(20_000)},
		{"the name of a field", `payload[string(map(payload, payload))]`, texts(20_000)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			template, err := ParseTemplate("${"+test.text+"}", &Job{})
			if err != nil {
				t.Fatal(err)
			}
			value, err := template.Of(job(test.payload), nil)
			if want := "it makes, or goes through, more than 16 MiB"; !strings.HasSuffix(reason(err), want) {
				t.Errorf("it gives %.60s, and the error %.300q: want %q", fmt.Sprint(value), reason(err), want)
			}
		})
	}
}

func numbered(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprint(i)
	}
	return list
}

func named(n int) []string {
	list := numbered(n)
	for i := range list {
		list[i] = fmt.Sprintf(`"%d":1`, i)
	}
	return list
}

// What formulas are for is far below the bound: answers of a megabyte, lists of ten thousand.
func TestWhatFormulasAreForIsNotBounded(t *testing.T) {
	long := strings.Repeat("a line of text\n", 1<<20/16)
	tests := []struct{ text, payload, want string }{
		{`len(split(payload, "\n"))`, fmt.Sprintf("%q", long), "65537"},
		{`len(replace(payload, "\n", "\r\n"))`, fmt.Sprintf("%q", long), fmt.Sprint(len(long) + 1<<16)},
		{`len(fromJSON(payload))`, fmt.Sprintf("%q", texts(1<<18)), fmt.Sprint(1 << 18)},
		{`len(filter(payload, # in ["a", "b"]))`, texts(10_000), "10000"},
		{`sum(payload, len(#) * 2)`, texts(10_000), "20000"},
		{`len(join(map(payload, upper(#)), ", "))`, texts(10_000), "29998"},
		{`len(uniq(payload))`, "[" + strings.Join(numbered(2000), ",") + "]", "2000"},
		{`len(toJSON(payload)) > 0`, texts(100_000), "true"},
		{`payload.a[0] ?? trim("  x ") | replace("x", "y") | repeat(2)`, `{"a":[]}`, ""},
		{`trim(payload, "/") + replace(payload, "a", "b", 1) + repeat("ab", 2) + join(["a", payload], "-")`, `"/aa/"`, "aa/ba/ababa-/aa/"},
		{`payload matches "^a+$" and payload startsWith "a" and not (payload contains "b")`, `"aaa"`, "true"},
		{`len(payload) == 3 ? "three" : "other"`, `"aaa"`, "three"},
	}
	for _, test := range tests {
		template, err := ParseTemplate("${"+test.text+"}", &Job{})
		if err != nil {
			t.Error(err)
			continue
		}
		value, err := template.Of(job(test.payload), nil)
		if test.want == "" {
			continue
		}
		if got := fmt.Sprint(value); err != nil || got != test.want {
			t.Errorf("%s gives %.100s, %v: want %s", test.text, got, err, test.want)
		}
	}
}

// An error says what was wrong with a value, and not all of the value.
func TestErrorsOfFormulasAreShort(t *testing.T) {
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

// A pattern that others write takes as long as they please.
func TestPatternsStandInTheFormula(t *testing.T) {
	_, err := parse[When](`payload.a matches payload.b`)
	if want := "condition payload.a matches payload.b: matches payload.b: want the pattern in quotes: a job does not bring its own"; reason(err) != want {
		t.Errorf("%v: want %s", err, want)
	}
	if _, err := parse[When](`false && payload.a matches payload.b`); err == nil {
		t.Error("what never runs has no other rules, want the pattern in quotes")
	}
}

func BenchmarkKeyByHost(b *testing.B) {
	key, err := parse[Key](`host(payload.url)`)
	if err != nil {
		b.Fatal(err)
	}
	job := job(`{"url":"https://example.com/a"}`)
	for b.Loop() {
		if _, err := key.run(job); err != nil {
			b.Fatal(err)
		}
	}
}
