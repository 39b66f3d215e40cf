package script

import (
	"cmp"
	"crypto/rand"
	"iter"
	"math"
	"strconv"
	"sync"
	"time"
)

// Callers is a pool of callers with unique names. It also converts times of Redis's clock to times
// of this process's clock. It is safe for concurrent use.
//
// Each reply has the time at which Redis ran the script. The fastest reply gives the best estimate
// of the offset between the clocks. With this offset, Callers computes the age of a reply that this
// process read late.
type Callers struct {
	mu   sync.Mutex
	idle []*Caller // the caller that was used last is at the end
	// current and previous are the largest offsets of the current and of the previous interval:
	// lower bounds of how far Redis's clock is ahead of this process's, in microseconds.
	current, previous int64
	intervalEnd       time.Time // end of the current interval
}

const (
	// intervalLength is the length of an interval. The best reply of an interval is used until the end
	// of the next interval. Clocks drift apart by some milliseconds in that time.
	intervalLength = 30 * time.Second
	// unknownOffset is the offset of an interval without a reply.
	unknownOffset = math.MinInt64
)

// A Caller sends one script at a time, and numbers its scripts. For an hour, Redis stores the number
// of the caller's last script. By this number it recognizes a repeat after a lost reply, and a
// script that arrives after a later script of the same caller. Callers are reused, so Redis stores
// as many numbers as there were concurrent calls.
type Caller struct {
	Name  string
	Calls uint64 // number of the present script, from 1
}

// NewCallers returns an empty pool.
func NewCallers() *Callers {
	return &Callers{current: unknownOffset, previous: unknownOffset}
}

// Next returns a caller for one script. Call done after the reply.
func (c *Callers) Next() (caller *Caller, done func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if last := len(c.idle) - 1; last >= 0 {
		caller, c.idle = c.idle[last], c.idle[:last]
	} else {
		caller = &Caller{Name: rand.Text()}
	}
	caller.Calls++
	return caller, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.idle = append(c.idle, caller)
	}
}

// When converts redisUS, Redis's time in the reply that has just been read, to this process's
// clock. redisUS is in Unix microseconds, and sent is an argument of the same script. The result is
// between the time of sending and now. It is too late by at most the time that the fastest of the
// recent replies took. If there is no recent reply, the result is the time of sending.
func (c *Callers) When(redisUS int64, sent *Sent) time.Time {
	received := time.Now()
	us, maxAge := redisUS-received.UnixMicro(), Elapsed(sent.last, received)
	c.mu.Lock()
	defer c.mu.Unlock()
	if received.After(c.intervalEnd) {
		if c.previous = c.current; received.Sub(c.intervalEnd) > intervalLength {
			c.previous = unknownOffset
		}
		c.current, c.intervalEnd = unknownOffset, received.Add(intervalLength)
	}
	best := max(c.previous, c.current)
	c.current = max(c.current, us)
	if best == unknownOffset {
		return received.Add(-maxAge)
	}
	return received.Add(-min(maxAge, max(0, time.Duration(best-us)*time.Microsecond)))
}

// Elapsed returns the time from one moment to another by the monotonic or by the wall clock,
// whichever gives more. The monotonic clock stops while a machine sleeps.
func Elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

// Sent is an argument of a script: the number of a caller's call or, if Number is 0, how often the
// script was sent. Sent has the time at which the script was last sent, too. This works because
// go-redis encodes the arguments each time that it sends them.
type Sent struct {
	Number uint64
	times  uint64
	last   time.Time
}

// Times returns how often the call was sent.
func (s *Sent) Times() int { return int(s.times) }

// MarshalBinary implements encoding.BinaryMarshaler. It counts one more sending.
func (s *Sent) MarshalBinary() ([]byte, error) {
	s.times, s.last = s.times+1, time.Now()
	return strconv.AppendUint(nil, cmp.Or(s.Number, s.times), 10), nil
}

// MaxCalls is the most calls that one script takes, and MaxMeters the most meters that these calls
// need together. Lua cannot unpack more than 8,000 values, and Redis serves no other client while a
// script runs.
const (
	MaxCalls  = 64
	MaxMeters = 1000
)

// Batches splits calls, in their order, into batches for one script each. meters returns the number
// of meters that a call needs. A call that needs more than MaxMeters is a batch of its own.
func Batches[T any](calls []T, meters func(T) int) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		for len(calls) > 0 {
			n, sum := 1, meters(calls[0])
			for n < min(len(calls), MaxCalls) && sum+meters(calls[n]) <= MaxMeters {
				sum += meters(calls[n])
				n++
			}
			if !yield(calls[:n:n]) {
				return
			}
			calls = calls[n:]
		}
	}
}
