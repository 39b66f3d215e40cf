package throttle

import (
	"context"
	"time"

	"github.com/headgate/headgate/lua"
)

// Accepted tells the limiter that the other side did what a job's call asked for,
// and how long that took: the refusals before are over. It is of use where the
// job's decision says Heard.
func (r *Redis) Accepted(ctx context.Context, d Decision, latency time.Duration) error {
	args := []any{d.At.UnixMicro(), max(0, latency).Microseconds()}
	for _, t := range d.Taken {
		args = append(args, t.Limit, t.Key)
	}
	return unavailable(r.run(ctx, lua.Accepted, args...).Err())
}

// Overloaded tells the limiter that the other side was too busy for a call that was
// allowed at a moment, and did not say until when, as with 503 Service Unavailable:
// meters of limits that adapt slow down as by a refusal. Nothing is shut, and what
// becomes of the job is not the limiter's. The needs' costs do not matter.
func (r *Redis) Overloaded(ctx context.Context, at time.Time, needs ...Need) error {
	args := []any{at.UnixMicro(), -1}
	for _, n := range needs {
		args = append(args, n.Limit, n.Key)
	}
	return unavailable(r.run(ctx, lua.Accepted, args...).Err())
}

// BlockFor shuts meters for a while by Redis's clock, and never shorter than they are
// shut already: several who hear different times from the other side end up with the
// longest. Of limits that do not exist it does nothing. The needs' costs do not
// matter.
func (r *Redis) BlockFor(ctx context.Context, d time.Duration, needs ...Need) error {
	args := []any{min(d, maxFill).Microseconds()}
	for _, n := range needs {
		if err := validMeter(n.Limit, n.Key); err != nil {
			return err
		}
		args = append(args, n.Limit, n.Key)
	}
	return unavailable(r.run(ctx, lua.BlockFor, args...).Err())
}
