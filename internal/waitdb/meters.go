package waitdb

import (
	"context"
	"time"

	"github.com/headgate/headgate/internal/meter"
	"github.com/headgate/headgate/throttle"
)

// Meter is how one key of a limit stands.
type Meter struct {
	Limit, Key string
	// Capacity is the most permits that can be taken at once, and Left how many are there now,
	// including those that are reserved for granted jobs. Capacity is 0 if there is no such limit.
	Capacity, Left int
	// Wanted is how many permits all jobs want that wait or are granted, and Reserved how many of
	// them are reserved for granted jobs.
	Wanted, Reserved int
	// Lanes is how many lanes take turns at the meter, as counted last.
	Lanes int
	// NextIn is how long until the next permit can be taken: an estimate unless Known, because
	// nobody knows when a running job ends, or a paused limit is resumed.
	NextIn time.Duration
	Known  bool
	// Shut is whether the limit is paused or the key blocked; Paused, whether the limit is;
	// Blocked, how many of its keys are.
	Closed, Paused bool
	Blocked        int
	// PerSecond is how many permits come back in a second in the long run: 0 for a concurrency
	// limit, whose jobs give theirs back.
	PerSecond float64

	// State is what a simulation starts from. Only LookDeep reads it.
	State *MeterState
}

// MeterState is the state of a meter, with what happens to it by the clock alone.
type MeterState struct {
	Limit        *meter.Limit // what the key counts by
	Next         *meter.Limit // what it counts by from Ends on
	Ends         int64        // 0 if nothing ends
	BlockedUntil int64        // 0 if the key is not blocked
	State        []any        // as meter.Read takes it; for a concurrency limit how many permits are held
}

// Used is how many permits are taken or reserved, at most Capacity, whether or not the meter is
// shut.
func (m Meter) Used() int { return min(m.Capacity, m.Capacity-m.Left+m.Reserved) }

// Look returns how meters stand, in the order of the needs, whose costs do not matter. It asks as
// no app, so it shows limits that are not for all, too. Look at a hundred at a time at most: Redis
// does nothing else meanwhile.
func (db *DB) Meters(ctx context.Context, needs ...throttle.Need) ([]Meter, error) {
	return db.look(ctx, 0, needs)
}

// LookDeep is Look with the states.
func (db *DB) MeterStates(ctx context.Context, needs ...throttle.Need) ([]Meter, error) {
	return db.look(ctx, 1, needs)
}

func (db *DB) look(ctx context.Context, withState int, needs []throttle.Need) ([]Meter, error) {
	if len(needs) == 0 {
		return nil, nil
	}
	args := []any{withState}
	for _, n := range needs {
		args = append(args, n.Limit, n.Key)
	}
	reply, err := db.Internals().Extended(ctx, func() ([]any, error) { return db.run(ctx, lookScript, args...).Slice() })
	if err != nil {
		return nil, err
	}
	meters := make([]Meter, len(needs))
	for i, n := range needs {
		meters[i] = Meter{Limit: n.Limit, Key: n.Key}
		if row := reply[1+i].([]any); len(row) > 0 {
			meters[i].read(row, reply[0].(int64))
		}
	}
	return meters, nil
}

// read reads a row of lua/limits/look.lua.
func (m *Meter) read(row []any, now int64) {
	number := func(i int) int64 { return row[i].(int64) }
	duration := func(i int) time.Duration { return time.Duration(number(i)) * time.Microsecond }
	kind := row[0].(string)
	m.Capacity, m.Left, m.NextIn = int(number(3)), int(number(4)), time.Duration(max(0, number(5)-now))*time.Microsecond
	m.Reserved, m.Wanted, m.Lanes = int(number(6)), int(number(6)+number(7)), int(number(8))
	m.Known, m.Paused, m.Blocked = number(9) == 1, number(10) == 1, int(number(11))
	m.Closed = m.Paused || number(12) > 0
	if kind != meter.Concurrency {
		m.PerSecond = float64(number(1)) / duration(2).Seconds()
	}
	if len(row) < 22 {
		return
	}
	limit := func(i int, since int64) *meter.Limit {
		l := &meter.Limit{Kind: kind, N: int(number(i)), Per: duration(i + 1), Capacity: int(number(i + 2)), Since: since, Calendar: &meter.Calendar{}}
		switch kind {
		case meter.FixedWindow:
			l.Per, l.Margin, l.Zone = duration(18), duration(19), row[20].(string)
		case meter.Concurrency:
			l.Lease = duration(2)
		}
		return l
	}
	m.State = &MeterState{Limit: limit(1, number(17)), Ends: number(13), BlockedUntil: number(12), State: row[21].([]any)}
	if m.State.Ends > 0 {
		m.State.Next = limit(14, m.State.Ends)
	}
}
