package waitdb

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/internal/script"
	"github.com/headgate/headgate/throttle"
)

// Ahead is how long before its permit exists a job may be called: many turns in
// one call cost Redis little more than one. But what changes meanwhile, such as a
// pause, can cost those jobs a second denial.
const Advance = 40 * time.Millisecond

// Claim claims the scope for that long for the asynq Redis with these data, which
// had others before as far as its caller knows, and that address; or returns the
// address of another one that has it, or the version of its data where that is not
// Version, and they cannot be brought over: it is a later one, or its workers live.
func (db *DB) Claim(ctx context.Context, data, before, address string, life time.Duration) (other string, version int64, err error) {
	reply, err := db.run(ctx, claimScript, data, before, address, life.Milliseconds(), Version).Slice()
	if err != nil {
		return "", 0, err
	}
	return reply[0].(string), reply[1].(int64), nil
}

// Version is of what the scripts keep in Redis. It goes up whenever those of another
// version would misread it; then the ones of before must be stopped first.
const Version = 5

// NewEpoch is a random name for a scope's data, and says their version.
func NewEpoch() string { return fmt.Sprint(Version, " ", uuid.NewString()) }

// Late takes jobs whose time is up out of their lanes and names them: they are to be
// told that it is too late. It says in how long the next is due to be named: those named
// now, too, until they ask. Never is in 292 years.
func (db *DB) ExpireWaits(ctx context.Context, most int) (jobs []throttle.JobID, next time.Duration, err error) {
	reply, err := db.run(ctx, lateScript, most).Slice()
	if err != nil {
		return nil, 0, err
	}
	for _, name := range reply[1:] {
		queue, id, _ := strings.Cut(name.(string), "\n")
		jobs = append(jobs, throttle.JobID{Queue: queue, ID: id})
	}
	if next = time.Duration(reply[0].(int64)) * time.Microsecond; next < 0 {
		next = math.MaxInt64
	}
	return jobs, next, nil
}

// Grant has Redis try the turns in their order. It reports false where another
// process gives turns by now. There are no results if an answer got lost: jobs may be called,
// and the repeat that go-redis sent has called no more.
func (db *DB) Grant(ctx context.Context, process string, turns []fairqueue.Turn) (now int64, results []fairqueue.Result, held bool, err error) {
	c := db.callers.Next()
	defer db.callers.Done(c)
	args := []any{process, Advance.Microseconds(), c.Name, c.Calls, new(script.Sent)}
	for _, t := range turns {
		held := t.Held
		if held == nil {
			held = make([]int64, len(fairqueue.Meters(t.Lane)))
		}
		args = append(args, t.Lane, t.Advance, joinInts(held))
	}
	reply, err := db.run(ctx, grantScript, args...).Slice()
	if err != nil {
		return 0, nil, false, err
	}
	now = reply[0].(int64)
	switch now {
	case 0:
		return 0, nil, false, nil
	case -1:
		return reply[1].(int64), nil, true, nil
	}
	if stale := strings.Fields(reply[1].(string)); len(stale) > 0 {
		if err := db.Internals().ExtendCalendars(ctx, stale, now); err != nil {
			return 0, nil, true, err
		}
	}
	return now, readResults(turns, reply[2:]), true, nil
}

// Expired is who of a lane is called and has not come.
type LaneGrants struct {
	Waiting, Granted int // how many jobs of the lane wait, how many are called
	// Expected are called jobs that permits are reserved for, Overdue those for which
	// nothing is reserved any more: a thousand of each at most.
	Reserved, Overdue []string
}

// Expire takes back what is reserved for called jobs that have not come in time.
func (db *DB) ExpireGrants(ctx context.Context, lanes []string) ([]LaneGrants, error) {
	args := make([]any, len(lanes))
	for i, lane := range lanes {
		args[i] = lane
	}
	reply, err := db.run(ctx, expireScript, args...).Slice()
	if err != nil {
		return nil, err
	}
	expired := make([]LaneGrants, len(lanes))
	for i := range lanes {
		row := reply[i].([]any)
		r := &expired[i]
		r.Waiting, r.Granted = int(row[0].(int64)), int(row[1].(int64))
		for _, id := range row[2].([]any) {
			r.Reserved = append(r.Reserved, id.(string))
		}
		for _, id := range row[3].([]any) {
			r.Overdue = append(r.Overdue, id.(string))
		}
	}
	return expired, nil
}

// PresumeDead says of called jobs that a worker has had them for long and they have not
// asked. Those for which nothing is reserved any more count no more against how
// many of their lane may be called.
func (db *DB) ExpireActive(ctx context.Context, jobs []fairqueue.GrantedJob) (dead int, err error) {
	if len(jobs) == 0 {
		return 0, nil
	}
	var args []any
	for _, job := range jobs {
		args = append(args, job.Lane, job.ID)
	}
	return db.run(ctx, presumeDeadScript, args...).Int()
}

// Marks lists the meters at which newcomers may not take.
func (db *DB) Contended(ctx context.Context) (meters []string, err error) {
	scan := db.rdb.HScan(ctx, db.prefix+"contended", 0, "", 1000).Iterator()
	for scan.Next(ctx) {
		meters = append(meters, scan.Val())
		scan.Next(ctx) // the number
	}
	return meters, scan.Err()
}

// PublishShares writes how many lanes take turns at meters: where none does any more,
// newcomers may take again. It returns the meters of whose changes words are said from
// now on, and were not before.
func (db *DB) PublishShares(ctx context.Context, process string, seen int64, sharing map[string]int) (marked []string, err error) {
	for meters := range slices.Chunk(slices.Collect(maps.Keys(sharing)), sharesPage) {
		args := []any{process, seen}
		for _, meter := range meters {
			args = append(args, meter, sharing[meter])
		}
		its, err := db.run(ctx, publishSharesScript, args...).StringSlice()
		if err != nil {
			return marked, err
		}
		marked = append(marked, its...)
	}
	return marked, nil
}

// sharesPage bounds a call of Redis to about a millisecond.
const sharesPage = 500

func joinInts(numbers []int64) string {
	texts := make([]string, len(numbers))
	for i, n := range numbers {
		texts[i] = strconv.FormatInt(n, 10)
	}
	return strings.Join(texts, ",")
}
