package waitdb

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/headgate/headgate/throttle"
)

// RateLimit is how the upstream rate limited the call of a job that was allowed.
type RateLimit struct {
	// At is when the job was allowed: its Decision's.
	At time.Time
	// For is how long the upstream wants to be left alone. A negative value means that it does not
	// say: then that grows with each rate limit in a row, and half of it is random: see
	// docs/design.md.
	For time.Duration
	// Blocks lists the needs whose meters that is about; their costs do not matter. Those that the
	// job does not need itself are ignored. Without any the job only waits again.
	Blocks []throttle.Need
}

// maxBlock bounds for how long a meter is blocked.
const maxBlock = 100 * 365 * 24 * time.Hour

// RateLimited has a job wait again, at the head of its lane, and blocks the meters of the rate
// limit for all jobs until the upstream may be called again. Jobs that come back keep the order in
// which they were allowed. The outcome is Denied, or what forbids the job to wait: its MaxWait
// counts from now on. The permits that the call took stay taken, since the upstream has counted it,
// most likely.
//
// Rate limits of calls that were underway when one was answered so count once. Repeating the call
// is safe.
func (db *DB) RateLimited(ctx context.Context, job Job, limit RateLimit, needs ...throttle.Need) (Decision, error) {
	needs, err := throttle.Normalize(needs...)
	if err != nil {
		return Decision{}, err
	}
	if err := job.validate(); err != nil {
		return Decision{}, err
	}
	blocks := make([]byte, len(needs))
	for i, n := range needs {
		blocks[i] = '0'
		if slices.ContainsFunc(limit.Blocks, func(b throttle.Need) bool { return b.Limit == n.Limit && b.Key == n.Key }) {
			blocks[i] = '1'
		}
	}
	forUS := int64(-1)
	if limit.For >= 0 {
		forUS = min(limit.For, maxBlock).Microseconds()
	}
	c := db.callers.Next()
	defer db.callers.Done(c)
	args := appendNeeds([]any{
		job.Queue, job.ID, db.app, limit.At.UnixMicro(), forUS, rand.IntN(1_000_000),
		job.maxWaitUS(), job.usefulUS(), job.grantUS(), string(blocks), job.fairnessLine(), c.Name, c.Calls,
	}, needs)
	return db.decide(ctx, needs, func(ctx context.Context, _ int) ([]any, string, error) {
		reply, err := db.run(ctx, rateLimitedScript, args...).Slice()
		return reply, "", err
	})
}
