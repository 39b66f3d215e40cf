package page

import (
	"net/http"
	"runtime"
	"strings"
	"testing"
)

// TestForeignText_Memory: showing a text allocates at most 48 MiB.
func TestForeignText_Memory(t *testing.T) {
	r, err := newRedactor(nil)
	if err != nil {
		t.Fatal(err)
	}
	f := frame{Page: &Page{redactor: r}}
	const size = 4 * longText
	within := func(before, part, after string, length int) string {
		n := (length - len(before) - len(after)) / len(part)
		return before + strings.Repeat(part, n) + after
	}
	deep := func(open, inner, end string, levels int) string {
		return strings.Repeat(open, levels) + inner + strings.Repeat(end, levels)
	}
	texts := map[string]string{
		"arrays, 9,990 deep":           deep("[", "", "]", 9990),
		"objects, 9,990 deep":          deep(`{"a":`, "1", "}", 9990),
		"many numbers, 60 deep":        deep("[", within("", "1,", "1", size-200), "]", 60),
		"many numbers, 60 deep, short": deep("[", within("", "1,", "1", longText-200), "]", 60),
		"many empty objects":           within("[", "{},", "{}]", size),
		"many objects":                 within("[", `{"a":1},`, "{}]", size),
		"many towers":                  within("[", deep("[", "1", "]", 60)+",", "1]", longText),
		"escapes":                      within(`["`, `\u0000`, `"]`, size),
		"what is no UTF-8":             within("", "\xff", "", 4<<20),
		"names of secrets":             within("", "password:", "", 4<<20),
	}
	views := map[string]func(string) string{
		"a block":  func(text string) string { return f.Block([]byte(text)) },
		"a line":   func(text string) string { return short(text) },
		"a header": func(text string) string { return f.Header(http.CanonicalHeaderKey("x-note"), text) },
		"an error": func(text string) string { return f.Clean(text, 300) },
	}
	for view, show := range views {
		for name, text := range texts {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			shown := show(text)
			runtime.ReadMemStats(&after)
			if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 48 {
				t.Errorf("%s with %s takes %d MiB", view, name, took)
			}
			if len(shown) > 4*longText {
				t.Errorf("%s with %s has %d bytes", view, name, len(shown))
			}
		}
	}
}
