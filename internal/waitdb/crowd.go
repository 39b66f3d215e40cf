package waitdb

import (
	"context"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/throttle"
)

// Crowd counts the jobs of a scope that wait or are called, and the lanes that they wait
// in, and reports whether any process gives turns; in one round trip and O(1) of Redis's
// time however many they are.
func (db *DB) BacklogStats(ctx context.Context) (jobs, lanes int, turns bool, err error) {
	pipe := db.rdb.Pipeline()
	waiting, all := pipe.HLen(ctx, db.prefix+"jobs"), pipe.ZCard(ctx, db.prefix+"lanes")
	given := pipe.Exists(ctx, db.prefix+"leader")
	if _, err := pipe.Exec(ctx); err != nil {
		return 0, 0, false, unavailable(err)
	}
	return int(waiting.Val()), int(all.Val()), given.Val() == 1, nil
}

// Want is what waits for one meter.
type Demand struct {
	Limit, Key string
	// Permits is how many are wanted by all that wait and are not called.
	Permits int
	// Here is whether it is this meter that a lane waits at.
	HasLanes bool
}

// Wants lists all meters that anything waits for, in no order. It reads them a
// part at a time: some milliseconds of Redis for 10,000.
func (db *DB) Demands(ctx context.Context) ([]Demand, error) {
	here := map[string]bool{}
	scan := db.rdb.HScan(ctx, db.prefix+"contended", 0, "*", 1000).Iterator()
	for scan.Next(ctx) {
		here[scan.Val()] = true
		scan.Next(ctx) // the number
	}
	if err := scan.Err(); err != nil {
		return nil, unavailable(err)
	}
	found := map[string]int{} // a scan may tell one twice
	scan = db.rdb.HScan(ctx, db.prefix+"demand", 0, "*", 1000).Iterator()
	for scan.Next(ctx) {
		id := scan.Val()
		scan.Next(ctx)
		found[id], _ = strconv.Atoi(scan.Val())
	}
	if err := scan.Err(); err != nil {
		return nil, unavailable(err)
	}
	wants := make([]Demand, 0, len(found))
	for id, permits := range found {
		limit, key, _ := strings.Cut(id, "|")
		wants = append(wants, Demand{limit, key, permits, here[id]})
	}
	return wants, nil
}

// Lane is a lane that anybody waits in, or is called from.
type Lane struct {
	// Name is the lane's own: its queue, its meters and its fairness key, one a line.
	Name string
	// Queue is where its jobs come from, and Meters, limit|key, what they need.
	Queue  string
	Meters []string
	// Fair is their fairness key, if any, and Weight what it weighs.
	Fair   string
	Weight int
	// Waiting and Called count its jobs.
	Waiting, Granted int
}

// NewLane is the lane of a name, which says all of it but its counts.
func NewLane(name string) Lane {
	key, weight := fairqueue.FairnessKey(name)
	return Lane{Name: name, Queue: fairqueue.Queue(name), Meters: fairqueue.Meters(name), Fair: key, Weight: int(weight)}
}

// Page lists up to n lanes from the offset on, in the order in which they
// came, and says how many there are. It takes two round trips. Lanes come and go
// between two pages, so one may be on both or on none.
func (db *DB) LanesFrom(ctx context.Context, offset, n int) (lanes []Lane, total int, err error) {
	pipe := db.rdb.Pipeline()
	all := pipe.ZCard(ctx, db.prefix+"lanes")
	first, last := ranks(offset, n)
	names := pipe.ZRange(ctx, db.prefix+"lanes", first, last)
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, 0, unavailable(err)
	}
	counts := db.rdb.Pipeline()
	var waiting, called []*redis.IntCmd
	for _, name := range names.Val() {
		waiting = append(waiting, counts.ZCard(ctx, db.prefix+"lane:"+name))
		called = append(called, counts.ZCard(ctx, db.prefix+"granted:"+name))
	}
	if _, err := counts.Exec(ctx); err != nil {
		return nil, 0, unavailable(err)
	}
	for i, name := range names.Val() {
		lane := NewLane(name)
		lane.Waiting, lane.Granted = int(waiting[i].Val()), int(called[i].Val())
		lanes = append(lanes, lane)
	}
	return lanes, int(all.Val()), nil
}

// Jobs lists up to n jobs that wait in a lane, from the offset on, the
// next to be called first, and says how many there are. Jobs that are called have
// left the lane. The lane is a Lane's Name; one that is unknown has no jobs.
func (db *DB) Jobs(ctx context.Context, lane string, offset, n int) (jobs []throttle.JobID, total int, err error) {
	pipe := db.rdb.Pipeline()
	all := pipe.ZCard(ctx, db.prefix+"lane:"+lane)
	first, last := ranks(offset, n)
	ids := pipe.ZRange(ctx, db.prefix+"lane:"+lane, first, last)
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, 0, unavailable(err)
	}
	queue, _, _ := strings.Cut(lane, "\n")
	for _, id := range ids.Val() {
		jobs = append(jobs, throttle.JobID{Queue: queue, ID: id})
	}
	return jobs, int(all.Val()), nil
}

// ranks are the first and the last of n members of a sorted set, from the offset on, as
// ZRANGE takes them. To it a last one of -1 means all, so no members are spelled out.
func ranks(offset, n int) (first, last int64) {
	if n < 1 {
		return 1, 0
	}
	return int64(offset), int64(offset + n - 1)
}
