package turns

import "testing"

// TestEveryRuleIsNeeded takes out one rule after the other: each time some
// simulation must break a promise.
func TestEveryRuleIsNeeded(t *testing.T) {
	for _, tt := range []struct {
		name string
		off  rule
	}{
		{"a lane that moves keeps its key", keptKeys},
		{"no lane passes an older one", notPassing},
		{"a slower meter is held", holding},
		{"and behind an older lane", holdingBehind},
		{"meters that get ready one after the other meet", meeting},
		{"but not against an older lane", yielding},
		{"a full lane is passed over", filling},
		{"a queue that takes nothing is passed over", passingOver},
		{"called jobs are told again", tellingAgain},
		{"queues and keys take turns by weight", weighing},
		{"queues of a higher rank go first", ranking},
		{"who comes goes behind", comingLast},
		{"who had a turn and had to wait elsewhere goes first", comingBack},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, s := range simulations {
				for seed := range s.seeds(200) {
					if w := s.run(seed, tt.off, false); w.broken != "" {
						t.Logf("without it, %s, seed %d: %s", s.name, seed, w.broken)
						return
					}
				}
			}
			t.Error("without it nothing breaks")
		})
	}
}
