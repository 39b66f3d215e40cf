package waitdb

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/throttle"
)

// BacklogStats returns the number of waiting and granted jobs, the number of lanes and whether a
// leader exists, in one round trip.
func (db *DB) BacklogStats(ctx context.Context) (jobs, lanes int, hasLeader bool, err error) {
	pipe := db.rdb.Pipeline()
	waiting, all := pipe.HLen(ctx, db.prefix+"jobs"), pipe.ZCard(ctx, db.prefix+"lanes")
	leader := pipe.Exists(ctx, db.prefix+"leader")
	if _, err := pipe.Exec(ctx); err != nil {
		return 0, 0, false, unavailable(err)
	}
	return int(waiting.Val()), int(all.Val()), leader.Val() == 1, nil
}

// Demand is the demand for permits of one meter.
type Demand struct {
	Limit, Key string
	// Permits is the number of permits that waiting jobs need. Granted jobs do not count.
	Permits int
	// HasLanes reports whether the meter is contended: a lane waits at it.
	HasLanes bool
}

// Demands lists the demand at all meters, in no order. It takes some milliseconds of Redis's time
// for 10,000 meters.
func (db *DB) Demands(ctx context.Context) ([]Demand, error) {
	contended, err := db.Contended(ctx)
	if err != nil {
		return nil, err
	}
	wanted, err := db.DemandByMeter(ctx)
	demands := make([]Demand, 0, len(wanted))
	for meter, permits := range wanted {
		limit, key, _ := strings.Cut(meter, "|")
		demands = append(demands, Demand{limit, key, int(max(0, permits)), contended[meter]})
	}
	return demands, err
}

// DemandByMeter returns the number of permits that all waiting jobs need of each meter, as Redis
// has counted it. The number is -1 if the stored count is no integer.
func (db *DB) DemandByMeter(ctx context.Context) (map[string]int64, error) {
	demand := map[string]int64{}
	err := db.scan(ctx, "demand", func(meter, text string) {
		permits, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			permits = -1
		}
		demand[meter] = permits
	})
	return demand, err
}

// SetDemand sets the demand at meters to the permits that the caller has counted. Changes since
// that count are lost.
func (db *DB) SetDemand(ctx context.Context, permits map[string]int64) error {
	pipe := db.rdb.Pipeline()
	for meter, n := range permits {
		if n > 0 {
			pipe.HSet(ctx, db.prefix+"demand", meter, n)
		} else {
			pipe.HDel(ctx, db.prefix+"demand", meter)
		}
	}
	_, err := pipe.Exec(ctx)
	return err
}

// Contended returns the meters at which lanes wait. New jobs must not take permits of these meters
// without a turn of a lane.
func (db *DB) Contended(ctx context.Context) (map[string]bool, error) {
	meters := map[string]bool{}
	err := db.scan(ctx, "contended", func(meter, _ string) { meters[meter] = true })
	return meters, err
}

// ReservedMeters lists a page of the meters with reserved permits, from the cursor on. next is the
// cursor of the next page, or 0 after the last page.
func (db *DB) ReservedMeters(ctx context.Context, cursor uint64, count int64) (meters []string, next uint64, err error) {
	fields, next, err := db.rdb.HScan(ctx, db.prefix+"meters", cursor, "", count).Result()
	for field := range slices.Chunk(fields, 2) {
		if !strings.HasSuffix(field[0], "\n") { // a field with a newline holds a number of lanes
			meters = append(meters, field[0])
		}
	}
	return meters, next, err
}

// RepairReserved corrects the number of permits that are reserved at a meter, and returns the
// number of corrections. process must be the leader, and lanes all lanes with granted jobs that
// need the meter.
func (db *DB) RepairReserved(ctx context.Context, process, meter string, lanes []string) (repaired int, err error) {
	return db.run(ctx, repairReservedScript, process, meter, lanes).Int()
}

// PublishShares writes the number of lanes that take turns at each meter, if process leads.
// lastLane is the number of the last lane that the leader knows. A meter with 0 lanes is no longer
// contended, except if a later lane waits there. PublishShares returns the meters that have become
// contended.
func (db *DB) PublishShares(ctx context.Context, process string, lastLane int64, sharing map[string]int) (contended []string, err error) {
	const page = 500
	for meters := range slices.Chunk(slices.Collect(maps.Keys(sharing)), page) {
		args := []any{process, lastLane}
		for _, meter := range meters {
			args = append(args, meter, sharing[meter])
		}
		more, err := db.run(ctx, publishSharesScript, args...).StringSlice()
		if err != nil {
			return contended, err
		}
		contended = append(contended, more...)
	}
	return contended, nil
}

// Lane is a lane with waiting or granted jobs.
type Lane struct {
	// Name has the queue, the meters and the fairness key, one a line.
	Name   string
	Queue  string
	Meters []string // limit|key
	// Fair is the fairness key, or empty if the lane has none. Weight is the weight of the key.
	Fair             string
	Weight           int
	Waiting, Granted int            // jobs
	First            throttle.JobID // the waiting job that is granted next; zero if no job waits
}

// newLane returns the lane of a name, without its jobs.
func newLane(name string) Lane {
	key, weight := fairqueue.FairnessKey(name)
	return Lane{Name: name, Queue: fairqueue.Queue(name), Meters: fairqueue.Meters(name), Fair: key, Weight: int(weight)}
}

// LanesFrom lists up to n lanes from the offset on, in the order of their numbers, and returns the
// number of all lanes. It takes three round trips. If a lane is added or removed between two pages,
// another lane may be on both pages or on none.
func (db *DB) LanesFrom(ctx context.Context, offset, n int) (lanes []Lane, total int, err error) {
	count, err := db.rdb.ZCard(ctx, db.prefix+"lanes").Result()
	if err != nil || n < 1 {
		return nil, int(count), unavailable(err)
	}
	names, err := db.LaneNames(ctx, offset, n)
	if err != nil {
		return nil, 0, err
	}
	pipe := db.rdb.Pipeline()
	for _, name := range names {
		pipe.ZCard(ctx, db.prefix+"lane:"+name)
		pipe.ZCard(ctx, db.prefix+"granted:"+name)
		pipe.ZRange(ctx, db.prefix+"lane:"+name, 0, 0)
	}
	replies, err := pipe.Exec(ctx)
	for i, name := range names {
		lane, fields := newLane(name), replies[3*i:]
		lane.Waiting, lane.Granted = int(fields[0].(*redis.IntCmd).Val()), int(fields[1].(*redis.IntCmd).Val())
		for _, id := range fields[2].(*redis.StringSliceCmd).Val() {
			lane.First = throttle.JobID{Queue: lane.Queue, ID: id}
		}
		lanes = append(lanes, lane)
	}
	return lanes, int(count), unavailable(err)
}

// LaneNames returns up to n names of lanes from the offset on, in the order of their numbers. It
// does not check the names, which can be malformed.
func (db *DB) LaneNames(ctx context.Context, offset, n int) ([]string, error) {
	names, err := db.rdb.ZRange(ctx, db.prefix+"lanes", int64(offset), int64(offset+n-1)).Result()
	return names, unavailable(err)
}

// DropLane removes a malformed lane name (one without meters).
func (db *DB) DropLane(ctx context.Context, lane string) error {
	return db.rdb.ZRem(ctx, db.prefix+"lanes", lane).Err()
}

// LaneBacklog describes the waiting jobs of a lane.
type LaneBacklog struct {
	Jobs     int
	LastTurn int64 // last turn of the lane, or start of its wait if that is later, Unix microseconds
	Since    int64 // start of the wait of its first job, Unix microseconds
	// Costs has an entry for each job of a sample that is spread evenly over the lane: the costs in
	// the order of the lane's meters, separated by commas.
	Costs []string
}

// ReadLanes reads the backlogs of lanes, with the costs of up to about `sample` jobs of each.
func (db *DB) ReadLanes(ctx context.Context, sample int, lanes ...string) ([]LaneBacklog, error) {
	reply, err := db.run(ctx, readLanesScript, sample, lanes).Slice()
	backlogs := make([]LaneBacklog, len(reply))
	for i := range reply {
		lane := row(reply).row(i)
		backlogs[i] = LaneBacklog{int(lane.us(0)), lane.us(1), lane.us(2), strings.Fields(lane.text(3))}
	}
	return backlogs, unavailable(err)
}
