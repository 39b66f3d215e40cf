package waitdb

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/throttle"
)

// RateLimit describes a "429 Too Many Requests" response to the call of an allowed job.
type RateLimit struct {
	// At is the time at which the job was allowed: the At of its Decision.
	At time.Time
	// For is the pause that the upstream asks for, or negative if the upstream names no pause. Then
	// the pause doubles with each consecutive 429, and half of it is random.
	For time.Duration
	// Blocks lists the needs whose keys are to be blocked. Costs, and needs that the job does not
	// have, are ignored. If Blocks is empty, no key is blocked, and the job only waits again.
	Blocks []throttle.Need
	// Before is the At of the Decision if the job was rate limited right before, and Alone that
	// Decision's Alone.
	Before time.Time
	Alone  bool
	// MayFail means that the job is not put back if it alone is rate limited: see Decision.Fails.
	MayFail bool
}

// maxBlock is the longest time for which a meter is blocked.
const maxBlock = 100 * 365 * 24 * time.Hour

// RateLimited puts a job that was rate limited by the upstream back into its lane, and blocks the
// meters of the rate limit for all jobs until the upstream may be called again. Then another job of
// the lane tries first. If that job is served, or one was served since the job was rate limited
// before, the job goes to the end of its lane. Several rate-limited jobs wait at the head of their
// lane in the order in which they were allowed, and count once for the backoff if their calls ran at
// the same time. The outcome is Denied, or Expired if the job may not wait any
// longer. MaxWait counts from this call. The permits of the call stay taken. Repeating RateLimited
// with the same arguments is safe.
func (db *DB) RateLimited(ctx context.Context, job Job, limit RateLimit, needs ...throttle.Need) (Decision, error) {
	needs, err := throttle.Normalize(needs...)
	if err != nil {
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
	before, beforeUS, mayFail := 0, int64(0), 0
	if !limit.Before.IsZero() {
		before, beforeUS = 1, limit.Before.UnixMicro()
	}
	if limit.Alone {
		before = 2
	}
	if limit.MayFail {
		mayFail = 1
	}
	c, done := db.callers.Next()
	defer done()
	maxWait, useful, grant := job.times()
	args := appendNeeds([]any{
		job.Queue, job.ID, db.app, limit.At.UnixMicro(), forUS, rand.IntN(1_000_000),
		maxWait, useful, grant, string(blocks), fairqueue.FairnessLine(job.Fair, job.Weight), c.Name, c.Calls,
		before, beforeUS, mayFail,
	}, needs)
	return db.decide(ctx, needs, func(ctx context.Context, _ int) ([]any, string, error) {
		reply, err := db.run(ctx, rateLimitedScript, args...).Slice()
		return reply, "", err
	})
}

// Overload is the latency of a call for which the upstream was too busy, without naming a pause, as
// with 503 Service Unavailable.
const Overload time.Duration = -1

// Accepted records that the upstream accepted a call, which the limiter allowed at the time at. The
// count of consecutive 429s then starts again, and meters that adapt use the latency. If latency is
// Overload, meters that adapt slow down as after a 429, but no key is blocked. The costs of the
// needs do not matter.
func (db *DB) Accepted(ctx context.Context, at time.Time, latency time.Duration, needs ...throttle.Need) error {
	us := max(0, latency).Microseconds()
	if latency == Overload {
		us = -1
	}
	return unavailable(db.run(ctx, feedbackScript, at.UnixMicro(), us, needs).Err())
}
