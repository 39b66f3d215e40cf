package script

import (
	"iter"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// Callers is a pool of callers with unique names. It is safe for concurrent use.
type Callers struct {
	pool  sync.Pool // of *Caller
	self  string    // unique among all processes
	names atomic.Uint64
	clock clock
}

// A Caller sends one script at a time. For a minute, Redis stores the number of the caller's last
// script that took permits. By this number it recognizes a repeat after a lost reply. Callers are
// reused, so Redis stores about as many numbers as there are concurrent calls.
type Caller struct {
	Name  string
	Calls uint64 // number of the present script, from 1
}

// NewCallers returns an empty pool.
func NewCallers() *Callers {
	c := &Callers{self: uuid.NewString() + ":"}
	c.pool.New = func() any { return &Caller{Name: c.Unique()} }
	return c
}

// Unique returns a name that is unique among all processes.
func (c *Callers) Unique() string {
	return c.self + strconv.FormatUint(c.names.Add(1), 36)
}

// Next returns a caller for one script. Call Done with it after the reply.
func (c *Callers) Next() *Caller {
	caller := c.pool.Get().(*Caller)
	caller.Calls++
	return caller
}

// Done returns a caller to the pool.
func (c *Callers) Done(caller *Caller) { c.pool.Put(caller) }

// When converts redisUS, Redis's time in the reply that has just been read, to this process's
// clock. redisUS is in Unix microseconds, and sent is an argument of the script that got the reply.
// The result is too late by at most the time that the fastest of the recent replies took. If there
// is no earlier reply, the result is the time of sending.
func (c *Callers) When(redisUS int64, sent *Sent) time.Time {
	return c.clock.when(redisUS, sent.last, time.Now())
}

// Sent is an argument of a script. It counts how often the script was sent, and has the time at
// which it was last sent. This works because go-redis encodes the arguments each time that it sends
// them.
type Sent struct {
	times int64
	last  time.Time
}

// MarshalBinary implements encoding.BinaryMarshaler. It counts one more sending, and returns the
// count.
func (s *Sent) MarshalBinary() ([]byte, error) {
	s.times, s.last = s.times+1, time.Now()
	return strconv.AppendInt(nil, s.times, 10), nil
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
