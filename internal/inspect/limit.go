package inspect

import (
	"time"

	"github.com/headgate/headgate/scheduler/lanes"
	"github.com/headgate/headgate/throttle"
)

// Limit is how a limit stands. The page, the commands and the metrics draw it, and judge
// nothing themselves.
type Limit struct {
	throttle.Limit
	// By is what it counts by, such as host(payload.url), if that is known, and Keyed
	// whether it has keys at all. Where nobody knows that, Keyed goes by what waits and is
	// blocked: a limit with keys that nobody wants looks like one without.
	By    string
	Keyed bool
	Wanted
	Since time.Time // the job that waits longest here, if that is known
	// Passing is whether nothing had waited here for long when that was looked at: a
	// job is denied for a moment where others have the turn, and comes at once.
	Passing bool
	// Flows is whether those that pass find permits, now or a turn ago.
	Flows  bool
	Blocks []throttle.Blocked // those that open first in front
	// Any is the meter of the empty key: that of a limit without keys, and of any limit what
	// a key without a rate of its own may take. Meters are its only one, or those of the
	// busiest keys. It has none where no key is wanted, or too many limits were looked at
	// before it.
	Any    throttle.Meter
	Meters []throttle.Meter
	// What all its keys gave a second lately, and what was decided.
	Permits, Allowed, Denied float64
	// NextIn is how long until the next permit of any of Meters: an estimate unless Known.
	NextIn time.Duration
	Known  bool
	// Last is when the last job runs that waits and needs the limit, whatever else it waits
	// for, as the forecast says.
	Last lanes.Expected
	// Binds is whether jobs wait longest for this limit, or will.
	Binds bool
	Spare int // permits that have been there for some time, while jobs wait
	State State
	// Fill is how full the limit is, from 0 to 1, of several keys their mean.
	Fill float64
}

// Wanted is what waits for a limit.
type Wanted struct {
	// Waiting is how many permits are waited for here, and All how many are wanted at all,
	// by jobs that need this limit and wait for another first, too. They are jobs where
	// these were counted.
	Waiting, All int
	Keys         int      // that anything waits for
	Busiest      []string // those of them that most wait for
}

// State is how a limit stands in a word or two.
type State string

// The states. "Used up" is a limit without keys that has nothing left for more than a
// minute, "saturated" one that gives all it has to those who wait, which is what limits are
// for, and so no trouble.
const (
	Paused       State = "paused"
	Blocked      State = "blocked" // for all
	UsedUp       State = "used up"
	NotFull      State = "not full" // while jobs wait
	WillBeUsedUp State = "will be used up"
	Saturated    State = "saturated"
	KeysBlocked  State = "keys blocked"
	Flowing      State = "flowing"
	Idle         State = "idle"
)

// judge says how the limit stands. What an operator would do something about comes first: a
// pause, a block of all, what waits, blocks of single keys; then whether it is in use. It
// comes after explain and Look, of which it takes Spare and Meters.
func (l *Limit) judge() {
	// One meter of which nobody knows makes the limit's last permit unknown.
	l.Known = len(l.Meters) > 0
	for i, m := range l.Meters {
		if i == 0 || m.NextIn < l.NextIn {
			l.NextIn = m.NextIn
		}
		l.Known = l.Known && m.Known
	}
	l.fill()
	// Of a limit without keys the one that is blocked is the empty one: all of it.
	usedUp := !l.Keyed && l.Fill >= 1 && l.NextIn > time.Minute
	switch blocked := len(l.Blocks) > 0; {
	case l.Paused:
		l.State = Paused
	case blocked && !l.Keyed:
		l.State = Blocked
	case l.Waiting > 0 && l.Windowed() && usedUp:
		l.State = UsedUp
	case l.Spare > 0:
		l.State = NotFull
	case l.Waiting > 0 && l.Binds && !l.Keyed && l.Windowed() && l.Fill < 1:
		l.State = WillBeUsedUp
	case l.Waiting > 0 && !l.Flows:
		l.State = Saturated
	case blocked:
		l.State = KeysBlocked
	case l.Permits > 0 || l.Waiting > 0:
		l.State = Flowing
	case usedUp:
		l.State = UsedUp
	default:
		l.State = Idle
	}
}

// fill says how full the limit is: of a window or of slots, what is taken; of a
// funnel, whose permits come one by one, how fast they are taken: where it gives one at
// a time, what is taken would jump between all and nothing.
func (l *Limit) fill() {
	if len(l.Meters) == 0 {
		return
	}
	if !l.Keyed && l.Any.PerSecond > 0 && !l.Windowed() {
		l.Fill = min(l.Permits/l.Any.PerSecond, 1)
		return
	}
	for _, m := range l.Meters {
		l.Fill += float64(m.Used()) / float64(m.Capacity) / float64(len(l.Meters))
	}
}

// Windowed reports whether the limit counts what was taken in a period.
func (l *Limit) Windowed() bool {
	return l.Kind == throttle.FixedWindow || l.Kind == throttle.SlidingLog || l.Kind == throttle.SlidingWindow
}

// Full is how many of its meters are.
func (l *Limit) Full() (n int) {
	for _, m := range l.Meters {
		if m.Used() == m.Capacity {
			n++
		}
	}
	return n
}

// Fullest is the meter that the greatest share is taken of, the empty key's among them.
func (l *Limit) Fullest() throttle.Meter {
	fullest := l.Any
	for _, m := range l.Meters {
		if m.Used()*fullest.Capacity > fullest.Used()*m.Capacity {
			fullest = m
		}
	}
	return fullest
}

// free is how many permits the limit has for those that want some, if each of its
// meters that was looked at has any: one full key is reason enough for jobs to wait.
// What is reserved for called jobs is not free.
func (l *Limit) free() (n int) {
	for _, m := range l.Meters {
		here := m.Left - m.Reserved
		if m.Shut || m.NextIn > 0 || here <= 0 {
			return 0
		}
		n += here
	}
	return n
}

// WaitedFor is for how long the job has waited that waits longest here.
func (l *Limit) WaitedFor(now time.Time) time.Duration {
	if l.Since.IsZero() {
		return 0
	}
	return max(0, now.Sub(l.Since))
}
