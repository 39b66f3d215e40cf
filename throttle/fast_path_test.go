package throttle

import "testing"

// TestParseFastLimit_Corrupt: a corrupt summary does not become a limit that lets everything
// through.
func TestParseFastLimit_Corrupt(t *testing.T) {
	for _, summary := range []string{"funnel 5 x 10", "funnel 5 1e+15 10", "funnel 0 1000000 1", "token_bucket -1 1000000 1", "funnel 5 1000000 0", "funnel 5 1000000", "window 5 1000000 1"} {
		if f := parseFastLimit("api", summary); f.limit != nil {
			t.Errorf("%q is for the fast path: %+v", summary, f.limit)
		}
	}
	if f := parseFastLimit("api", "funnel 5 1000000 10"); f.limit == nil || f.skip.Load() != 0 {
		t.Error("a funnel is not for the fast path")
	}
}
