package waitdb

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/internal/script"
	"github.com/headgate/headgate/throttle"
)

// A Record is what Redis keeps of a job that waits or is granted: since when, by Redis's clock, its
// ticket and lane, and what it costs there, separated by commas.
type Record struct {
	throttle.JobID
	Since, Ticket int64
	Costs, Lane   string
}

// parseRecord reads a record as lua/lanes/include/jobs.lua writes it. It reports false if no script
// has written it.
func parseRecord(name, text string) (r Record, ok bool) {
	lines := strings.SplitN(text, "\n", 6)
	if len(lines) < 6 {
		return Record{}, false
	}
	r = Record{JobID: jobOf(name), Costs: lines[4], Lane: lines[5]}
	r.Ticket, _ = strconv.ParseInt(lines[0], 10, 64)
	r.Since, _ = strconv.ParseInt(lines[1], 10, 64)
	return r, true
}

// cost returns how many permits the job wants of one of some meters at most, and -1 if it needs
// none of them.
func (r Record) cost(isOf func(meter string) bool) int {
	most := -1
	costs := strings.Split(r.Costs, ",")
	for i, meter := range fairqueue.Meters(r.Lane) {
		if i < len(costs) && isOf(meter) {
			n, _ := strconv.Atoi(costs[i])
			most = max(most, n)
		}
	}
	return most
}

// Record returns the record of a job, and false if it neither waits nor is granted.
func (db *DB) Record(ctx context.Context, job throttle.JobID) (r Record, found bool, err error) {
	text, err := db.rdb.HGet(ctx, db.prefix+"jobs", nameOf(job)).Result()
	if errors.Is(err, redis.Nil) {
		return Record{}, false, nil
	}
	r, found = parseRecord(nameOf(job), text)
	return r, found, err
}

// Records lists some records, and the cursor to go on with; a cursor of 0 means that these were the
// last.
func (db *DB) Records(ctx context.Context, cursor uint64, count int64) (records []Record, next uint64, err error) {
	fields, next, err := db.rdb.HScan(ctx, db.prefix+"jobs", cursor, "", count).Result()
	for i := 0; i+1 < len(fields); i += 2 {
		if r, ok := parseRecord(fields[i], fields[i+1]); ok {
			records = append(records, r)
		}
	}
	return records, next, err
}

// texts returns the records of jobs as they are, nil for those that neither wait nor are granted.
func (db *DB) texts(ctx context.Context, jobs []throttle.JobID) ([]any, error) {
	if len(jobs) == 0 {
		return nil, nil
	}
	names := make([]string, len(jobs))
	for i, job := range jobs {
		names[i] = nameOf(job)
	}
	return db.rdb.HMGet(ctx, db.prefix+"jobs", names...).Result()
}

// Known reports which jobs wait or are granted.
func (db *DB) Known(ctx context.Context, jobs []throttle.JobID) ([]bool, error) {
	texts, err := db.texts(ctx, jobs)
	known := make([]bool, len(jobs))
	for i, text := range texts {
		known[i] = text != nil
	}
	return known, err
}

// Forget drops waiting or granted jobs that will not come: deleted, archived or run by hand. It
// leaves a job alone that waits anew before Redis hears of it. What was reserved for them goes to
// the next at once. It returns how many of them were known. Leases of running jobs are given back
// with Free.
func (db *DB) Forget(ctx context.Context, jobs ...throttle.JobID) (known int, err error) {
	texts, err := db.texts(ctx, jobs)
	var args []any
	for i, text := range texts {
		if text, waits := text.(string); waits {
			// The ticket and since when the job waits say which wait is meant. A record that no
			// script has written says it as a whole.
			if lines := strings.SplitAfterN(text, "\n", 3); len(lines) == 3 {
				text = lines[0] + lines[1]
			}
			args = append(args, jobs[i].Queue, jobs[i].ID, text)
		}
	}
	if len(args) > 0 {
		known, err = db.run(ctx, forgetScript, args...).Int()
	}
	return known, unavailable(err)
}

// Find returns the waiting jobs of an ID, in whatever queues: for people, who know a job by its ID
// alone. It reads all waiting jobs.
func (db *DB) Find(ctx context.Context, id string) (jobs []throttle.JobID, err error) {
	err = db.scan(ctx, "jobs", "*\n"+script.Literal(id), func(name, _ string) {
		if job := jobOf(name); job.ID == id && !slices.Contains(jobs, job) {
			jobs = append(jobs, job)
		}
	})
	return jobs, err
}

// CountWaiting counts the waiting and granted jobs that want at least so many permits of one key of
// a limit: those that a change of the limit would concern. With least 0 that is all of them, and
// with one more than the MaxCost of a new definition those that could never run by it. It reads all
// waiting jobs. Jobs that come and go meanwhile may be counted or not.
func (db *DB) CountWaiting(ctx context.Context, limit string, least int) (int, error) {
	return db.countWaiting(ctx, least, func(meter string) bool { return strings.HasPrefix(meter, limit+"|") })
}

// CountWaitingForKey is CountWaiting for one key of the limit.
func (db *DB) CountWaitingForKey(ctx context.Context, limit, key string, least int) (int, error) {
	return db.countWaiting(ctx, least, func(meter string) bool { return meter == limit+"|"+key })
}

func (db *DB) countWaiting(ctx context.Context, least int, isOf func(meter string) bool) (int, error) {
	waiting := map[string]bool{}
	err := db.scan(ctx, "jobs", "*", func(name, text string) {
		if r, ok := parseRecord(name, text); ok && r.cost(isOf) >= least {
			waiting[name] = true
		}
	})
	return len(waiting), err
}

// RepairRecords lists some of the jobs that wait or are granted, and the cursor to go on with; a
// cursor of 0 means that these were the last. Before it does, it drops records that are not in
// order, and returns how many. To wanted it adds how many permits the waiting jobs want of each
// meter.
func (db *DB) RepairRecords(ctx context.Context, cursor uint64, count int64, wanted map[string]int64) (jobs []throttle.JobID, next uint64, repaired int, err error) {
	fields, next, err := db.rdb.HScan(ctx, db.prefix+"jobs", cursor, "", count).Result()
	if err != nil {
		return nil, 0, 0, err
	}
	for fields := range slices.Chunk(fields, 2*writePage) { // a scan may name more than it was asked for
		var names []any
		for i := 0; i < len(fields); i += 2 {
			names, jobs = append(names, fields[i]), append(jobs, jobOf(fields[i]))
		}
		reply, err := db.run(ctx, repairRecordsScript, names...).Slice()
		if err != nil {
			return nil, 0, repaired, err
		}
		repaired += int(reply[0].(int64))
		for i := 1; i < len(reply); i += 2 {
			wanted[reply[i].(string)] += reply[i+1].(int64)
		}
	}
	return jobs, next, repaired, nil
}
