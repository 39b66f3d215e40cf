package throttle

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

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
			if err := r.extendCalendars(ctx, slices.Compact(names), now); err != nil {
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

// Crowd counts the jobs of a scope that wait or are called, and the lanes that they wait
// in, and reports whether any process gives turns; in one round trip and O(1) of Redis's
// time however many they are.
func (l *Lanes) Crowd(ctx context.Context) (jobs, lanes int, turns bool, err error) {
	pipe := l.rdb.Pipeline()
	waiting, all := pipe.HLen(ctx, l.prefix+"jobs"), pipe.ZCard(ctx, l.prefix+"lanes")
	given := pipe.Exists(ctx, l.prefix+"turns")
	if _, err := pipe.Exec(ctx); err != nil {
		return 0, 0, false, unavailable(err)
	}
	return int(waiting.Val()), int(all.Val()), given.Val() == 1, nil
}

// Want is what waits for one meter.
type Want struct {
	Limit, Key string
	// Permits is how many are wanted by all that wait and are not called.
	Permits int
	// Here is whether it is this meter that a lane waits at.
	Here bool
}

// Wants lists all meters that anything waits for, in no order. It reads them a
// part at a time: some milliseconds of Redis for 10,000.
func (l *Lanes) Wants(ctx context.Context) ([]Want, error) {
	here := map[string]bool{}
	scan := l.rdb.HScan(ctx, l.prefix+"contended", 0, "*", 1000).Iterator()
	for scan.Next(ctx) {
		here[scan.Val()] = true
		scan.Next(ctx) // the number
	}
	if err := scan.Err(); err != nil {
		return nil, unavailable(err)
	}
	found := map[string]int{} // a scan may tell one twice
	scan = l.rdb.HScan(ctx, l.prefix+"demand", 0, "*", 1000).Iterator()
	for scan.Next(ctx) {
		id := scan.Val()
		scan.Next(ctx)
		found[id], _ = strconv.Atoi(scan.Val())
	}
	if err := scan.Err(); err != nil {
		return nil, unavailable(err)
	}
	wants := make([]Want, 0, len(found))
	for id, permits := range found {
		limit, key, _ := strings.Cut(id, "|")
		wants = append(wants, Want{limit, key, permits, here[id]})
	}
	return wants, nil
}

// Lane is a lane that anybody waits in, or is called from.
type Lane struct {
	// Name is the lane's own: its queue and its meters, one a line.
	Name string
	// Queue is where its jobs come from, and Meters, limit|key, what they need.
	Queue  string
	Meters []string
	// Waiting and Called count its jobs.
	Waiting, Called int
}

// Page lists up to n lanes from the offset on, in the order in which they
// came, and says how many there are. It takes two round trips. Lanes come and go
// between two pages, so one may be on both or on none.
func (l *Lanes) Page(ctx context.Context, offset, n int) (lanes []Lane, total int, err error) {
	pipe := l.rdb.Pipeline()
	all := pipe.ZCard(ctx, l.prefix+"lanes")
	first, last := ranks(offset, n)
	names := pipe.ZRange(ctx, l.prefix+"lanes", first, last)
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, 0, unavailable(err)
	}
	counts := l.rdb.Pipeline()
	var waiting, called []*redis.IntCmd
	for _, name := range names.Val() {
		waiting = append(waiting, counts.ZCard(ctx, l.prefix+"lane:"+name))
		called = append(called, counts.ZCard(ctx, l.prefix+"called:"+name))
	}
	if _, err := counts.Exec(ctx); err != nil {
		return nil, 0, unavailable(err)
	}
	for i, name := range names.Val() {
		queue, meters, _ := strings.Cut(name, "\n")
		lanes = append(lanes, Lane{name, queue, strings.Split(meters, "\n"), int(waiting[i].Val()), int(called[i].Val())})
	}
	return lanes, int(all.Val()), nil
}

// Jobs lists up to n jobs that wait in a lane, from the offset on, the
// next to be called first, and says how many there are. Jobs that are called have
// left the lane. The lane is a Lane's Name; one that is unknown has no jobs.
func (l *Lanes) Jobs(ctx context.Context, lane string, offset, n int) (jobs []JobID, total int, err error) {
	pipe := l.rdb.Pipeline()
	all := pipe.ZCard(ctx, l.prefix+"lane:"+lane)
	first, last := ranks(offset, n)
	ids := pipe.ZRange(ctx, l.prefix+"lane:"+lane, first, last)
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, 0, unavailable(err)
	}
	queue, _, _ := strings.Cut(lane, "\n")
	for _, id := range ids.Val() {
		jobs = append(jobs, JobID{queue, id})
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
