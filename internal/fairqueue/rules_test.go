package fairqueue

import "testing"

// TestEveryRuleIsNeeded takes out one rule after the other: each time a simulation must
// break a promise, which the table names so that not all are played.
func TestEveryRuleIsNeeded(t *testing.T) {
	for _, tt := range []struct {
		name   string
		off    rule
		breaks string
	}{
		{"a lane that moves keeps its key", keepPosition, "overlapping limits"},
		{"no lane passes an older one", noOvertaking, "hosts"},
		{"a slower meter is held", holding, "hosts"},
		{"and behind an older lane", holdingBehind, "hosts"},
		{"meters that get ready one after the other meet", meeting, "shares"},
		{"but not against an older lane", yielding, "overlapping limits"},
		{"a full lane is passed over", filling, "faults"},
		{"a queue that takes nothing is passed over", passingOver, "a stopped queue"},
		{"several turns of a window are held", holdingSeveral, "pairs"},
		{"granted jobs are promoted again", promoteAgain, "faults"},
		{"queues and keys take turns by weight", weighing, "weights"},
		{"queues of a higher rank go first", ranking, "strict queues"},
		{"a new share goes behind", comingLast, "newcomers"},
		{"who had a turn and had to wait elsewhere goes first", comingBack, "overlapping limits"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, s := range scenarios {
				if s.name != tt.breaks {
					continue
				}
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
