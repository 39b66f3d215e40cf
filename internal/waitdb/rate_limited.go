package waitdb

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/headgate/headgate/throttle"
)

// A RateLimit describes the upstream's answer to the call of an allowed job: too many requests.
type RateLimit struct {
	// At is the time at which the job was allowed: the At of its Decision.
	At time.Time
	// For is the pause that the upstream asks for. A negative value means that it does not name
	// one. Then the pause grows with each rate limit in a row, and half of it is random: see
	// docs/design.md.
	For time.Duration
	// Blocks lists the needs whose meters are blocked. Their costs do not matter, and needs that
	// are not the job's own are ignored. If it is empty, the job only waits again.
	Blocks []throttle.Need
}

// maxBlock is the longest time for which a meter is blocked.
const maxBlock = 100 * 365 * 24 * time.Hour

// RateLimited puts a job that was rate limited by the upstream back at the head of its lane, and
// blocks the meters of the rate limit for all jobs until the upstream may be called again. Jobs
// that return keep the order in which they were allowed. The outcome is Denied, or the reason why
// the job may not wait. MaxWait counts from this call. The permits stay taken, because the upstream
// has most likely counted the call.
//
// Calls that were already running when the upstream answered one of them count as one rate limit.
// Repeating RateLimited is safe.
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
		forUS = min(limit.For, maxBlock).Microseconds() + 2 // the duration and Redis's clock are rounded down
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
