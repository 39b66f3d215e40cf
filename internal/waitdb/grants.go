package waitdb

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/throttle"
)

// Advance is how long before its permits exist a job may be granted, so that one call can grant
// many jobs.
const Advance = 40 * time.Millisecond

// MaxWindowAge is the maximum age of a window's permits when the handler starts. A window gives all
// its permits at once, so if the calls of one window are late, an API sees them close to the calls of
// the next window.
const MaxWindowAge = 20 * time.Millisecond

// Grant tries turns in order. now is Redis's clock in Unix microseconds. held is false if another
// process has become the leader. If the reply was lost and the command was repeated, there are no
// results, and the jobs may be granted.
func (db *DB) Grant(ctx context.Context, process string, turns []fairqueue.Turn) (now int64, results []fairqueue.Result, held bool, err error) {
	c, done := db.callers.Next()
	defer done()
	args := []any{process, Advance.Microseconds(), c.Name, c.Calls}
	for _, t := range turns {
		args = append(args, t.Lane, t.Advance, strings.Trim(strings.ReplaceAll(fmt.Sprint(t.Held), " ", ","), "[]"))
	}
	reply, err := db.run(ctx, grantScript, args...).Slice()
	if err != nil {
		return 0, nil, false, err
	}
	switch now = reply[0].(int64); now {
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

// readResults reads what lua/lanes/grant.lua replies: a row for each turn, then one for each lane
// in the order in which the turns name them.
func readResults(turns []fairqueue.Turn, rows row) []fairqueue.Result {
	lanes := map[string]*fairqueue.Result{} // state of each lane after all turns
	for _, t := range turns {
		if lanes[t.Lane] == nil {
			lanes[t.Lane] = readLane(t.Lane, rows.row(len(turns)+len(lanes)))
		}
	}
	results := make([]fairqueue.Result, len(turns))
	for i, t := range slices.Backward(turns) {
		r := &results[i]
		*r = *lanes[t.Lane]
		turn := rows.row(i)
		if r.Outcome = fairqueue.Outcome(turn.us(0)); len(turn) > 1 {
			r.Job, r.At, r.Until = turn.text(1), turn.us(2), turn.us(3)
			r.TakesEarly = len(turn) > 4 && turn.is(4)
			lanes[t.Lane].Granted-- // as before this turn
		}
	}
	return results
}

// readLane reads the row of a lane: its number of granted jobs and, if a job waits, the maximum
// advance and the needs of the first waiting job. If a limit of that job was deleted, the row has
// no needs.
func readLane(lane string, from row) *fairqueue.Result {
	r := &fairqueue.Result{Granted: int(from.us(0))}
	if len(from) == 1 {
		return r
	}
	r.MaxAdvance = from.us(1)
	r.Next = make([]fairqueue.Need, len(fairqueue.Meters(lane)))
	for i := range r.Next {
		n := &r.Next[i]
		if n.Known = true; len(from) > 2 {
			fields := from[2+6*i:]
			n.Cost, n.Ready, n.Known, n.Refill, n.Blocked, n.PerRefill = fields.us(0), fields.us(1), fields.is(2), fields.us(3), fields.is(4), fields.us(5)
		}
	}
	return r
}

// LaneGrants lists the granted jobs of a lane that have not taken their permits.
type LaneGrants struct {
	Waiting, Granted int // numbers of jobs
	// Reserved are granted jobs for which permits are reserved, Overdue those for which nothing is
	// reserved any more: at most a thousand of each.
	Reserved, Overdue []string
}

// ExpireGrants releases the permits of granted jobs that have not taken them in time. It returns
// the LaneGrants of each lane, in the order of lanes.
func (db *DB) ExpireGrants(ctx context.Context, lanes []string) ([]LaneGrants, error) {
	reply, err := db.run(ctx, expireGrantsScript, lanes).Slice()
	grants := make([]LaneGrants, len(reply))
	for i := range reply {
		lane := row(reply).row(i)
		grants[i] = LaneGrants{int(lane.us(0)), int(lane.us(1)), lane.texts(2), lane.texts(3)}
	}
	return grants, err
}

// ExpireActive ends the grants of jobs that a worker has, but whose reservation expired before they
// took their permits. Other jobs of their lanes can then be granted. It returns the number of ended
// grants.
func (db *DB) ExpireActive(ctx context.Context, jobs []fairqueue.GrantedJob) (expired int, err error) {
	if len(jobs) == 0 {
		return 0, nil
	}
	var args []any
	for _, job := range jobs {
		args = append(args, job.Lane, job.ID)
	}
	return db.run(ctx, expireActiveScript, args...).Int()
}

// ExpireWaits removes up to `most` jobs whose wait deadline has passed from their lanes. It returns
// these jobs, and the caller promotes them. next is the time until the next deadline, or
// math.MaxInt64 if there is none. Until a job calls Acquire, later calls of ExpireWaits return the
// job again, at growing pauses.
func (db *DB) ExpireWaits(ctx context.Context, most int) (jobs []throttle.JobID, next time.Duration, err error) {
	reply, err := db.run(ctx, expireWaitsScript, most).Slice()
	if err != nil {
		return nil, 0, err
	}
	for _, name := range reply[1:] {
		jobs = append(jobs, jobOf(name.(string)))
	}
	if next = microseconds(reply[0].(int64)); next < 0 {
		next = math.MaxInt64
	}
	return jobs, next, nil
}
