package embedded

import (
	"time"

	"github.com/alicebob/miniredis/v2"
)

// How often keys grow older, which takes the longer the more there are: a
// twentieth of the time, if that is not too seldom for the shortest that live.
const (
	expireOften  = 50 * time.Millisecond
	expireSeldom = 250 * time.Millisecond
	expireShare  = 20
)

// expire has the keys of m expire until done is closed, up to expireSeldom early
// or late. With its own ClockTTL miniredis would look at all keys for each
// command, so that a command costs more the more jobs there are.
func expire(m *miniredis.Miniredis, done <-chan struct{}) {
	last := time.Now()
	timer := time.NewTimer(expireOften)
	defer timer.Stop()
	for {
		select {
		case <-done:
			return
		case now := <-timer.C:
			m.FastForward(now.Sub(last))
			last = now
			timer.Reset(min(max(expireOften, expireShare*time.Since(now)), expireSeldom))
		}
	}
}
