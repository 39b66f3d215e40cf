package script

import (
	"iter"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// Callers have names of their own. Make them with NewCallers. They are safe for concurrent
// use.
type Callers struct {
	pool  sync.Pool // of *Caller
	self  string    // of all callers in all processes only theirs
	names atomic.Uint64
	clock clock
}

// A Caller sends one script at a time. Redis remembers the number of its last one in which
// a job was allowed, for a minute, so one that the client repeats, because
// the answer got lost, charges nobody twice. One key for each caller and not for
// each call: callers are pooled, so there are about as many as calls at once.
type Caller struct {
	Name  string
	Calls uint64
}

// NewCallers returns callers that have called nobody.
func NewCallers() *Callers {
	c := &Callers{self: uuid.NewString() + ":"}
	c.pool.New = func() any { return &Caller{Name: c.Unique()} }
	return c
}

// Unique returns a name that nothing else gets, in whatever process: a random one
// of the callers', and a number.
func (c *Callers) Unique() string {
	return c.self + strconv.FormatUint(c.names.Add(1), 36)
}

// Next is a caller for its next call, until Done.
func (c *Callers) Next() *Caller {
	caller := c.pool.Get().(*Caller)
	caller.Calls++
	return caller
}

// Done takes a caller back.
func (c *Callers) Done(caller *Caller) { c.pool.Put(caller) }

// Sent counts how often a command was sent that has it for an argument, and knows when it was
// sent last. go-redis writes the arguments anew each time, also when it repeats a command by
// itself: because the answer got lost, and because Redis did not have the script's text.
type Sent struct {
	times int64
	last  time.Time
}

// MarshalBinary implements encoding.BinaryMarshaler.
func (s *Sent) MarshalBinary() ([]byte, error) {
	s.times, s.last = s.times+1, time.Now()
	return strconv.AppendInt(nil, s.times, 10), nil
}

// MostMeters is how many meters all calls of one script may need together, and also how many a
// single call may need. Lua takes at most 8,000 values at once, and Redis serves no other client
// while the script runs.
const MostMeters = 1000

// Batches splits calls, in their order, into batches that need at most MostMeters meters each. A
// call that needs more makes a batch of its own.
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
