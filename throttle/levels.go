package throttle

import (
	"context"

	"github.com/headgate/headgate/lua"
)

// Level is how full a meter is: less than a [Meter] tells, for those who look at many
// again and again.
type Level struct {
	Limit, Key string
	// Used is how many permits are taken or reserved, of Capacity at most, whether
	// or not the meter is held shut: a debt shows as full.
	Used, Capacity int
	// Paused is whether the limit is, and Blocked how many of its keys are held
	// shut.
	Paused  bool
	Blocked int
	// PerSecond is how many permits come back in a second, in the long run. It is 0
	// of a concurrency limit, whose jobs give theirs back.
	PerSecond float64
}

// Levels says how meters stand, of which the needs' costs do not matter. Those
// whose limit does not exist are left out, so the answer can be shorter than the
// question; the rest keep their order. Ask for a hundred at a time at most: Redis
// does nothing else meanwhile.
func (r *Redis) Levels(ctx context.Context, meters ...Need) ([]Level, error) {
	if len(meters) == 0 {
		return nil, nil
	}
	args := make([]any, 0, 2*len(meters))
	for _, m := range meters {
		if err := validMeter(m.Limit, m.Key); err != nil {
			return nil, err
		}
		args = append(args, m.Limit, m.Key)
	}
	reply, err := r.run(ctx, lua.Levels, args...).Slice()
	if err != nil {
		return nil, unavailable(err)
	}
	var levels []Level
	for i, m := range meters {
		if row := reply[i].([]any); len(row) > 0 {
			n := func(k int) int { return int(row[k].(int64)) }
			l := Level{Limit: m.Limit, Key: m.Key, Used: n(0), Capacity: n(1), Paused: n(2) == 1, Blocked: n(3)}
			if n(5) > 0 {
				l.PerSecond = float64(n(4)) / (float64(n(5)) / 1e6)
			}
			levels = append(levels, l)
		}
	}
	return levels, nil
}
