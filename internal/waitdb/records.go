package waitdb

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/throttle"
)

// A Record is the Redis record of a waiting or granted job. Since is the start of its wait in Unix
// microseconds. Ticket is its sort key in the lane. Costs has the permits that the job needs of
// each meter of Lane, separated by commas.
type Record struct {
	throttle.JobID
	Since, Ticket int64
	Costs, Lane   string
}

// parseRecord decodes a record written by lua/lanes/include/jobs.lua. ok is false if it is
// malformed.
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

// Record returns the record of a job, and false if it neither waits nor is granted.
func (db *DB) Record(ctx context.Context, job throttle.JobID) (r Record, found bool, err error) {
	texts, err := db.texts(ctx, []throttle.JobID{job})
	if err != nil {
		return Record{}, false, err
	}
	text, _ := texts[0].(string)
	r, found = parseRecord(nameOf(job), text)
	return r, found, nil
}

// Records lists a page of records, from the cursor on. next is the cursor of the next page, or 0
// after the last page.
func (db *DB) Records(ctx context.Context, cursor uint64, count int64) (records []Record, next uint64, err error) {
	fields, next, err := db.rdb.HScan(ctx, db.prefix+"jobs", cursor, "", count).Result()
	for field := range slices.Chunk(fields, 2) {
		if r, ok := parseRecord(field[0], field[1]); ok {
			records = append(records, r)
		}
	}
	return records, next, err
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

// texts returns the stored records of jobs, nil for jobs that neither wait nor are granted.
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

// Forget drops waiting or granted jobs that will not arrive, because they were deleted, archived or
// run by hand. Permits that were reserved for them go to the next jobs at once. It returns the
// number of jobs that were known. It does not free the leases of running jobs.
func (db *DB) Forget(ctx context.Context, jobs ...throttle.JobID) (known int, err error) {
	texts, err := db.texts(ctx, jobs)
	var args []any
	for i, text := range texts {
		if text, waits := text.(string); waits {
			// The ticket and the start of the wait, the first two lines, are different for each wait.
			lines := strings.SplitAfterN(text, "\n", 3)
			args = append(args, nameOf(jobs[i]), strings.Join(lines[:min(2, len(lines))], ""))
		}
	}
	if len(args) > 0 {
		known, err = db.run(ctx, forgetScript, args...).Int()
	}
	return known, unavailable(err)
}

// CountWaiting counts the waiting and granted jobs that need `least` or more permits of the limit
// for one of the keys, or for any key if keys is empty. It reads all records. Jobs that join or
// leave meanwhile may be counted or not.
func (db *DB) CountWaiting(ctx context.Context, limit string, least int, keys ...string) (int, error) {
	waiting := map[string]bool{} // a scan may return a job twice
	err := db.scan(ctx, "jobs", func(name, text string) {
		r, _ := parseRecord(name, text)
		costs := strings.Split(r.Costs, ",")
		for i, meter := range fairqueue.Meters(r.Lane) {
			l, key, _ := strings.Cut(meter, "|")
			if l != limit || len(keys) > 0 && !slices.Contains(keys, key) || i >= len(costs) {
				continue
			}
			if cost, _ := strconv.Atoi(costs[i]); cost >= least {
				waiting[name] = true
			}
		}
	})
	return len(waiting), err
}

// RepairRecords removes the malformed records of a page, and returns their number as repaired. It
// also returns the jobs of the page, and the cursor of the next page, or 0 after the last page. It
// adds the permits that the jobs need to wanted, by meter.
func (db *DB) RepairRecords(ctx context.Context, cursor uint64, count int64, wanted map[string]int64) (jobs []throttle.JobID, next uint64, repaired int, err error) {
	fields, next, err := db.rdb.HScan(ctx, db.prefix+"jobs", cursor, "", count).Result()
	if err != nil {
		return nil, 0, 0, err
	}
	for fields := range slices.Chunk(fields, 2*writePage) { // a scan may name more than it was asked for
		var names []any
		for field := range slices.Chunk(fields, 2) {
			names, jobs = append(names, field[0]), append(jobs, jobOf(field[0]))
		}
		reply, err := db.run(ctx, repairRecordsScript, names...).Slice()
		if err != nil {
			return nil, 0, repaired, err
		}
		repaired += int(reply[0].(int64))
		for meter := range slices.Chunk(reply[1:], 2) {
			wanted[meter[0].(string)] += meter[1].(int64)
		}
	}
	return jobs, next, repaired, nil
}
