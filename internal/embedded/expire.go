package embedded

import "time"

// How often keys grow older, which takes the longer the more there are: a
// twentieth of the time, if that is not too seldom for the shortest that live.
const (
	expireOften  = 50 * time.Millisecond
	expireSeldom = 250 * time.Millisecond
	expireShare  = 20
)

// expire has keys expire until done is closed, up to expireSeldom early
// or late. With its own ClockTTL miniredis would look at all keys for each
// command, so that a command costs more the more jobs there are.
func (s *Server) expire(done <-chan struct{}) {
	last := time.Now()
	timer := time.NewTimer(expireOften)
	defer timer.Stop()
	for {
		select {
		case <-done:
			return
		case now := <-timer.C:
			s.socket.alone(func() { s.redis.FastForward(now.Sub(last)) })
			last = now
			timer.Reset(min(max(expireOften, expireShare*time.Since(now)), expireSeldom))
		}
	}
}
