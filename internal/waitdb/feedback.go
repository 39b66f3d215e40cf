package waitdb

import (
	"context"
	"time"

	"github.com/headgate/headgate/internal/script"
	"github.com/headgate/headgate/throttle"
)

// Accepted reports that the upstream accepted the call of an allowed job, and the call's latency:
// earlier rate limits are over. Call it if the decision says WantsFeedback.
func (db *DB) Accepted(ctx context.Context, d Decision, latency time.Duration) error {
	return db.report(ctx, acceptedScript, []any{d.At.UnixMicro(), max(0, latency).Microseconds()}, d.Taken)
}

// Overloaded reports that the upstream was too busy for a call that was allowed at a time, as with
// 503 Service Unavailable, and did not name a pause. Meters of adaptive limits slow down as after a
// rate limit, and no meter is blocked. The needs' costs do not matter.
func (db *DB) Overloaded(ctx context.Context, at time.Time, needs ...throttle.Need) error {
	return db.report(ctx, acceptedScript, []any{at.UnixMicro(), -1}, needs)
}

func (db *DB) report(ctx context.Context, script *script.Script, args []any, needs []throttle.Need) error {
	for _, n := range needs {
		args = append(args, n.Limit, n.Key)
	}
	return unavailable(db.run(ctx, script, args...).Err())
}
