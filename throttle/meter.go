package throttle

import (
	"math/bits"
	"time"
)

// A meter counts for one limit and one key. It is plain arithmetic on the time
// that is passed in, in microseconds, and the twin of the Lua meter of its
// kind: both give the same numbers. readyAt, left and fullAt change nothing.
//
// Where the time that is passed in lies before what was counted, the clock has
// stepped back; the meter then waits for the clock: its own time never steps back.
type meter interface {
	// define tells the meter the limit as it stands now. What was taken under
	// an earlier definition still counts.
	define(r *activeLimit)
	// readyAt is the first microsecond from now on at which k more permits may
	// be taken; for k above the capacity, about when the k-th from now comes.
	readyAt(now, k int64) int64
	// take takes k permits. The caller has seen that readyAt allows it. The mark is
	// by what giveBack knows them again: see Taken.
	take(now, k int64) mark
	// giveBack returns k of the permits of a call, as far as that is safe: as if
	// the call had never taken them, and not as if new ones came. The caller has
	// seen that the limit has not changed since the call.
	giveBack(now, k int64, of spent)
	// left is how many permits could be taken now.
	left(now int64) int64
	// fullAt is when the meter will be as if never used.
	fullAt(now int64) int64
	// clone is a meter of the same state, to look at and to define otherwise: what
	// was counted is shared, so nothing may be taken of it.
	clone() meter
}

// A mark is by what a meter knows the permits of one call from those of others: see
// Taken.
type mark = [2]int64

// spent is what a call took: when, as how many permits it counts, and the mark of them.
type spent struct {
	at, cost int64
	mark     mark
}

// An activeLimit is a limit in use, for all of its keys or for one.
type activeLimit struct {
	Limit
	since    int64               // when it was defined so, in microseconds
	words    string              // as Define said it last; empty if only Set did
	keys     map[string]Override // as Define said them last
	keysKind Kind                // for a limit of that kind
	calendar *[]int64            // the boundaries around the last time asked, for all keys
}

// grace is how long a meter is kept after it has become as if never used, so
// that a clock which is set back by less still finds what was counted.
const grace = int64(time.Minute / time.Microsecond)

// far is the last moment there is, in the year 2255: to here the numbers of the
// Lua meters are exact. What would be later is then.
const far = 1 << 53

// span is the time that k permits stand for at n permits per period: whole
// microseconds and n-ths of one. It ends at far. The product can have more than 64
// bits; the Lua twin splits it, since it has 53.
func span(k, n, period int64) (us, rest int64) {
	hi, lo := bits.Mul64(uint64(k), uint64(period))
	if hi >= uint64(n) {
		return far, 0
	}
	quotient, remainder := bits.Div64(hi, lo, uint64(n))
	if quotient >= far {
		return far, 0
	}
	return int64(quotient), int64(remainder)
}

// owed is how many permits a time stands for, the inverse of span, rounded up: who
// owes part of a permit owes it all.
func owed(us, rest, n, period int64) int64 {
	hi, lo := bits.Mul64(uint64(us), uint64(n))
	lo, carry := bits.Add64(lo, uint64(rest+period-1), 0)
	hi += carry
	if hi >= uint64(period) {
		return far
	}
	quotient, _ := bits.Div64(hi, lo, uint64(period))
	return int64(min(quotient, far))
}

// rounds splits k permits, of which n can be had per period, into those of the
// last round and the time that the rounds before it take.
func rounds(k, n, period int64) (within, wait int64) {
	within = (k-1)%n + 1
	wait, _ = span((k-within)/n, 1, period)
	return within, wait
}

// ceilDiv is a/b rounded up, for a from 0 on.
func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }
