package expression

import (
	"encoding"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/testutil/fuzzseed"
	"github.com/headgate/headgate/scheduler"
)

func job(payload string) *Job {
	return &Job{Type: "http:request", Queue: "critical", ID: "j1", Payload: []byte(payload)}
}

// reason is an error's text, or "".
func reason(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// row is a row of the tests of a kind. An empty text means the zero Expression.
type row[T any] struct {
	text, payload string
	want          T
	err           string
}

// check evaluates the expressions of a kind.
func check[T comparable, K kind[T]](t *testing.T, source func(payload string) Source, rows []row[T]) {
	t.Helper()
	for _, row := range rows {
		var expression Expression[T, K]
		if row.text != "" {
			if err := expression.UnmarshalText([]byte(row.text)); err != nil {
				t.Errorf("%s: %v", row.text, err)
				continue
			}
		}
		got, err := expression.Value(source(row.payload))
		if got != row.want || reason(err) != row.err {
			t.Errorf("%s of %s = %v, %q\nwant %v, %q", row.text, row.payload, got, reason(err), row.want, row.err)
		}
	}
}

func ofJob(payload string) Source { return job(payload) }

func TestSettle(t *testing.T) {
	ofResult := func(result string) Source {
		return &Done{Job: *job(`{"n":3}`), Result: []byte(result), MustBeJSON: true}
	}
	check[int, settleKind](t, ofResult, []row[int]{
		{text: "result.usage.total", payload: `{"usage":{"total":412}}`, want: 412},
		{text: "fromJSON(result.body).usage.total", payload: `{"status":200,"body":"{\"usage\":{\"total\":7}}"}`, want: 7},
		{text: "result.n + payload.n", payload: `{"n":0}`, want: 3},
		{text: "result.n", payload: `{"n":0}`, want: 0},
		{text: "result.n", payload: `{"n":-1}`, err: "settle expression result.n: the result is -1: want a whole number of permits, 0 or more"},
		{text: "result.n", payload: `{"n":"1"}`, err: "settle expression result.n: the result is text: want a whole number of permits, 0 or more"},
		{text: "result.n", payload: `{}`, err: "settle expression result.n: the field is missing or null"},
		{text: "result.n", payload: `x`, err: "settle expression result.n: the result is not JSON: invalid character 'x' looking for beginning of value"},
	})
}

func TestKey(t *testing.T) {
	check[string, keyKind](t, ofJob, []row[string]{
		{text: `host(payload.url)`, payload: `{"url":"https://Example.COM:8443/a?b"}`, want: "example.com"},
		{text: `host(payload.url)`, payload: `{"url":"http://example.com./"}`, want: "example.com"},
		{text: `host(payload.url)`, payload: `{"url":"http://[::1]:80/"}`, want: "::1"},
		{text: `host(payload.url)`, payload: `{"url":"http://[0:0:0:0:0:0:0:1]/"}`, want: "::1"},
		{text: `host(payload.url)`, payload: `{"url":"http://[::ffff:127.0.0.1]/"}`, want: "127.0.0.1"},
		{text: `host(payload.url)`, payload: `{"url":"http://MÜNCHEN.x:80"}`, want: "xn--mnchen-3ya.x"},
		{text: `payload.account`, payload: `{"account":9007199254740993}`, want: "9007199254740993"},
		{text: `payload.account`, payload: `{"account":1e6}`, want: "1000000"},
		{text: `payload.account`, payload: `{"account":0.25}`, want: "0.25"},
		{text: `payload.paid`, payload: `{"paid":true}`, want: "true"},
		{text: `lower(payload.a) + "/" + task.queue`, payload: `{"a":"X"}`, want: "x/critical"},
		{text: `payload.a ?? "none"`, payload: `{}`, want: "none"},
		{text: `task.type`, payload: `not JSON`, want: "http:request"},
		{text: `payload`, payload: `"whole"`, want: "whole"},
		{text: `$env.payload.a`, payload: `{"a":"b"}`, want: "b"},

		{text: `host(payload.url)`, payload: `{"url":"ftp"}`, err: `key expression host(payload.url): "ftp" has no host: want an absolute URL such as https://example.com/`},
		{text: `host(payload.url)`, payload: `{"url":"http://a b/"}`, err: `key expression host(payload.url): "http://a b/" is not a URL`},
		{text: `host(payload.url)`, payload: `{"url":"http://ü\u200d/"}`, err: `key expression host(payload.url): "ü\u200d" is not the name of a host`},
		{text: `host(payload.url)`, payload: `{}`, err: `key expression host(payload.url): host(…): want a URL, not nothing`},
		{text: `host(payload.url)`, payload: `{"url":[1]}`, err: `key expression host(payload.url): host(…): want a URL as text, not a list`},
		{text: `payload.a.b`, payload: `{}`, err: `key expression payload.a.b: there is no b: the value before it is missing or null`},
		{text: `payload.a.b`, payload: `{"a":1}`, err: `key expression payload.a.b: there is no b: the value before it is no object or list`},
		{text: `payload.a`, payload: `{}`, err: `key expression payload.a: the field is missing or null`},
		{text: `payload.a`, payload: `{"a":{}}`, err: `key expression payload.a: the result is an object: want text, a number or true/false`},
		{text: `payload.a`, payload: `{"a":1e300}`, err: `key expression payload.a: the number 1e+300 is not exact: write it as text in the payload`},
		{text: `payload.a`, payload: `{"a":""}`, err: `key expression payload.a: the key is empty`},
		{text: `payload.a`, payload: `{"a":"x\ny"}`, err: `key expression payload.a: the key "x\ny" has a control character in it`},
		{text: `payload.a`, payload: ``, err: `key expression payload.a: the payload is empty: want JSON`},
		{text: `payload.a`, payload: `{"a":1} {}`, err: `key expression payload.a: the payload is not JSON: there is text after the first value`},
		{text: `payload.a`, payload: `{"a"`, err: `key expression payload.a: the payload is not JSON: unexpected EOF`},
		{text: `repeat(payload.a, 100)`, payload: `{"a":"abc"}`, err: `key expression repeat(payload.a, 100): the key "abcabcabcabcabcabcabcabcabcabcabcabcabca"… has 300 bytes: want at most 200`},
	})
}

func TestCost(t *testing.T) {
	check[int, costKind](t, ofJob, []row[int]{
		{text: `3`, want: 3},
		{text: `len(payload.items)`, payload: `{"items":[1,2]}`, want: 2},
		{text: `payload.n`, payload: `{"n":4.0}`, want: 4},
		{text: `ceil(payload.bytes / 1000)`, payload: `{"bytes":2500}`, want: 3},
		{text: `payload.n`, payload: `{"n":0}`, err: `cost expression payload.n: the result is 0: want a whole number of permits, at least 1`},
		{text: `payload.n`, payload: `{"n":1.5}`, err: `cost expression payload.n: the result is 1.5: want a whole number of permits, at least 1`},
		{text: `payload.n`, payload: `{"n":"2"}`, err: `cost expression payload.n: the result is text: want a whole number of permits, at least 1`},
		{text: `payload.n`, payload: `{}`, err: `cost expression payload.n: the field is missing or null`},
		{text: `payload.n % 0`, payload: `{"n":1}`, err: `cost expression payload.n % 0: integer divide by zero`},
	})
}

func TestConstantCost(t *testing.T) {
	for text, want := range map[string]int{"2 + 3": 5, "payload.n": 0, "len(task.id)": 0} {
		cost, err := parse[Cost](text)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := cost.Constant(); got != want || ok != (want > 0) {
			t.Errorf("%s: %d, %t, want %d", text, got, ok, want)
		}
	}
	if got, ok := (Cost{}).Constant(); got != 1 || !ok {
		t.Errorf("zero cost: %d, %t, want 1, true", got, ok)
	}
}

func TestPriority(t *testing.T) {
	const byPlan = `payload.plan == "paid" ? high : low`
	check[scheduler.PriorityLevel, priorityKind](t, ofJob, []row[scheduler.PriorityLevel]{
		{text: "normal", want: scheduler.PriorityNormal},
		{text: byPlan, payload: `{"plan":"paid"}`, want: scheduler.PriorityHigh},
		{text: byPlan, payload: `{}`, want: scheduler.PriorityLow},
		{text: "payload.p", payload: `{"p":"low"}`, want: scheduler.PriorityLow},
		{text: "payload.p", payload: `{"p":"urgent"}`, err: `priority expression payload.p: the result is "urgent": want high, normal or low`},
		{text: "payload.p", payload: `{"p":{}}`, err: `priority expression payload.p: the result is an object: want high, normal or low`},
	})
}

func TestWeight(t *testing.T) {
	check[int, weightKind](t, ofJob, []row[int]{
		{text: "payload.paid ? 5 : 1", payload: `{"paid":true}`, want: 5},
		{text: "payload.w", payload: `{"w":1000}`, want: 1000},
		{text: "payload.w", payload: `{"w":2.0}`, want: 2},
		{text: "payload.w", payload: `{"w":0}`, err: "weight expression payload.w: the result is 0: want a whole number from 1 to 1000"},
		{text: "payload.w", payload: `{"w":-1}`, err: "weight expression payload.w: the result is -1: want a whole number from 1 to 1000"},
		{text: "payload.w", payload: `{"w":1000000000}`, err: "weight expression payload.w: the result is 1000000000: want a whole number from 1 to 1000"},
		{text: "payload.w", payload: `{"w":1.5}`, err: "weight expression payload.w: the result is 1.5: want a whole number from 1 to 1000"},
		{text: "payload.w", payload: `{"w":"3"}`, err: "weight expression payload.w: the result is text: want a whole number from 1 to 1000"},
		{text: "payload.w", payload: `{}`, err: "weight expression payload.w: the field is missing or null"},
	})
}

func TestUnmarshalText_Errors(t *testing.T) {
	const number = "want a whole number "
	for _, test := range []struct {
		compile   func(string) error
		text, err string
	}{
		{compiles[Key], "", "key expression is empty: want an expression such as host(payload.url)"},
		{compiles[Key], "hots(payload.url)", "key expression hots(payload.url): unknown name hots: want one of payload, task, host(…), or text in quotes"},
		{compiles[Key], "payload.", "key expression payload.: column 8: unexpected end of expression"},
		{compiles[Key], "host()", "key expression host(): column 1: not enough arguments to call host"},
		{compiles[Key], "task.nme", "key expression task.nme: task has no field nme: want task.type, task.queue or task.id"},
		{compiles[Key], "tick", "key expression tick: unknown name tick: want one of payload, task, host(…), or text in quotes"},
		{compiles[Key], "string(now())", "key expression string(now()): unknown name now: want one of payload, task, host(…), or text in quotes"},
		{compiles[Key], `""`, `key expression "": the key is empty`},
		{compiles[Cost], "0", "cost expression 0: the result is 0: " + number + "of permits, at least 1"},
		{compiles[Cost], "1.5", "cost expression 1.5: the result is 1.5: " + number + "of permits, at least 1"},
		{compiles[Cost], `"2"`, `cost expression "2": the result is text: ` + number + "of permits, at least 1"},
		{compiles[Cost], "nil", "cost expression nil: the field is missing or null"},
		{compiles[Weight], "1001", "weight expression 1001: the result is 1001: " + number + "from 1 to 1000"},
		{compiles[Priority], "hgih", "priority expression hgih: unknown name hgih: want one of payload, task, high, normal, low, host(…), or text in quotes"},
		{compiles[Priority], `"urgent"`, `priority expression "urgent": the result is "urgent": want high, normal or low`},
		{compiles[Settle], "results.n", "settle expression results.n: unknown name results: want one of payload, task, result, host(…), or text in quotes"},
		{compiles[When], "1", "condition 1: the result is a number: want true or false"},
		{compiles[When], "task.id", "condition task.id: the result is text: want true or false"},
		{compiles[Cost], "host(payload.url)", "cost expression host(payload.url): the result is text: " + number + "of permits, at least 1"},
		{compiles[Weight], `payload.plan == "paid"`, `weight expression payload.plan == "paid": the result is a bool: ` + number + "from 1 to 1000"},
		{compiles[Key], "[payload.a, payload.b]", "key expression [payload.a, payload.b]: the result is a list: want text, a number or true/false"},
		{compiles[Priority], "len(payload.items)", "priority expression len(payload.items): the result is a number: want high, normal or low"},
	} {
		if err := test.compile(test.text); reason(err) != test.err {
			t.Errorf("%s: %v\nwant %s", test.text, err, test.err)
		}
	}
}

func TestZeroValues(t *testing.T) {
	check[string, keyKind](t, ofJob, []row[string]{{}})
	check[int, costKind](t, ofJob, []row[int]{{want: 1}})
	check[int, settleKind](t, ofJob, []row[int]{{}})
	check[int, weightKind](t, ofJob, []row[int]{{}})
	check[bool, whenKind](t, ofJob, []row[bool]{{want: true}})
	check[scheduler.PriorityLevel, priorityKind](t, ofJob, []row[scheduler.PriorityLevel]{{want: scheduler.PriorityNormal}})
	if text := (Key{}).String(); text != "" || !(Settle{}).IsZero() {
		t.Errorf("the zero Key prints %q", text)
	}
}

// Whatever the payload, a key is fit for a name in Redis or there is an error,
// and whole numbers do not lose a digit.
func TestKeyOfAnyPayload(t *testing.T) {
	key, err := parse[Key]("payload.k")
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.OneOf(
			rapid.Map(rapid.Int(), func(n int) any { return n }),
			rapid.Map(rapid.Float64Range(-1e18, 1e18), func(f float64) any { return f }),
			rapid.Map(rapid.String(), func(s string) any { return s }),
		).Draw(t, "value")
		payload, err := json.Marshal(map[string]any{"k": value})
		if err != nil {
			t.Fatal(err)
		}
		got, err := key.Value(&Job{Payload: payload})
		if n, whole := value.(int); whole && got != strconv.Itoa(n) {
			t.Fatalf("%d became %q, %v", n, got, err)
		}
		if f, ok := value.(float64); ok && err == nil {
			if back, err := strconv.ParseFloat(got, 64); err != nil || back != f || math.Abs(f) >= maxExact && f != math.Trunc(f) {
				t.Fatalf("%v became %q", f, got)
			}
		}
		if err == nil && (got == "" || len(got) > maxKey || strings.ContainsFunc(got, unicode.IsControl)) {
			t.Fatalf("%v became the key %q", value, got)
		}
	})
}

// parse compiles a text as a config file does.
func parse[T any, P interface {
	*T
	encoding.TextUnmarshaler
}](text string) (T, error) {
	var value T
	err := P(&value).UnmarshalText([]byte(text))
	return value, err
}

// compiles returns the error of parse.
func compiles[T any, P interface {
	*T
	encoding.TextUnmarshaler
}](text string) error {
	_, err := parse[T, P](text)
	return err
}

// Whatever an expression and a payload are, each ends in a value or an error.
func FuzzExpressions(target *testing.F) {
	f := fuzzseed.More(target)
	for _, seed := range [][2]string{
		{"host(payload.url)", `{"url":"https://example.com/"}`},
		{"payload.a[0].b ?? 'x'", `{"a":[{}]}`},
		{"len(payload) > 3 ? 1 : 2", `"text"`},
		{"payload.n * 2", `{"n":9007199254740993}`},
		{"task.type + task.id", `not JSON`},
		{"split(result, ' ')[0]", `{}`},
		{"result.status == 200", `null`},
		{"payload matches '['", `"a"`},
	} {
		f.Add(seed[0], []byte(seed[1]))
	}
	f.Fuzz(func(t *testing.T, text string, payload []byte) {
		job := func() *Job { return &Job{Type: "a", Queue: "default", ID: "1", Payload: payload} }
		if key, err := parse[Key](text); err == nil {
			if value, err := key.Value(job()); err == nil {
				if _, err := (keyKind{}).convert(value); err != nil {
					t.Errorf("%q is the key %q: %v", text, value, err)
				}
			}
		}
		if settle, err := parse[Settle](text); err == nil {
			if n, err := settle.Value(&Done{Job: *job(), Result: payload}); err == nil && n < 0 {
				t.Errorf("%q settles %d", text, n)
			}
		}
	})
}

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
		`toJSON(payload)`:                         strings.Repeat("[", 90) + long + strings.Repeat("]", 90),
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
		value, err := template.Value(job(payload))
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
		value, err := template.Value(job(test.payload))
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
	for _, text := range []string{`int(payload)`, `date(payload).Year()`, `duration(payload).Hours()`, `timezone(payload).String()`, `{"a": 1}[payload].b`, `payload["b"]`, `fromJSON(payload)`} {
		key, err := parse[Key](text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if _, err := key.Value(job(payload)); err == nil || len(err.Error()) > 400 {
			t.Errorf("%s: an error of %d bytes: want one of at most 400", text, len(reason(err)))
		}
	}
}

func TestResponseIs(t *testing.T) {
	ofBody := func(body string) Source {
		header := http.Header{"X-Reason": {"quota"}}
		return &Response{Job: *job(`{"n":3}`), Status: 403, Header: header, Body: func() []byte { return []byte(body) }}
	}
	check[bool, responseKind](t, ofBody, []row[bool]{
		{text: ``, want: false},
		{text: `status == 403`, want: true},
		{text: `header("x-reason") == "quota"`, want: true},
		{text: `header("X-None") == ""`, want: true},
		{text: `body contains "rate"`, payload: "your rate is too high", want: true},
		{text: `json?.error?.reason == "quotaExceeded"`, payload: `{"error":{"reason":"quotaExceeded"}}`, want: true},
		{text: `json?.error?.reason == "quotaExceeded"`, payload: `<html>`},
		{text: `json?.errors != nil`, payload: `{"data":{}}`},
		{text: `json?.limited`, payload: `{"limited":null}`},
		{text: `payload.n == 3 && task.type == "http:request"`, want: true},
		{text: `json.error.reason == "x"`, payload: `<html>`, err: `condition json.error.reason == "x": there is no error: the value before it is missing or null`},
	})
	for text, want := range map[string]string{
		``:                 "condition is empty: want an expression such as status == 403 && body contains \"quota\"",
		`result.ok`:        `condition result.ok: unknown name result: want one of status, header, body, json, payload, task, host(…), or text in quotes`,
		`header() == "x"`:  `condition header() == "x": column 1: not enough arguments to call header`,
		`status`:           `condition status: the result is a number: want true or false`,
		`header("Left")`:   `condition header("Left"): the result is text: want true or false`,
		`status = 429`:     `condition status = 429: column 8: unexpected =: want == to compare`,
		`header.Left == 1`: `condition header.Left == 1: column 8: header is a function: want header("Left")`,
		`status > "400"`:   `condition status > "400": column 8: invalid operation: > (mismatched types int and string)`,
	} {
		if _, err := parse[ResponseIs](text); reason(err) != want {
			t.Errorf("%s: %q, want %q", text, reason(err), want)
		}
	}
}
