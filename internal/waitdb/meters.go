package waitdb

import (
	"context"
	"math"
	"time"

	"github.com/headgate/headgate/internal/meter"
	"github.com/headgate/headgate/throttle"
)

// Meter is the state of one key of a limit.
type Meter struct {
	Limit, Key string
	Kind       string // as in package meter
	// Capacity is the most permits that can be taken at once. It is 0 if the limit does not exist.
	Capacity int
	// Left is the number of free permits, including those that are reserved for granted jobs.
	Left int
	// Owed is the number of permits of a funnel or a token bucket that calls have used beyond those
	// that were free, as after Settle. The next permit comes after them. It is 0 while the meter is
	// closed.
	Owed int
	// Wanted is the number of permits that all waiting and granted jobs need, and Reserved is the
	// part of it that is reserved for granted jobs.
	Wanted, Reserved int
	// Lanes is the number of lanes that take turns at the meter, as the leader last published it.
	Lanes int
	// NextIn is the time until the next permit becomes free. If Known is false, NextIn is only an
	// estimate, because the permit depends on the end of a running job or of a pause.
	NextIn time.Duration
	Known  bool
	// Closed reports whether the limit is paused or the key is blocked, Paused whether the limit is
	// paused.
	Closed, Paused bool
	// Blocked is the number of blocked keys of the limit.
	Blocked int
	// PerSecond is the long-term rate of the limit in permits. It is 0 for a concurrency limit.
	PerSecond float64

	// State is the start of a simulation. It is nil if Meters was called without withStates.
	State *MeterState
}

// MeterState is the state of a meter, and the limit that it counts for.
type MeterState struct {
	Limit        *meter.Limit // with the rate that applies to the key
	BlockedUntil int64        // Unix microseconds; 0 if the key is not blocked
	State        []any        // as meter.Read takes it; of a concurrency limit the number of held permits
}

// Used returns the number of taken plus reserved permits, at most Capacity.
func (m Meter) Used() int { return min(m.Capacity, m.Capacity-m.Left+m.Reserved) }

// Meters returns the meters of the needs, in that order. The costs of the needs do not matter.
// Limits that apply only to some apps are included. Pass at most about a hundred needs, because
// Redis serves no other client during the call.
func (db *DB) Meters(ctx context.Context, withStates bool, needs ...throttle.Need) ([]Meter, error) {
	if len(needs) == 0 {
		return nil, nil
	}
	reply, err := db.Internals().Extended(ctx, func() ([]any, error) { return db.run(ctx, readMetersScript, withStates, needs).Slice() })
	if err != nil {
		return nil, err
	}
	meters := make([]Meter, len(needs))
	for i, n := range needs {
		meters[i] = Meter{Limit: n.Limit, Key: n.Key}
		if fields := row(reply).row(1 + i); len(fields) > 0 {
			meters[i].read(fields, row(reply).us(0))
		}
	}
	return meters, nil
}

// read reads a row of lua/limits/read_meters.lua.
func (m *Meter) read(r row, now int64) {
	kind := r.text(0)
	m.Kind = kind
	m.Capacity, m.Left, m.NextIn = int(r.us(3)), int(r.us(4)), microseconds(max(0, r.us(5)-now))
	m.Reserved, m.Wanted, m.Lanes = int(r.us(6)), int(r.us(6))+int(r.us(7)), int(r.us(8))
	m.Known, m.Paused, m.Blocked = r.is(9), r.is(10), int(r.us(11))
	m.Closed = m.Paused || r.us(12) > 0
	if kind != meter.Concurrency {
		m.PerSecond = float64(r.us(1)) / r.duration(2).Seconds()
	}
	if (kind == meter.Funnel || kind == meter.TokenBucket) && !m.Closed {
		// Until NextIn come the permits that are owed, the reserved ones and one more. The time is
		// rounded up to a microsecond.
		coming := (m.NextIn - time.Microsecond).Seconds() * m.PerSecond
		m.Owed = max(0, int(math.Ceil(coming))-1-m.Reserved)
	}
	if len(r) < 18 {
		return
	}
	l := &meter.Limit{Kind: kind, N: int(r.us(1)), Per: r.duration(2), Capacity: m.Capacity, Since: r.us(13)}
	switch kind {
	case meter.FixedWindow:
		l.Per, l.Margin, l.Zone = r.duration(14), r.duration(15), r.text(16)
	case meter.Concurrency:
		l.Lease = r.duration(2)
	}
	m.State = &MeterState{l, r.us(12), r.row(17)}
}
