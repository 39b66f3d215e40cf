package throttle

import (
	"fmt"
	"testing"
	"time"
)

// TestLocal_ColdKeys: what counts nothing any more is dropped while calls go on, and looking at a
// key keeps nothing.
func TestLocal_ColdKeys(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	l := NewLocal(Options{Clock: func() time.Time { return now }})
	if err := l.Define(t.Context(), Limit{Name: "a", Kind: SlidingLog, Rate: PerMinute(5)}); err != nil {
		t.Fatal(err)
	}
	for i := range 3000 {
		n := 1
		if i >= 1000 {
			now, n = now.Add(time.Second), 0
		}
		if _, err := l.AllowN(t.Context(), "a", fmt.Sprint(i), n); err != nil {
			t.Fatal(err)
		}
	}
	if kept := len(l.backend.(*local).meters); kept != 0 {
		t.Errorf("%d meters are kept, want none", kept)
	}
}
