package throttle_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/throttle"
)

// TestLocalOutlivesItsClock: a Clock that panics ends the call that asked it, and no other.
func TestLocalOutlivesItsClock(t *testing.T) {
	broken := false
	l := &throttle.Local{Clock: func() time.Time {
		if broken {
			panic("no time")
		}
		return noon
	}}
	define(t, l, log(3))
	for range 2 {
		broken = true
		func() {
			defer func() {
				if p := recover(); p != "no time" {
					t.Errorf("recovered %v, want the Clock's panic", p)
				}
			}()
			_, _ = l.Allow(t.Context(), "log", "k")
		}()
		broken = false
		expect(t, "the next call", ask(t, l, "log", 1).Outcome, allowed)
	}
}
