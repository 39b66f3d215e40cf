package throttle

import (
	"crypto/rand"
	"slices"
	"strings"
	"time"
)

// newMeter is the unused meter of a limit. A funnel and a token bucket are one kind
// of meter, told apart only by how people see them.
func newMeter(r *activeLimit) meter {
	var m meter
	switch r.Kind {
	case FixedWindow:
		m = &fixedWindow{}
	case SlidingLog:
		m = &slidingLog{}
	case SlidingWindow:
		m = &slidingWindow{}
	case Concurrency:
		m = &concurrency{leases: make(map[string]lease)}
	default:
		m = &gcra{}
	}
	m.define(r)
	return m
}

// charge takes k permits more than were allowed: a debt, which readyAt waits for as for
// any other permit. A log does not keep a debt of more than all permits of the limit,
// which would make it as long as the cost is wrong.
func charge(m meter, now, k int64) {
	if log, ok := m.(*slidingLog); ok {
		log.record(now, min(k, log.n+log.left(now)))
	} else {
		m.take(now, k)
	}
}

// readState is a meter of what Redis keeps of it, under the limit that wrote it.
func readState(r *activeLimit, state []any) meter {
	var words []int64
	for _, part := range state {
		switch part := part.(type) {
		case int64:
			words = append(words, part)
		case string:
			for word := range strings.FieldsFuncSeq(part, func(r rune) bool { return r == ' ' || r == ';' }) {
				words = append(words, number(word))
			}
		}
	}
	m := newMeter(r)
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
		if len(words) >= 4 { // the sum of all is not needed, and the newest part stands first
			m.wasWidth = words[0]
			for i := 4; i+1 < len(words); i += 2 {
				m.parts = append(m.parts, part{words[i], words[i+1]})
			}
			m.parts = append(m.parts, part{words[2], words[3]})
		}
	case *gcra:
		if len(words) >= 4 {
			m.tat, m.rest, m.n, m.period = words[0], words[1], words[2], words[3]
			m.define(r)
		}
	}
	return m
}

// A meterKey is one limit and one key.
type meterKey struct{ limit, key string }

// A meterID names a meter's state. A limit that changes its kind gets new
// meters, and the old ones back if it changes back.
type meterID struct {
	kind Kind
	meterKey
}

// A gate is a meter as it stands, with what shuts it. Where the key has an override
// that ends, it knows both rates: what is denied now can be due after the end.
type gate struct {
	meter   meter
	paused  bool
	blocked int64        // when the block ends, if there is one
	ends    int64        // when the key goes by next instead; 0 if it does not
	next    *activeLimit // the limit as it is from then on
}

// readyAt is the first moment from one on at which k permits could be taken, were the limit
// not paused: not before the end of a block. What the key's own rate puts after its end is as
// the limit's rate has it from then on, which may be later still, but not sooner than the end.
func (g *gate) readyAt(now, k, from int64) int64 {
	from = max(from, g.blocked)
	at := readyFrom(g.meter, now, k, from)
	if g.ends > 0 && at >= g.ends {
		return readyFrom(g.after(), g.ends, k, from)
	}
	return at
}

// readyFrom is the first moment from one on at which a meter has k permits. A meter that has
// them keeps them if nothing is taken, but for a window that closes.
func readyFrom(m meter, now, k, from int64) int64 {
	at := m.readyAt(now, k)
	if f, ok := m.(*fixedWindow); ok && k > 0 && at < from && from < far {
		return min(far, f.openFrom(from))
	}
	return max(at, from)
}

// after is the meter as it will be when the key's rate ends, if nothing is taken
// before.
func (g *gate) after() meter {
	m := g.meter.clone()
	m.define(g.next)
	return m
}

// fullAt is when the meter will be as if never used, by whatever rate holds then.
func (g *gate) fullAt(now int64) int64 {
	at := g.meter.fullAt(now)
	if g.ends > 0 && at >= g.ends {
		return g.after().fullAt(g.ends)
	}
	return at
}

// shut reports whether the limit is paused or the key blocked.
func (g *gate) shut(now int64) bool { return g.paused || g.blocked > now }

// A claim is one need at one moment, with the meter that answers it.
type claim struct {
	gate
	need  Need
	limit *activeLimit // the limit's own
	own   *activeLimit // the key's
	id    meterID
	now   int64
}

// pausedUS is how long from now a paused limit says to come back: long enough
// to cost little, short enough to notice Resume.
const pausedUS = 60_000_000

// ready is the first moment from one on at which the need could be met, and of a paused
// limit, of which nobody knows when it goes on, when to look again.
func (c *claim) ready(from int64) int64 {
	if c.paused {
		return max(c.now+pausedUS, c.blocked, from)
	}
	return c.readyAt(c.now, int64(c.need.Cost), from)
}

// binding is the claim to wait longest for, and the first moment at which all can be met. A
// window with a margin may be closed when the last of the others opens, and so may a key whose
// own rate ends. Where windows hardly ever meet it is a moment at which to ask again.
func binding(claims []claim) (bind *claim, at int64) {
	at = -1
	latest := func(from int64) {
		for i := range claims {
			if ready := claims[i].ready(from); ready > at {
				bind, at = &claims[i], ready
			}
		}
	}
	latest(claims[0].now)
	for range 100 {
		before := at
		if latest(at); at == before || at >= far {
			break
		}
	}
	return bind, at
}

// left is how many permits the meter has, and none while it is shut.
func (c *claim) left() int64 {
	if c.shut(c.now) {
		return 0
	}
	return c.meter.left(c.now)
}

// decision is the answer if this claim is the one that decides. Its numbers are
// after what was taken.
func (c *claim) decision(outcome Outcome) Decision {
	return Decision{
		Outcome: outcome, Limit: c.need.Limit, Key: c.need.Key, Cost: c.need.Cost,
		Capacity: c.own.MaxCost(), Remaining: int(c.left()), At: time.UnixMicro(c.now),
		ResetAfter: microseconds(c.fullAt(c.now) - c.now),
	}
}

// denial is the answer if this claim decides, and all can be met at a moment.
func (c *claim) denial(at int64) Decision {
	d := c.decision(Denied)
	d.RetryAfter = microseconds(at - c.now)
	return d
}

// takeAll takes the permits of all claims. The one with the fewest left decides. All
// leases of the call are one holder's; a call without any has none.
func takeAll(claims []claim) Decision {
	var tightest *claim
	holder, lease := "", time.Duration(0)
	var taken []Taken
	for i := range claims {
		c := &claims[i]
		if held, ok := c.meter.(*concurrency); ok && c.need.Cost > 0 {
			if holder == "" {
				holder, lease = rand.Text(), c.limit.lease()
			}
			held.holder, lease = holder, min(lease, c.limit.lease())
		}
		if c.need.Cost > 0 {
			taken = append(taken, Taken{c.need, c.meter.take(c.now, int64(c.need.Cost))})
		}
		if tightest == nil || c.left() < tightest.left() {
			tightest = c
		}
	}
	d := tightest.decision(Allowed)
	d.Holder, d.Lease, d.Taken = holder, lease, taken
	return d
}
