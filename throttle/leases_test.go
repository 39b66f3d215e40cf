package throttle_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/throttle"
)

// TestExtend_LimitChanges: the limit of a lease changes while the lease is held. Its holder extends it
// in a third of the time that it was told last, so no other holder gets the permit.
func TestExtend_LimitChanges(t *testing.T) {
	slots := func(lease time.Duration) throttle.Limit {
		return throttle.Limit{Name: "slots", Kind: throttle.Concurrency, Capacity: 1, Lease: lease}
	}
	set := func(t *testing.T, s *stage, l throttle.Limit) {
		must(t, s.Set(t.Context(), l))
	}
	for name, tt := range map[string]struct {
		change func(t *testing.T, s *stage)
		wants  time.Duration // what the extensions return in the end
	}{
		"shorter": {func(t *testing.T, s *stage) { set(t, s, slots(time.Second)) }, time.Second},
		"longer":  {func(t *testing.T, s *stage) { set(t, s, slots(time.Hour)) }, time.Hour},
		"shorter, then as before": {func(t *testing.T, s *stage) {
			set(t, s, slots(time.Second))
			set(t, s, slots(20*time.Second))
		}, 20 * time.Second},
		"deleted": {func(t *testing.T, s *stage) { must(t, s.Delete(t.Context(), "slots")) }, 30 * time.Second},
		"of another kind": {func(t *testing.T, s *stage) {
			set(t, s, throttle.Limit{Name: "slots", Kind: throttle.Funnel, Rate: throttle.PerHour(1)})
		}, 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			onEvery(t, func(t *testing.T, s *stage) {
				set(t, s, slots(20*time.Second))
				d := ask(t, s, "slots", 1)
				expect(t, "told at first", d.Lease, 20*time.Second)
				s.wait(time.Second)
				tt.change(t, s)
				lease := d.Lease
				for range 20 {
					s.wait(lease / 6)
					_, err := s.Extend(t.Context(), d.Holder, one("slots")) // its reply is lost
					must(t, err)
					s.wait(lease / 6)
					extended, err := s.Extend(t.Context(), d.Holder, one("slots"))
					must(t, err)
					if extended == 0 {
						t.Fatalf("the lease was lost, although its holder was told that it lasts %s", lease)
					}
					lease = extended
				}
				expect(t, "told in the end", lease, tt.wants)
				s.wait(lease / 2)
				set(t, s, slots(time.Second))
				expect(t, "another call", ask(t, s, "slots", 1).Outcome, denied)
				must(t, s.Free(t.Context(), d.Holder, one("slots")))
				expect(t, "another call after that", ask(t, s, "slots", 1).Outcome, allowed)
			})
		})
	}
}

// TestExtend_Lost: an extension returns 0 if a lease has ended, or if its meter was reset.
func TestExtend_Lost(t *testing.T) {
	onEvery(t, func(t *testing.T, s *stage) {
		define(t, s, throttle.Limit{Name: "slots", Kind: throttle.Concurrency, Capacity: 1})
		for _, lose := range []func(){
			func() { s.wait(30 * time.Second) },
			func() { must(t, s.Reset(t.Context(), "slots", "k")) },
			func() { s.wait(time.Minute); must(t, s.Delete(t.Context(), "slots")) },
		} {
			d := ask(t, s, "slots", 1)
			lose()
			extended, err := s.Extend(t.Context(), d.Holder, one("slots"))
			must(t, err)
			expect(t, "extended", extended, 0)
		}
	})
}
