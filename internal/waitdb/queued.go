package waitdb

import (
	"context"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/fairqueue"
)

// Now is the time of Redis's clock.
func (db *DB) Now(ctx context.Context) (time.Time, error) {
	now, err := db.rdb.Time(ctx).Result()
	return now, unavailable(err)
}

// LaneNames returns the names of the first lanes, in the order in which they came, and how
// many lanes there are.
func (db *DB) LaneNames(ctx context.Context, most int) (names []string, total int, err error) {
	pipe := db.rdb.Pipeline()
	all, first := pipe.ZCard(ctx, db.prefix+"lanes"), pipe.ZRange(ctx, db.prefix+"lanes", 0, int64(most)-1)
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, 0, unavailable(err)
	}
	for _, name := range first.Val() {
		if fairqueue.IsLane(name) {
			names = append(names, name)
		}
	}
	return names, int(all.Val()), nil
}

// A Stretch is some jobs of a lane, by rank from 0: the job at To is not one of them.
type Ranks struct {
	Lane     string
	From, To int
}

// Queued is what waits in a lane.
type LaneBacklog struct {
	Jobs     int
	LastTurn int64    // microsecond of the last turn of the lane, or since when the lane waits if that is later
	Since    int64    // microsecond since when the first job of the stretch waits
	Costs    []string // of the jobs of the stretch: numbers in the order of the lane's meters, with commas
}

// Queued reads lanes. It takes O(n) of Redis's time for n jobs of stretches.
func (db *DB) ReadLanes(ctx context.Context, stretches []Ranks) ([]LaneBacklog, error) {
	args := make([]any, 0, 3*len(stretches))
	for _, s := range stretches {
		args = append(args, s.Lane, s.From, s.To-1)
	}
	reply, err := db.run(ctx, queuedScript, args...).Slice()
	if err != nil {
		return nil, unavailable(err)
	}
	queued := make([]LaneBacklog, len(stretches))
	for i := range stretches {
		row := reply[i].([]any)
		queued[i] = LaneBacklog{int(row[0].(int64)), row[1].(int64), row[3].(int64), strings.Fields(row[2].(string))}
	}
	return queued, nil
}
