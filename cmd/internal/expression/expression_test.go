package expression

import (
	"encoding"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"

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

func TestKey(t *testing.T) {
	tests := []struct{ text, payload, key, err string }{
		{text: `host(payload.url)`, payload: `{"url":"https://Example.COM:8443/a?b"}`, key: "example.com"},
		{text: `host(payload.url)`, payload: `{"url":"http://example.com./"}`, key: "example.com"},
		{text: `host(payload.url)`, payload: `{"url":"http://[::1]:80/"}`, key: "::1"},
		{text: `host(payload.url)`, payload: `{"url":"http://[0:0:0:0:0:0:0:1]/"}`, key: "::1"},
		{text: `host(payload.url)`, payload: `{"url":"http://[::ffff:127.0.0.1]/"}`, key: "127.0.0.1"},
		{text: `host(payload.url)`, payload: `{"url":"http://MÜNCHEN.x:80"}`, key: "xn--mnchen-3ya.x"},
		{text: `payload.account`, payload: `{"account":9007199254740993}`, key: "9007199254740993"},
		{text: `payload.account`, payload: `{"account":1e6}`, key: "1000000"},
		{text: `payload.account`, payload: `{"account":0.25}`, key: "0.25"},
		{text: `payload.paid`, payload: `{"paid":true}`, key: "true"},
		{text: `lower(payload.a) + "/" + task.queue`, payload: `{"a":"X"}`, key: "x/critical"},
		{text: `payload.a ?? "none"`, payload: `{}`, key: "none"},
		{text: `task.type`, payload: `not JSON`, key: "http:request"},
		{text: `payload`, payload: `"whole"`, key: "whole"},
		{text: `$env.payload.a`, payload: `{"a":"b"}`, key: "b"},

		{
			text: `host(payload.url)`, payload: `{"url":"ftp"}`,
			err: `key expression host(payload.url): "ftp" has no host: want an absolute URL such as https://example.com/`,
		},
		{
			text: `host(payload.url)`, payload: `{"url":"http://a b/"}`,
			err: `key expression host(payload.url): "http://a b/" is not a URL`,
		},
		{
			text: `host(payload.url)`, payload: `{"url":"http://ü\u200d/"}`,
			err: `key expression host(payload.url): "ü\u200d" is not the name of a host`,
		},
		{
			text: `host(payload.url)`, payload: `{}`,
			err: `key expression host(payload.url): host wants a URL, not nothing`,
		},
		{
			text: `host(payload.url)`, payload: `{"url":[1]}`,
			err: `key expression host(payload.url): host wants a URL as text, not a list`,
		},
		{
			text: `payload.a.b`, payload: `{}`,
			err: `key expression payload.a.b: cannot fetch b from <nil>`,
		},
		{
			text: `payload.a`, payload: `{}`,
			err: `key expression payload.a: the field is missing or null`,
		},
		{
			text: `payload.a`, payload: `{"a":{}}`,
			err: `key expression payload.a: the result is an object: want text, a number or true/false`,
		},
		{
			text: `payload.a`, payload: `{"a":1e300}`,
			err: `key expression payload.a: the number 1e+300 is not exact: write it as text in the payload`,
		},
		{
			text: `payload.a`, payload: `{"a":""}`,
			err: `key expression payload.a: the key is empty`,
		},
		{
			text: `payload.a`, payload: `{"a":"x\ny"}`,
			err: `key expression payload.a: the key "x\ny" has a control character in it`,
		},
		{
			text: `payload.a`, payload: ``,
			err: `key expression payload.a: the payload is empty: want JSON`,
		},
		{
			text: `payload.a`, payload: `{"a":1} {}`,
			err: `key expression payload.a: the payload is not JSON: there is text after the first value`,
		},
		{
			text: `payload.a`, payload: `{"a"`,
			err: `key expression payload.a: the payload is not JSON: unexpected EOF`,
		},
		{
			text: `repeat(payload.a, 100)`, payload: `{"a":"abc"}`,
			err: `key expression repeat(payload.a, 100): the key "abcabcabcabcabcabcabcabcabcabcabcabcabca"… has 300 bytes: want at most 200`,
		},
	}
	for _, test := range tests {
		key, err := parse[Key](test.text)
		if err != nil {
			t.Errorf("%s: %v", test.text, err)
			continue
		}
		got, err := key.Of(job(test.payload))
		if got != test.key || reason(err) != test.err {
			t.Errorf("%s of %s = %q, %q\nwant %q, %q", test.text, test.payload, got, reason(err), test.key, test.err)
		}
	}
}

func TestKeyDoesNotCompile(t *testing.T) {
	tests := []struct{ text, err string }{
		{"", "key expression is empty: want an expression such as host(payload.url)"},
		{"hots(payload.url)", "key expression hots(payload.url): unknown name hots: want one of payload, task, host(…), or text in quotes"},
		{"payload.", "key expression payload.: unexpected end of expression"},
		{"host()", "key expression host(): not enough arguments to call host"},
		{"task.nme", "key expression task.nme: task has no field nme: want task.type, task.queue or task.id"},
		{"tick", "key expression tick: unknown name tick: want one of payload, task, host(…), or text in quotes"},
		{"string(now())", "key expression string(now()): unknown name now: want one of payload, task, host(…), or text in quotes"},
	}
	for _, test := range tests {
		if _, err := parse[Key](test.text); reason(err) != test.err {
			t.Errorf("%s: %s\nwant %s", test.text, reason(err), test.err)
		}
	}
}

func TestCost(t *testing.T) {
	tests := []struct {
		text, payload string
		cost          int
		err           string
	}{
		{text: `3`, cost: 3},
		{text: `len(payload.items)`, payload: `{"items":[1,2]}`, cost: 2},
		{text: `payload.n`, payload: `{"n":4.0}`, cost: 4},
		{text: `ceil(payload.bytes / 1000)`, payload: `{"bytes":2500}`, cost: 3},
		{
			text: `payload.n`, payload: `{"n":0}`,
			err: `cost expression payload.n: the result is 0: want a whole number of permits, at least 1`,
		},
		{
			text: `payload.n`, payload: `{"n":1.5}`,
			err: `cost expression payload.n: the result is 1.5: want a whole number of permits, at least 1`,
		},
		{
			text: `payload.n`, payload: `{"n":"2"}`,
			err: `cost expression payload.n: the result is text: want a whole number of permits, at least 1`,
		},
		{
			text: `payload.n`, payload: `{}`,
			err: `cost expression payload.n: the field is missing or null`,
		},
		{
			text: `payload.n % 0`, payload: `{"n":1}`,
			err: `cost expression payload.n % 0: integer divide by zero`,
		},
	}
	for _, test := range tests {
		cost, err := parse[Cost](test.text)
		if err != nil {
			t.Errorf("%s: %v", test.text, err)
			continue
		}
		got, err := cost.Of(job(test.payload))
		if got != test.cost || reason(err) != test.err {
			t.Errorf("%s of %s = %d, %q\nwant %d, %q", test.text, test.payload, got, reason(err), test.cost, test.err)
		}
	}
	for _, text := range []string{"0", "-1", "1.5", `"2"`, "nil"} {
		if _, err := parse[Cost](text); err == nil {
			t.Errorf("constant cost %s: no error", text)
		}
	}
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
	tests := []struct {
		text, payload string
		priority      scheduler.PriorityLevel
		err           string
	}{
		{text: "normal", priority: scheduler.PriorityNormal},
		{text: byPlan, payload: `{"plan":"paid"}`, priority: scheduler.PriorityHigh},
		{text: byPlan, payload: `{}`, priority: scheduler.PriorityLow},
		{text: "payload.p", payload: `{"p":"low"}`, priority: scheduler.PriorityLow},
		{
			text: "payload.p", payload: `{"p":"urgent"}`,
			err: `priority expression payload.p: the result is "urgent": want high, normal or low`,
		},
		{
			text: "payload.p", payload: `{"p":{}}`,
			err: `priority expression payload.p: the result is an object: want high, normal or low`,
		},
	}
	for _, test := range tests {
		priority, err := parse[Priority](test.text)
		if err != nil {
			t.Errorf("%s: %v", test.text, err)
			continue
		}
		got, err := priority.Of(job(test.payload))
		if got != test.priority || reason(err) != test.err {
			t.Errorf("%s of %s = %v, %q\nwant %v, %q", test.text, test.payload, got, reason(err), test.priority, test.err)
		}
	}
	const want = "priority expression hgih: unknown name hgih: want one of payload, task, high, normal, low, host(…), or text in quotes"
	if _, err := parse[Priority]("hgih"); reason(err) != want {
		t.Errorf("%v\nwant %s", err, want)
	}
	if _, err := parse[Priority](`"urgent"`); err == nil {
		t.Error(`constant priority "urgent": no error`)
	}
}

func TestWeight(t *testing.T) {
	tests := []struct {
		text, payload string
		weight        int
		err           string
	}{
		{text: "payload.paid ? 5 : 1", payload: `{"paid":true}`, weight: 5},
		{text: "payload.w", payload: `{"w":1000}`, weight: 1000},
		{text: "payload.w", payload: `{"w":2.0}`, weight: 2},
		{text: "payload.w", payload: `{"w":0}`, err: "weight expression payload.w: the result is 0: want a whole number from 1 to 1000"},
		{text: "payload.w", payload: `{"w":-1}`, err: "weight expression payload.w: the result is -1: want a whole number from 1 to 1000"},
		{text: "payload.w", payload: `{"w":1000000000}`, err: "weight expression payload.w: the result is 1000000000: want a whole number from 1 to 1000"},
		{text: "payload.w", payload: `{"w":1.5}`, err: "weight expression payload.w: the result is 1.5: want a whole number from 1 to 1000"},
		{text: "payload.w", payload: `{"w":"3"}`, err: "weight expression payload.w: the result is text: want a whole number from 1 to 1000"},
		{text: "payload.w", payload: `{}`, err: "weight expression payload.w: the field is missing or null"},
	}
	for _, test := range tests {
		weight, err := parse[Weight](test.text)
		if err != nil {
			t.Errorf("%s: %v", test.text, err)
			continue
		}
		got, err := weight.Of(job(test.payload))
		if got != test.weight || reason(err) != test.err {
			t.Errorf("%s of %s = %d, %q\nwant %d, %q", test.text, test.payload, got, reason(err), test.weight, test.err)
		}
	}
	for _, text := range []string{"0", "1001", "1.5"} {
		if _, err := parse[Weight](text); err == nil {
			t.Errorf("constant weight %s: no error", text)
		}
	}
}

func TestZeroValues(t *testing.T) {
	key, err := Key{}.Of(job("not JSON"))
	if key != "" || err != nil {
		t.Errorf("zero Key: %q, %v", key, err)
	}
	cost, err := Cost{}.Of(job("not JSON"))
	if cost != 1 || err != nil {
		t.Errorf("zero Cost: %d, %v", cost, err)
	}
	priority, err := Priority{}.Of(job("not JSON"))
	if priority != scheduler.PriorityNormal || err != nil {
		t.Errorf("zero Priority: %v, %v", priority, err)
	}
	if text := (Key{}).String() + (Cost{}).String(); text != "" {
		t.Errorf("zero expressions print %q", text)
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
		got, err := key.Of(&Job{Payload: payload})
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
