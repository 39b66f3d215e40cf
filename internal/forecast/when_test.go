package forecast

import (
	"testing"
	"time"

	"github.com/headgate/headgate/internal/duration"
)

// TestWhen: each text ends a sentence.
func TestWhen(t *testing.T) {
	at := func(d time.Duration) string { return "23:00, after " + duration.Text(d) }
	for want, e := range map[string]Estimate{
		"starts now":           {Known: true, Estimated: true},
		"starts in 55 s":       {Known: true, StartsIn: 55 * time.Second},
		"starts in about 13 s": {Known: true, StartsIn: 13 * time.Second, Estimated: true},
		"starts no earlier than 23:00, after 20 s": {AtLeast: true, StartsIn: 20 * time.Second, Estimated: true},
		"starts at an unknown time":                {},
	} {
		if got := "starts " + e.When(duration.Text, at); got != want {
			t.Errorf("%+v: %q, want %q", e, got, want)
		}
	}
	// A bound that has passed says nothing.
	if got := (Estimate{AtLeast: true}).When(duration.Text, at); got != "at an unknown time" {
		t.Errorf("not before now: %q", got)
	}
}
