package config

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestParse_ManyErrors: of a file with thousands of errors the first 20 are told, and how many
// more there are. A file that is too long to be a config is refused before it is parsed.
func TestParse_ManyErrors(t *testing.T) {
	for fields, want := range map[int]struct {
		errors int
		last   string
	}{
		20:     {20, `headgate.yaml:20:1: unknown field "field19"`},
		5_000:  {21, "headgate.yaml:20:1: and 4980 more"},
		50_000: {1, "headgate.yaml:33334:11: more than 100000 words and marks: no config needs that"},
	} {
		var text strings.Builder
		for i := range fields {
			fmt.Fprintf(&text, "field%d: %d\n", i, i)
		}
		_, err := Parse("headgate.yaml", []byte(text.String()))
		all, ok := errors.AsType[Errors](err)
		if !ok || len(all) != want.errors || !strings.HasPrefix(all[len(all)-1].Error(), want.last) {
			t.Errorf("%d unknown fields: %d errors, the last %q; want %d, %q", fields, len(all), all[max(0, len(all)-1)], want.errors, want.last)
		}
	}
}
