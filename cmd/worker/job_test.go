package main

import (
	"testing"

	"github.com/headgate/headgate/internal/waitdb"
)

// A fairness key is no meter that a job waits for.
func TestPosition_FairnessKey_IsNoMeter(t *testing.T) {
	position := waitdb.Position{Lane: waitdb.NewLane("default\napi|\nhost|a\n|3|tenant")}
	if p := newPositionView(position); len(p.Lane) != 2 || p.FairnessKey != "tenant" || p.FairnessWeight != 3 {
		t.Errorf("in JSON: lane %q, key %q of weight %d", p.Lane, p.FairnessKey, p.FairnessWeight)
	}
	if got, want := positionLines(position)[0][1], "api + host of a + tenant of weight 3"; got != want {
		t.Errorf("for people: %q, want %q", got, want)
	}
}
