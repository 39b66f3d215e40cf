package throttle_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/throttle"
)

func TestLeases(t *testing.T) {
	onEvery(t, func(t *testing.T, s *stage) {
		ctx := t.Context()
		define(t, s,
			throttle.Limit{Name: "short", Kind: throttle.Concurrency, Capacity: 2, Lease: 10 * time.Second},
			throttle.Limit{Name: "long", Kind: throttle.Concurrency, Capacity: 3},
			throttle.Limit{Name: "log", Kind: throttle.SlidingLog, Rate: throttle.PerHour(9)})
		needs := []throttle.Need{{Limit: "long", Key: "k", Cost: 2}, {Limit: "log", Key: "k"}, {Limit: "short", Key: "k"}}
		extend := func(holder string) bool {
			t.Helper()
			held, err := s.Extend(ctx, holder, needs...)
			must(t, err)
			return held
		}
		free := func() [2]int { return [2]int{ask(t, s, "long", 0).Remaining, ask(t, s, "short", 0).Remaining} }

		d, err := s.AllowAll(ctx, needs...)
		must(t, err)
		expect(t, "the shortest lease", d.Lease, 10*time.Second)
		expect(t, "free", free(), [2]int{1, 1})
		s.wait(10*time.Second - time.Microsecond)
		expect(t, "extended", extend(d.Holder), true)
		expect(t, "another holder's", extend("another"), false)
		s.wait(10*time.Second - time.Microsecond)
		expect(t, "free before the end of the extension", free(), [2]int{1, 1})
		s.wait(time.Microsecond)
		expect(t, "free at its end", free(), [2]int{1, 2})
		expect(t, "one of two is lost", extend(d.Holder), false)
		expect(t, "a lost lease stays lost", free(), [2]int{1, 2})
		s.wait(30*time.Second - time.Microsecond)
		expect(t, "the other lease was extended nevertheless", free(), [2]int{1, 2})
		must(t, s.Free(ctx, "another", needs...))
		expect(t, "after another holder's free", free(), [2]int{1, 2})
		must(t, s.Free(ctx, d.Holder, needs...))
		must(t, s.Free(ctx, d.Holder, needs...))
		expect(t, "freed", free(), [2]int{3, 2})
	})
}
