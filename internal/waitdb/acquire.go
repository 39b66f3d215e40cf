package waitdb

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/internal/script"
	"github.com/headgate/headgate/throttle"
)

// Acquire takes a job's permits, or puts the job in its lane to wait for them. If the job has to
// wait, the outcome is Denied, and RetryAfter is about the time until the job would run. When its
// turn comes, the permits are reserved for the job and the dispatcher moves it to the head of its
// queue; its worker must then call Acquire again to take them. A waiting job that calls again keeps
// its place.
//
// Permits of concurrency limits are leased under the decision's Holder. Pass the Holder to the
// limiter's Extend and Free. Each call of Acquire for a job has a different Holder.
//
// If a reply gets lost, go-redis repeats the call. A repeat within an hour takes no permits twice.
// After an error that wraps [throttle.ErrUnavailable], call Acquire again. A waiting job keeps its
// place, but permits that the failed call took are taken once more.
//
// A job whose needs have changed joins another lane. It keeps the start of its wait.
func (db *DB) Acquire(ctx context.Context, job Job, needs ...throttle.Need) (Decision, error) {
	result := db.AcquireAll(ctx, AcquireRequest{job, needs})[0]
	return result.Decision, result.Err
}

// An AcquireRequest is a job and the permits that it needs.
type AcquireRequest struct {
	Job
	Needs []throttle.Need
}

// An AcquireResult is the decision about one job, or the error that prevented a decision.
type AcquireResult struct {
	Decision
	Err error
}

// AcquireAll calls Acquire for several different jobs, as if one after the other. It takes one or
// two round trips for up to 64 jobs, and returns the results in the order of the requests.
func (db *DB) AcquireAll(ctx context.Context, requests ...AcquireRequest) []AcquireResult {
	results := make([]AcquireResult, len(requests))
	calls := make([]*acquireCall, 0, len(requests))
	for i, r := range requests {
		needs, err := throttle.Normalize(r.Needs...)
		if err = cmp.Or(err, r.ValidateFair()); err != nil {
			results[i].Err = err
			continue
		}
		call := &acquireCall{Job: r.Job, needs: needs, result: &results[i]}
		if r.WaitsForLimits {
			call.waits = unlessLost
		}
		calls = append(calls, call)
	}
	for batch := range script.Batches(calls, func(a *acquireCall) int { return len(a.needs) }) {
		db.acquire(ctx, batch)
	}
	return results
}

// acquireCall is one job's part of AcquireAll.
type acquireCall struct {
	Job
	needs  []throttle.Need // normalized
	waits  int             // see lua/lanes/acquire.lua
	result *AcquireResult

	reply   []any
	lease   string    // the part of the Holder that differs between calls
	replied time.Time // time of the reply by this process's clock
	err     error
}

// What happens to a job whose limit does not exist: see waits in lua/lanes/acquire.lua. A limit that
// Redis has lost is defined again before the job waits.
const (
	unlessLost  = 1
	alwaysWaits = 2
)

// replyNow is the index of now_us in a reply of lua/lanes/acquire.lua.
const replyNow = 2

// acquire first tries TryFast, which can only take permits that are free now. TryFast denies a job
// without enough free permits, and later jobs that share a meter with it. acquire sends the denied
// jobs to the full script, which allows each job or puts it into its lane.
func (db *DB) acquire(ctx context.Context, calls []*acquireCall) {
	needs := make([][]throttle.Need, len(calls))
	for i, a := range calls {
		needs[i] = a.needs
	}
	var remaining []*acquireCall
	fast := db.Internals().TryFast(ctx, needs)
	for i, a := range calls {
		if r := fast[i]; r.Err == nil && !r.Decision.OK() {
			remaining = append(remaining, a)
		} else {
			*a.result = AcquireResult{Decision{Decision: r.Decision, TakenAt: r.TakenAt}, r.Err}
		}
	}
	if len(remaining) == 0 {
		return
	}
	db.sendAndDecide(ctx, remaining)
	var lost []*acquireCall // their limits are not among those that this process can define
	for _, a := range remaining {
		if a.waits == unlessLost && a.result.Outcome == throttle.NoLimit {
			a.waits = alwaysWaits
			lost = append(lost, a)
		}
	}
	if len(lost) > 0 {
		db.sendAndDecide(ctx, lost)
	}
}

// sendAndDecide sends calls to the full script, and sets their results.
func (db *DB) sendAndDecide(ctx context.Context, calls []*acquireCall) {
	db.send(ctx, calls)
	for _, a := range calls {
		a.result.Decision, a.result.Err = db.decide(ctx, a.needs, func(ctx context.Context, try int) ([]any, string, error) {
			if try > 0 {
				db.send(ctx, []*acquireCall{a})
			}
			return a.reply, nameOf(a.JobID) + "\n" + a.lease, a.err
		})
		if a.result.OK() {
			a.result.TakenAt = a.replied.Add(a.result.At.Add(a.result.BeginIn).Sub(time.UnixMicro(a.reply[replyNow].(int64))))
		}
	}
}

// send calls lua/lanes/acquire.lua for jobs. Consecutive jobs that differ only in ID and deadline
// form a group: their common arguments are sent once.
func (db *DB) send(ctx context.Context, calls []*acquireCall) {
	c, done := db.callers.Next()
	defer done()
	sent := &script.Sent{Number: c.Calls}
	args := []any{db.app, c.Name, sent}
	var group []any // arguments of the present group
	count := 0      // index of the job_count of that group
	for _, a := range calls {
		maxWait, useful, grant := a.times()
		queuedAt := unixMicro(a.QueuedAt)
		if a.New && queuedAt == 0 {
			queuedAt = -1
		}
		own := appendNeeds([]any{
			a.Queue, headStarts[a.Priority], maxWait, grant, a.MaxAdvance.Microseconds(), queuedAt, unixMicro(a.WaitingSince),
			a.waits, fairqueue.FairnessLine(a.Fair, a.Weight), len(a.needs),
		}, a.needs)
		if !slices.Equal(own, group) {
			group, count = own, len(args)
			args = append(append(args, 0), own...)
		}
		args[count] = args[count].(int) + 1
		args = append(args, a.ID, useful)
	}
	replies, err := db.run(ctx, acquireScript, args...).Slice()
	if len(calls) > 1 && script.IsCorrupt(err) {
		for _, a := range calls {
			db.send(ctx, []*acquireCall{a})
		}
		return
	}
	var replied time.Time
	if err == nil {
		replied = db.callers.When(replies[0].([]any)[replyNow].(int64), sent)
	}
	for i, a := range calls {
		a.lease, a.err = fmt.Sprintf("%s:%d.%d", c.Name, c.Calls, i+1), err
		if err == nil {
			a.reply, a.replied = replies[i].([]any), replied
		}
	}
}
