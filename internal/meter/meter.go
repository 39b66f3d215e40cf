// Package meter counts the permits of limits. A meter is plain arithmetic on the time that its
// caller passes. The scripts in lua/limits/include do the same arithmetic, and get the same numbers
// to the microsecond.
//
// Times are microseconds since 1970. Durations of type int64 are microseconds, too.
package meter

import (
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The kinds of limit, as package throttle names and explains them.
const (
	Funnel        = "funnel"
	TokenBucket   = "token_bucket"
	FixedWindow   = "fixed_window"
	SlidingLog    = "sliding_log"
	SlidingWindow = "sliding_window"
	Concurrency   = "concurrency"
)

// DefaultLease is the lease of a concurrency limit that has none.
const DefaultLease = 30 * time.Second

// A Limit has the numbers that a meter counts with: those of a limit, or of a key's override.
type Limit struct {
	Kind     string
	N        int // permits in each period
	Per      time.Duration
	Margin   time.Duration
	Capacity int           // the largest number of permits that can be taken at once
	Lease    time.Duration // length of a lease of a concurrency limit
	Zone     string        // the time zone of a fixed window; empty means UTC
	Since    int64         // time at which this definition came into force

	// starts caches the starts of calendar windows. windowStart changes it, so a Limit is not safe
	// for concurrent use.
	starts []int64
}

// PeriodUS returns the period that the meter counts in. The margin of a fixed window shortens each
// window instead of lengthening the period, because its windows must keep to the calendar.
func (l Limit) PeriodUS() int64 {
	if l.Kind == FixedWindow {
		return l.Per.Microseconds()
	}
	return (l.Per + l.Margin).Microseconds()
}

// A Meter counts the permits of one limit for one key. ReadyAt, Left and FullAt change nothing.
//
// If the time of a call is before the time of an earlier call, the clock has stepped back. The
// meter then counts with its last time until the clock has caught up.
type Meter interface {
	// Define sets the limit. Permits that were taken under an earlier definition still count.
	Define(l *Limit)
	// ReadyAt returns the first time, not before now, at which k permits are free. For a k above the
	// capacity it returns an estimate of the time at which the k-th permit from now is free.
	ReadyAt(now, k int64) int64
	// Take takes k permits. Before that, the caller has checked that ReadyAt returns now.
	Take(now, k int64) Mark
	// GiveBack gives back up to k permits of the call with this time, cost and mark, as far as the
	// limit's guarantee still holds. The caller has checked that the limit has not changed since the call.
	GiveBack(now, at, k, cost int64, mark Mark)
	// Left returns how many permits could be taken now.
	Left(now int64) int64
	// FullAt returns the time at which all permits are free again.
	FullAt(now int64) int64
}

// A Mark identifies the permits of one call. For a funnel or a token bucket it has the theoretical
// arrival time after the call, and the number of permits that had been given back before the call.
// For a fixed window or a sliding log it has the time of the permits, and for a sliding window the
// index of their bucket. The zero Mark means unknown.
type Mark = [2]int64

// New returns the unused meter of a limit. A funnel and a token bucket are the same meter.
func New(l *Limit) Meter {
	var m Meter
	switch l.Kind {
	case FixedWindow:
		m = &fixedWindow{}
	case SlidingLog:
		m = &slidingLog{}
	case SlidingWindow:
		m = &slidingWindow{}
	case Concurrency:
		m = &Leases{held: make(map[string]lease)}
	default:
		m = &gcra{}
	}
	m.Define(l)
	return m
}

// Charge takes k permits even if they are not free, so that later calls wait longer. For a funnel
// or a token bucket the result is the time by which later calls wait longer, and for other meters
// 0. A sliding log is charged at most the free permits and N more, so that it does not become
// arbitrarily long.
func Charge(m Meter, now, k int64) (us int64) {
	switch m := m.(type) {
	case *slidingLog:
		m.record(now, min(k, m.n+m.Left(now)))
		return 0
	case *gcra:
		us, _ = Span(k, m.n, m.period)
	}
	m.Take(now, k)
	return us
}

// Read returns a meter with a state from Redis. A corrupt state counts as unused.
func Read(l *Limit, state []any) Meter {
	var words []int64
	for _, part := range state {
		switch part := part.(type) {
		case int64:
			words = append(words, part)
		case string:
			for word := range strings.FieldsFuncSeq(part, func(r rune) bool { return r == ' ' || r == ';' }) {
				n, _ := strconv.ParseInt(word, 10, 64)
				words = append(words, n)
			}
		}
	}
	m := New(l)
	switch m := m.(type) {
	case *fixedWindow:
		if len(words) >= 2 {
			m.last, m.count = words[0], words[1]
		}
	case *slidingLog:
		for i := 0; i+1 < len(words); i += 2 {
			m.times = append(m.times, slices.Repeat(words[i:i+1], int(words[i+1]))...)
		}
	case *slidingWindow:
		if len(words) >= 4 { // width, sum, the newest bucket, in newer data the birth, then the older buckets
			m.storedWidth = words[0]
			text, _ := state[0].(string)
			newest, _, _ := strings.Cut(text, ";")
			for i := len(strings.Fields(newest)); i+1 < len(words); i += 2 {
				m.buckets = append(m.buckets, bucket{words[i], words[i+1]})
			}
			m.buckets = append(m.buckets, bucket{words[2], words[3]})
		}
	case *gcra:
		if len(words) >= 4 && words[1] < 1e8 { // data of version 8 have no born
			words = slices.Insert(words, 0, 0)
		}
		if len(words) >= 5 {
			m.born, m.tat, m.rest, m.n, m.period = words[0], words[1], words[2], words[3], words[4]
			m.Define(l)
		}
	}
	return m
}

// Grace is the time for which a meter is kept after all its permits are free again. If the clock
// steps back by less than Grace, the state is still there.
const Grace = int64(time.Minute / time.Microsecond)

// GiveBackTime is how long after a call its permits can be given back. For as long, the time of the
// last change of a key's rate is stored: a call before this change gives nothing back.
const GiveBackTime = int64(time.Hour / time.Microsecond)

// Expired reports whether the caller can drop the meter: all its permits have been free for Grace, so
// no call can give permits back any more.
func Expired(m Meter, now int64) bool {
	return m.FullAt(now-Grace) <= now-Grace
}

// A Gate is a meter whose limit may be paused, or whose key may be blocked.
type Gate struct {
	Meter
	Paused  bool
	Blocked int64 // end of the key's block, or 0 if there is none
}

// Closed reports whether the limit is paused or the key blocked.
func (g *Gate) Closed(now int64) bool { return g.Paused || g.Blocked > now }

// ReadyFrom returns the first time, not before from, at which k permits could be taken if the limit
// were not paused. A fixed window is asked again, because it can close after its permits are free.
func (g *Gate) ReadyFrom(now, k, from int64) int64 {
	from = max(from, g.Blocked)
	at := g.ReadyAt(now, k)
	if f, ok := g.Meter.(*fixedWindow); ok && k > 0 && at < from && from < MaxTime {
		return min(MaxTime, f.openFrom(from))
	}
	return max(at, from)
}

// Left returns how many permits could be taken now: 0 while the limit is paused or the key blocked.
func (g *Gate) Left(now int64) int64 {
	if g.Paused || g.Blocked > now {
		return 0
	}
	return g.Meter.Left(now)
}

// MaxTime is the largest time, in the year 2255. Numbers in Lua are exact up to MaxTime. It stands
// for every later time, and for "never".
const MaxTime = 1 << 53

// Span returns the time that k permits take at n permits per period, in whole microseconds and
// n-ths of a microsecond, at most MaxTime. The product of k and the period can have more than 64
// bits.
func Span(k, n, period int64) (us, rest int64) {
	hi, lo := bits.Mul64(uint64(k), uint64(period))
	if hi >= uint64(n) {
		return MaxTime, 0
	}
	quotient, remainder := bits.Div64(hi, lo, uint64(n))
	if quotient >= MaxTime {
		return MaxTime, 0
	}
	return int64(quotient), int64(remainder)
}

// owed is the inverse of Span: it returns the number of permits that take us microseconds and rest
// n-ths of a microsecond, rounded up.
func owed(us, rest, n, period int64) int64 {
	hi, lo := bits.Mul64(uint64(us), uint64(n))
	lo, carry := bits.Add64(lo, uint64(rest+period-1), 0)
	hi += carry
	if hi >= uint64(period) {
		return MaxTime
	}
	quotient, _ := bits.Div64(hi, lo, uint64(period))
	return int64(min(quotient, MaxTime))
}

// rounds spreads k permits over periods with n permits each. It returns the number of permits in
// the last period, and the length of all earlier periods together.
func rounds(k, n, period int64) (within, wait int64) {
	within = (k-1)%n + 1
	wait, _ = Span((k-within)/n, 1, period)
	return within, wait
}

// ceilDiv returns a/b rounded up. The number a must not be negative.
func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }
