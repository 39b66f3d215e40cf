package waitdb

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/script"
	"github.com/headgate/headgate/throttle"
)

// Acquire takes a job's permits, or has the job wait in its lane. Then the outcome is Denied, and
// RetryAfter is about when it would run; when its turn comes it is granted its permits, and must
// ask again. A waiting job that asks again keeps its place.
//
// Permits of concurrency limits are leases of the decision's Holder, which no later call of the
// same job shares, for the limiter's Extend and Free.
//
// A call that go-redis repeats, because its reply got lost, is not charged twice if that is within
// a minute. An error that wraps [throttle.ErrUnavailable] leaves open whether the job got a place
// in its lane, or its permits. Asking again, as a new call, is right in any case: the job keeps a
// place that it got, and at worst permits are taken twice.
//
// Needs of the same meter are added up. A job that asks for other needs than it waits for begins
// anew in the lane of those, but has waited since it did.
func (db *DB) Acquire(ctx context.Context, job Job, needs ...throttle.Need) (Decision, error) {
	result := db.AcquireAll(ctx, AcquireRequest{job, needs})[0]
	return result.Decision, result.Err
}

// An AcquireRequest is a job, and the permits that it asks for.
type AcquireRequest struct {
	Job
	Needs []throttle.Need
}

// An AcquireResult is the decision about one job, or why there is none.
type AcquireResult struct {
	Decision
	Err error
}

// AcquireAll is Acquire for each of some different jobs, as if they had asked one after the other.
// It takes a round trip or two for up to 64 of them, and returns the results in their order.
func (db *DB) AcquireAll(ctx context.Context, requests ...AcquireRequest) []AcquireResult {
	results := make([]AcquireResult, len(requests))
	all := make([]*acquireCall, 0, len(requests))
	for i, r := range requests {
		needs, err := throttle.Normalize(r.Needs...)
		if err = cmp.Or(err, r.validate()); err != nil {
			results[i].Err = err
			continue
		}
		all = append(all, &acquireCall{Job: r.Job, needs: needs, result: &results[i]})
	}
	for some := range slices.Chunk(all, maxCalls) {
		for few := range script.Batches(some, func(a *acquireCall) int { return len(a.needs) }) {
			db.acquire(ctx, few)
		}
	}
	return results
}

// maxCalls bounds the jobs of one script: Redis does nothing else meanwhile.
const maxCalls = 64

// acquireCall is one job's part of AcquireAll.
type acquireCall struct {
	Job
	needs  []throttle.Need // normalized
	result *AcquireResult

	group   []any  // what it shares with others, as lua/lanes/acquire.lua takes it
	call    string // by which its leases are known
	reply   []any
	replied time.Time // when Redis did, by this process's clock
	err     error
}

// acquire has jobs take the fast path if they may, and the others the full script: those that must
// wait join their lanes there. A job that needs a meter of one that took the full script follows
// it.
func (db *DB) acquire(ctx context.Context, calls []*acquireCall) {
	needs := make([][]throttle.Need, len(calls))
	for i, a := range calls {
		needs[i] = a.needs
	}
	var rest []*acquireCall
	fast := db.Internals().TryFast(ctx, needs)
	for i, a := range calls {
		if r := fast[i]; r.Err != nil || r.Decision.OK() {
			*a.result = AcquireResult{Decision{Decision: r.Decision, TakenAt: r.TakenAt}, r.Err}
			continue
		}
		a.group = appendNeeds([]any{
			a.Queue, a.Priority.headStart(), a.maxWaitUS(), a.grantUS(), a.MaxAdvance.Microseconds(), a.queuedAtUS(), unixMicro(a.WaitingSince),
			a.fairnessLine(), len(a.needs),
		}, a.needs)
		rest = append(rest, a)
	}
	if len(rest) == 0 {
		return
	}
	db.send(ctx, rest)
	for _, a := range rest {
		a.result.Decision, a.result.Err = db.decide(ctx, a.needs, func(ctx context.Context, try int) ([]any, string, error) {
			if try > 0 {
				db.send(ctx, []*acquireCall{a})
			}
			return a.reply, a.Queue + "\n" + a.ID + "\n" + a.call, a.err
		})
		if a.result.OK() {
			a.result.TakenAt = a.replied.Add(a.result.At.Add(a.result.BeginIn).Sub(time.UnixMicro(a.reply[2].(int64))))
		}
	}
}

// send sends jobs' calls in one script. Jobs that are alike and follow each other are a group,
// which the script takes in fewer arguments.
func (db *DB) send(ctx context.Context, calls []*acquireCall) {
	c := db.callers.Next()
	defer db.callers.Done(c)
	sent := new(script.Sent)
	args := []any{db.app, c.Name, c.Calls, sent}
	for i := 0; i < len(calls); {
		const needs = 9 // where they begin
		group, end := calls[i].group, i+1
		for end < len(calls) && slices.Equal(group, calls[end].group) {
			end++
		}
		args = append(append(append(args, group[:needs]...), end-i), group[needs:]...)
		for ; i < end; i++ {
			args = append(args, calls[i].ID, calls[i].usefulUS())
		}
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
		replied = db.callers.When(replies[0].([]any)[2].(int64), sent)
	}
	for i, a := range calls {
		if a.call, a.err = fmt.Sprintf("%s:%d.%d", c.Name, c.Calls, i+1), err; err == nil {
			a.reply, a.replied = replies[i].([]any), replied
		}
	}
}
