package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestBarText(t *testing.T) {
	begun := time.Unix(0, 0)
	for _, test := range []struct {
		bar  Bar
		want string
	}{
		{Bar{what: "calls", total: 2000, done: 1200, begun: begun}, "calls 1,200/2,000 60% (120/s)"},
		{Bar{what: "enqueue", done: 1_000_000, begun: begun}, "enqueue 1,000,000 (100000/s)"},
	} {
		if got := test.bar.text(begun.Add(10 * time.Second)); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}

func TestLogger_NoColor(t *testing.T) {
	for value, colors := range map[string]bool{"": true, "1": false} {
		t.Setenv("NO_COLOR", value)
		var out bytes.Buffer
		LogFlags{}.logger(&out, true).Warn("text", "key", "value")
		if strings.Contains(out.String(), "\x1b") != colors || !strings.Contains(out.String(), "text") {
			t.Errorf("NO_COLOR=%q: %q", value, &out)
		}
	}
}
