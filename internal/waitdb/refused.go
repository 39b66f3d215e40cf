package waitdb

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/throttle"
)

// Refusal is how the other side refused the call of a job that was allowed.
type RateLimit struct {
	// At is when the job was allowed: its Decision's.
	At time.Time
	// For is how long the other side wants to be left alone. A negative value means
	// that it does not say: then it grows with each refusal in a row, and half of it
	// is left to chance: see docs/design.md.
	For time.Duration
	// Shuts lists the needs whose meters that is about; their costs do not matter.
	// Those that the job does not need itself are passed over. With none the job
	// only waits again.
	Blocks []throttle.Need
}

// longest bounds for how long a meter is shut.
const longest = 100 * 365 * 24 * time.Hour

// Refused has a job wait again, at the head of its lane, and shuts the meters of
// the refusal for everybody until the other side may be called again. Jobs that
// come back keep the order in which they were allowed. The outcome is Denied, or
// what forbids the job to wait: its MaxWait counts from this refusal on. The permits
// that the call took stay taken, since the other side has counted it, most likely.
//
// Refusals of calls that were underway when one was refused count once: they were
// let through before anything was known. To repeat the call is safe.
func (db *DB) RateLimited(ctx context.Context, job Job, refusal RateLimit, needs ...throttle.Need) (throttle.Decision, error) {
	needs, err := throttle.Normalize(needs...)
	if err != nil {
		return throttle.Decision{}, err
	}
	if err := job.validate(); err != nil {
		return throttle.Decision{}, err
	}
	if job.Grant <= 0 {
		job.Grant = DefaultGrant
	}
	shuts := make([]byte, len(needs))
	for i, n := range needs {
		shuts[i] = '0'
		if slices.ContainsFunc(refusal.Blocks, func(s throttle.Need) bool { return s.Limit == n.Limit && s.Key == n.Key }) {
			shuts[i] = '1'
		}
	}
	forUS := int64(-1)
	if refusal.For >= 0 {
		forUS = min(refusal.For, longest).Microseconds()
	}
	c := db.callers.Next()
	defer db.callers.Done(c)
	args := []any{
		job.Queue, job.ID, db.app, refusal.At.UnixMicro(), forUS, rand.IntN(1_000_000),
		job.maxWaitUS(), job.usefulUS(), job.Grant.Microseconds(), string(shuts), fairqueue.FairnessLine(job.Fair, job.Weight),
		c.Name, c.Calls,
	}
	args = appendNeeds(args, needs)
	return db.Internals().Decide(ctx, needs, func(ctx context.Context, _ int) ([]any, string, error) {
		reply, err := db.run(ctx, refusedScript, args...).Slice()
		return reply, "", err
	})
}
