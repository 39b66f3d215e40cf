package redact

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testutil/fuzzseed"
)

// Query hides a key in a URL, whatever is around the URL. Query of its result changes nothing.
func FuzzQuery(target *testing.F) {
	f := fuzzseed.More(target)
	for _, seed := range [][2]string{{"", ""}, {"?api_key=${env:A}&", "&q=1"}, {"key=", "#there"}, {"%", "=${file:/a}"}} {
		f.Add(seed[0], seed[1])
	}
	const secret = "hunter2hunter2"
	f.Fuzz(func(t *testing.T, before, after string) {
		text := before + "?api_key=" + secret + "&" + after
		shown := Query(text)
		if !strings.Contains(before+after, secret) && strings.Contains(shown, secret) {
			t.Errorf("%q is shown as %q", text, shown)
		}
		if again := Query(shown); again != shown {
			t.Errorf("%q is shown as %q, and that as %q", text, shown, again)
		}
	})
}
