package throttle

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/lua"
)

// Meter is how one key of a limit stands, for people who ask why jobs wait.
type Meter struct {
	Limit, Key string
	// Capacity is the most permits that can be taken at once, and Left how many
	// are there now, those that are reserved for called jobs among them.
	Capacity, Left int
	// Wanted is how many permits all want that wait or are called, and Reserved
	// how many of them are kept for called ones.
	Wanted, Reserved int
	// NextIn is how long until the next permit can be taken: an estimate unless Known,
	// as nobody knows when a running job gives its slot back, or a paused limit goes on.
	// When the last one that is wanted can be, a Forecast says.
	NextIn time.Duration
	Known  bool
	// Shut is whether the limit is paused or the key blocked; Paused, whether the
	// limit is; Blocked, how many of its keys are.
	Shut, Paused bool
	Blocked      int
	// PerSecond is how many permits come back in a second, in the long run. It is 0
	// of a concurrency limit, whose jobs give theirs back.
	PerSecond float64
}

// Used is how many permits are taken or reserved, of Capacity at most, whether or
// not the meter is shut.
func (m Meter) Used() int { return min(m.Capacity, m.Capacity-m.Left+m.Reserved) }

// Look says how meters stand, in the order of the needs, whose costs do not
// matter; where a limit does not exist Capacity is 0. It asks as no app, so limits
// that are not for all show too. Ask for a hundred at a time at most: Redis does
// nothing else meanwhile.
func (r *Redis) Look(ctx context.Context, needs ...Need) ([]Meter, error) {
	if len(needs) == 0 {
		return nil, nil
	}
	args := make([]any, 0, 2*len(needs))
	for _, n := range needs {
		args = append(args, n.Limit, n.Key)
	}
	for range 3 {
		reply, err := r.run(ctx, lua.Look, args...).Slice()
		if err != nil {
			return nil, unavailable(err)
		}
		names, now := strings.Fields(reply[0].(string)), reply[1].(int64)
		if len(names) > 0 {
			if err := r.ExtendCalendars(ctx, slices.Compact(names), now); err != nil {
				return nil, err
			}
			continue
		}
		meters := make([]Meter, len(needs))
		for i, n := range needs {
			meters[i] = readMeter(n, reply[i+2].([]any), now)
		}
		return meters, nil
	}
	return nil, errCalendar
}

// readMeter reads the reply of lua/limits/look.lua for one meter. Moments that are past by
// now are no time off.
func readMeter(n Need, row []any, now int64) Meter {
	m := Meter{Limit: n.Limit, Key: n.Key}
	if len(row) == 0 {
		return m
	}
	number := func(i int) int64 { return row[i].(int64) }
	m.Left, m.Capacity = int(number(0)), int(number(1))
	m.NextIn = microseconds(max(0, number(2)-now))
	m.Wanted, m.Reserved = int(number(3)), int(number(4))
	m.Known, m.Shut, m.Paused, m.Blocked = number(5) == 1, number(6) == 1, number(7) == 1, int(number(8))
	if period := number(10); period > 0 {
		m.PerSecond = float64(number(9)) / microseconds(period).Seconds()
	}
	return m
}
