package embedded

import (
	"time"

	"github.com/alicebob/miniredis/v2"
)

// How often keys grow older: so often, or at most for a twentieth of the time.
const (
	expireEvery = 50 * time.Millisecond
	expireShare = 20
)

// expire has the keys of m expire until done is closed, up to expireEvery early
// or late. With its own ClockTTL miniredis would look at all keys for each
// command, so that a command costs more the more jobs there are.
func expire(m *miniredis.Miniredis, done <-chan struct{}) {
	last := time.Now()
	timer := time.NewTimer(expireEvery)
	defer timer.Stop()
	for {
		select {
		case <-done:
			return
		case now := <-timer.C:
			m.FastForward(now.Sub(last))
			last = now
			timer.Reset(max(expireEvery, expireShare*time.Since(now)))
		}
	}
}
