package waitdb

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/throttle"
	"github.com/redis/go-redis/v9"
)

// Known reports which jobs of a queue wait or are called.
func (db *DB) Known(ctx context.Context, queue string, ids []string) ([]bool, error) {
	known := make([]bool, len(ids))
	if len(ids) == 0 {
		return known, nil
	}
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = queue + "\n" + id
	}
	records, err := db.rdb.HMGet(ctx, db.prefix+"jobs", names...).Result()
	for i, record := range records {
		known[i] = record != nil
	}
	return known, err
}

// Mend lists some of the jobs that wait or are called, and where to go on; at 0
// that was all. Before it does, it drops what of them is not in order, and says of how
// many that was. To wanted it adds how many permits the jobs that wait in lanes want of each meter.
func (db *DB) RepairRecords(ctx context.Context, cursor uint64, count int64, wanted map[string]int64) (jobs []throttle.JobID, next uint64, mended int, err error) {
	fields, next, err := db.rdb.HScan(ctx, db.prefix+"jobs", cursor, "", count).Result()
	if err != nil {
		return nil, 0, 0, err
	}
	for fields := range slices.Chunk(fields, 2*mendPage) {
		var names []any
		for i := 0; i < len(fields); i += 2 {
			names = append(names, fields[i])
			queue, id, _ := strings.Cut(fields[i], "\n")
			jobs = append(jobs, throttle.JobID{Queue: queue, ID: id})
		}
		reply, err := db.run(ctx, mendScript, names...).Slice()
		if err != nil {
			return nil, 0, mended, err
		}
		mended += int(reply[0].(int64))
		for i := 1; i < len(reply); i += 2 {
			wanted[reply[i].(string)] += reply[i+1].(int64)
		}
	}
	return jobs, next, mended, nil
}

// Lanes lists some of the lanes that have waiting or granted jobs, and returns the cursor to go on
// with; a cursor of 0 means that these were the last.
func (db *DB) Lanes(ctx context.Context, cursor uint64, count int64) (lanes []string, next uint64, err error) {
	members, next, err := db.rdb.ZScan(ctx, db.prefix+"lanes", cursor, "", count).Result()
	for i := 0; i < len(members); i += 2 {
		lanes = append(lanes, members[i])
	}
	return lanes, next, err
}

// A Record is what is kept of a job that waits or is called: since when, by Redis's
// clock, its ticket and lane, and what it costs there, separated by commas.
type Record struct {
	throttle.JobID
	Since, Ticket int64
	Costs, Lane   string
}

// Records is Jobs, with what is kept of each, and changes nothing.
func (db *DB) Records(ctx context.Context, cursor uint64, count int64) (records []Record, next uint64, err error) {
	fields, next, err := db.rdb.HScan(ctx, db.prefix+"jobs", cursor, "", count).Result()
	for i := 0; i+1 < len(fields); i += 2 {
		var j throttle.JobID
		j.Queue, j.ID, _ = strings.Cut(fields[i], "\n")
		if r, ok := readRecord(j, fields[i+1]); ok {
			records = append(records, r)
		}
	}
	return records, next, err
}

// Record is what is kept of one job, if it waits or is called.
func (db *DB) Record(ctx context.Context, j throttle.JobID) (r Record, found bool, err error) {
	text, err := db.rdb.HGet(ctx, db.prefix+"jobs", j.Queue+"\n"+j.ID).Result()
	if errors.Is(err, redis.Nil) {
		return Record{}, false, nil
	}
	r, found = readRecord(j, text)
	return r, found, err
}

func readRecord(j throttle.JobID, text string) (r Record, ok bool) {
	lines := strings.SplitN(text, "\n", 6)
	if len(lines) < 6 {
		return Record{}, false
	}
	r = Record{JobID: j, Costs: lines[4], Lane: lines[5]}
	r.Ticket, _ = strconv.ParseInt(lines[0], 10, 64)
	r.Since, _ = strconv.ParseInt(lines[1], 10, 64)
	return r, true
}

// mendPage bounds a call of Redis to about a millisecond: a scan may tell of more jobs
// than it was asked for.
const mendPage = 100

// Reserved lists some of the meters that have reserved permits, and returns the cursor to go on
// with; a cursor of 0 means that these were the last.
func (db *DB) Reserved(ctx context.Context, cursor uint64, count int64) (meters []string, next uint64, err error) {
	fields, next, err := db.rdb.HScan(ctx, db.prefix+"meters", cursor, "", count).Result()
	for i := 0; i < len(fields); i += 2 {
		if !strings.HasSuffix(fields[i], "\n") { // that is how many lanes take turns there
			meters = append(meters, fields[i])
		}
	}
	return meters, next, err
}

// Recount counts anew what is reserved of meters for called jobs, which are of some
// lanes, and returns of how many meters another number was reserved.
func (db *DB) RepairReserved(ctx context.Context, process string, meters, lanes []string) (wrong int, err error) {
	args := []any{process, strings.Join(meters, "\n")}
	for _, lane := range lanes {
		args = append(args, lane)
	}
	return db.run(ctx, recountScript, args...).Int()
}

// DropLane forgets a lane that no script has made: its name says no meters.
func (db *DB) DropLane(ctx context.Context, lane string) error {
	return db.rdb.ZRem(ctx, db.prefix+"lanes", lane).Err()
}
