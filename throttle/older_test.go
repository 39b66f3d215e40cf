package throttle_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/throttle"
)

// An older version kept only the parts of a sliding window. They still count.
func TestOlderSlidingWindow(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		define(t, s, throttle.Limit{Name: "l", Kind: throttle.SlidingWindow, Rate: throttle.PerMinute(5)})
		now := s.now.UnixMicro() / 1e6 // parts of a second
		state := fmt.Sprintf("1000000 %d 1 %d 2 %d 1", now-70, now-40, now-1)
		must(t, s.rdb.Set(background, "hg:{default}:m:sliding_window:l|k", state, time.Minute).Err())
		expect(t, "left", ask(t, s, "l", 0).Remaining, 2)
		expect(t, "left of one more", ask(t, s, "l", 1).Remaining, 1)
		s.wait(22 * time.Second)
		expect(t, "left when a part is over", ask(t, s, "l", 0).Remaining, 3)
	})
}

// An older version kept what every call needs of a limit beside its definition. Who
// defines it as it is brings that over.
func TestOlderDefinition(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		limit := perMinute("l", 5)
		define(t, s, limit)
		ask(t, s, "l", 2)
		must(t, s.rdb.Del(background, "hg:{default}:summaries").Err())
		define(t, s, limit)
		expect(t, "left", ask(t, s, "l", 0).Remaining, 3)
	})
}
