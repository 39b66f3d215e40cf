package throttle

import "testing"

// A summary that no script has written is of no limit that would let all through.
func TestDamagedSummariesAreNotPlain(t *testing.T) {
	for _, summary := range []string{"funnel 5 x 10", "funnel 5 1e+15 10", "funnel 0 1000000 1", "token_bucket -1 1000000 1", "funnel 5 1000000 0", "funnel 5 1000000", "window 5 1000000 1"} {
		if p := parsePlain("api", summary); p.limit != nil {
			t.Errorf("%q is plain: %s", summary, p.limit.Limit)
		}
	}
	if p := parsePlain("api", "funnel 5 1000000 10"); p.limit == nil || p.skip != 0 {
		t.Error("a funnel is not plain")
	}
}
