package expression

import (
	"testing"

	"github.com/headgate/headgate/internal/testutil/fuzzseed"
)

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
			if value, err := key.Of(job()); err == nil {
				if _, err := (keyKind{}).convert(value); err != nil {
					t.Errorf("%q is the key %q: %v", text, value, err)
				}
			}
		}
		if cost, err := parse[Cost](text); err == nil {
			if n, err := cost.Of(job()); err == nil && n < 0 {
				t.Errorf("%q costs %d", text, n)
			}
		}
		if priority, err := parse[Priority](text); err == nil {
			_, _ = priority.Of(job())
		}
		if settle, err := parse[Settle](text); err == nil {
			if n, err := settle.Of(&Done{Job: *job(), Result: payload}); err == nil && n < 0 {
				t.Errorf("%q settles %d", text, n)
			}
		}
		if when, err := parse[When](text); err == nil {
			_, _ = when.Of(&Done{Job: *job(), Result: payload})
		}
	})
}
