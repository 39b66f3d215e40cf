package script

import (
	"iter"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// Callers hands out callers with unique names. It is safe for concurrent use.
type Callers struct {
	pool  sync.Pool // of *Caller
	self  string    // unique among all processes
	names atomic.Uint64
	clock clock
}

// A Caller sends one script at a time. Redis remembers for a minute the number of the caller's last
// script that took permits, so if the client repeats it because the answer got lost, nothing is
// charged twice. Callers are pooled, so Redis keeps about as many of these keys as there are calls
// at once.
type Caller struct {
	Name  string
	Calls uint64
}

// NewCallers returns new callers.
func NewCallers() *Callers {
	c := &Callers{self: uuid.NewString() + ":"}
	c.pool.New = func() any { return &Caller{Name: c.Unique()} }
	return c
}

// Unique returns a name that nothing else gets, in any process.
func (c *Callers) Unique() string {
	return c.self + strconv.FormatUint(c.names.Add(1), 36)
}

// Next returns a caller for its next call, until Done.
func (c *Callers) Next() *Caller {
	caller := c.pool.Get().(*Caller)
	caller.Calls++
	return caller
}

// Done takes a caller back.
func (c *Callers) Done(caller *Caller) { c.pool.Put(caller) }

// Sent is an argument of a script that counts how often the script was sent, and knows when last.
// go-redis writes the arguments anew each time, also when it repeats a command because the answer
// got lost, or because Redis did not have the script's text.
type Sent struct {
	times int64
	last  time.Time
}

// MarshalBinary implements encoding.BinaryMarshaler.
func (s *Sent) MarshalBinary() ([]byte, error) {
	s.times, s.last = s.times+1, time.Now()
	return strconv.AppendInt(nil, s.times, 10), nil
}

// MostMeters is how many meters the calls of one script may need together. Lua takes at most 8,000
// values at once, and Redis serves no other client while the script runs.
const MostMeters = 1000

// Batches splits calls, in their order, into batches that need at most MostMeters meters each. A
// call that needs more is a batch of its own.
func Batches[T any](calls []T, meters func(T) int) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		for len(calls) > 0 {
			n, sum := 1, meters(calls[0])
			for n < len(calls) && sum+meters(calls[n]) <= MostMeters {
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
