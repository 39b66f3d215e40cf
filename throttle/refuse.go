package throttle

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/headgate/headgate/lua"
)

// Refusal is how the other side refused the call of a job that was allowed.
type Refusal struct {
	// At is when the job was allowed: its Decision's.
	At time.Time
	// For is how long the other side wants to be left alone. A negative value means
	// that it does not say: then it is a second, twice as long for each refusal in
	// a row, up to five minutes, and half of it is left to chance.
	For time.Duration
	// Shuts lists the needs whose meters that is about; their costs do not matter.
	// Those that the job does not need itself are passed over. With none the job
	// only waits again.
	Shuts []Need
}

// Refused has a job wait again, at the head of its lane, and shuts the meters of
// the refusal for everybody until the other side may be called again. Jobs that
// come back keep the order in which they were allowed. The outcome is Denied, or
// what forbids the job to wait: its MaxWait counts from this refusal on. The permits
// that the call took stay taken, since the other side has counted it, most likely.
//
// Refusals of calls that were underway when one was refused count once: they were
// let through before anything was known. To repeat the call is safe.
func (l *Lanes) Refused(ctx context.Context, job Job, refusal Refusal, needs ...Need) (Decision, error) {
	needs, err := normalize(withCosts(needs))
	if err != nil {
		return Decision{}, err
	}
	if err := job.validate(); err != nil {
		return Decision{}, err
	}
	if job.Grant <= 0 {
		job.Grant = DefaultGrant
	}
	shuts := make([]byte, len(needs))
	for i, n := range needs {
		shuts[i] = '0'
		if slices.ContainsFunc(refusal.Shuts, func(s Need) bool { return s.Limit == n.Limit && s.Key == n.Key }) {
			shuts[i] = '1'
		}
	}
	forUS := int64(-1)
	if refusal.For >= 0 {
		forUS = min(refusal.For, maxFill).Microseconds()
	}
	args := []any{
		job.Queue, job.ID, l.app, refusal.At.UnixMicro(), forUS, rand.IntN(1_000_000),
		job.maxWaitUS(), job.usefulUS(), job.Grant.Microseconds(), string(shuts),
	}
	args = appendNeeds(args, needs)
	return l.decide(ctx, needs, func(ctx context.Context) ([]any, string, error) {
		reply, err := l.run(ctx, lua.Refused, args...).Slice()
		return reply, "", err
	})
}

// Accepted tells the limiter that the other side did what a job's call asked for,
// and how long that took: the refusals before are over. It is of use where the
// job's decision says Heard.
func (l *Lanes) Accepted(ctx context.Context, d Decision, latency time.Duration) error {
	args := []any{d.At.UnixMicro(), max(0, latency).Microseconds()}
	for _, t := range d.Taken {
		args = append(args, t.Limit, t.Key)
	}
	return unavailable(l.run(ctx, lua.Accepted, args...).Err())
}

// Overloaded tells the limiter that the other side was too busy for a call that was
// allowed at a moment, and did not say until when, as with 503 Service Unavailable:
// meters of limits that adapt slow down as by a refusal. Nothing is shut, and what
// becomes of the job is not the limiter's. The needs' costs do not matter.
func (l *Lanes) Overloaded(ctx context.Context, at time.Time, needs ...Need) error {
	args := []any{at.UnixMicro(), -1}
	for _, n := range needs {
		args = append(args, n.Limit, n.Key)
	}
	return unavailable(l.run(ctx, lua.Accepted, args...).Err())
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
