package canonical

import "testing"

func TestPercent(t *testing.T) {
	dollar := func(c byte) bool { return c == '$' }
	for text, want := range map[string]string{
		"":           "",
		"a%62%2fc":   "ab%2Fc", // what is plain is decoded, all else has capital digits
		"a$%24":      "a%24%24",
		"100%":       "100%25",
		"%zz%2":      "%25zz%252",
		"%2541":      "%2541", // and not %41, which would be decoded next time
		"\xff%e3%83": "\xff%E3%83",
	} {
		got := Percent(text, Alphanumeric, dollar)
		if again := Percent(got, Alphanumeric, dollar); got != want || again != got {
			t.Errorf("%q is %q, and that is %q; want %q", text, got, again, want)
		}
	}
}
