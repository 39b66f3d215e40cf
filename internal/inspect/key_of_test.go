package inspect

import (
	"testing"

	"github.com/headgate/headgate/throttle"
)

// A KeyOf that panics says nothing of its limit, and the others are shown.
func TestKeyOfThatPanics(t *testing.T) {
	k := Snapshot{KeyOf: func(limit string) (string, bool) {
		if limit == "ill" {
			panic("a fault")
		}
		return "host(payload.url)", true
	}}
	k.Limits = []throttle.Limit{{Name: "ill"}, {Name: "well"}}
	all := k.LimitsWithDemand()
	if len(all) != 2 || all[0].KeyExpr != "" || all[1].KeyExpr != "host(payload.url)" {
		t.Errorf("got %+v, want both limits, the second with its key", all)
	}
}
