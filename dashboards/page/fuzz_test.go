package page

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testutil/fuzzseed"
)

// FuzzRedact: a secret with its name beside it is hidden, whatever surrounds it.
func FuzzRedact(target *testing.F) {
	f := fuzzseed.More(target)
	for _, seed := range [][2]string{
		{"an error:", " at the end"}, {`{"url":"https://u:p@h/","headers":{"Authorization":"Bearer `, `"}}`}, {"token:", "&"}, {"\\\"", "\\"},
	} {
		f.Add(seed[0], seed[1])
	}
	r, err := newRedactor([]string{"x-*"})
	if err != nil {
		f.Fatal(err)
	}
	const secret = "hunter2hunter2"
	f.Fuzz(func(t *testing.T, before, after string) {
		for _, line := range []string{"password: " + secret, "Authorization: Bearer " + secret, "https://user:" + secret + "@h.example/", "https://h.example/?sig=" + secret} {
			if got := r.Text(before + "\n" + line + "\n" + after); strings.Contains(got, secret) {
				t.Errorf("%q is shown as %q", before+"\n"+line+"\n"+after, got)
			}
		}
		_ = r.block([]byte(before + after))
	})
}
