package scheduler

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/scheduler/lanes"
	"github.com/headgate/headgate/throttle"
)

// Limiter is what a Server asks for permits. [*lanes.Lanes] is one; programs
// that want to see or to change its answers embed that and override a method.
// What each method means is said there.
//
// A Server calls it from many goroutines at once. An answer of AcquireAll whose
// error wraps throttle.ErrUnavailable has the job ask again after a second; any
// other error archives it.
type Limiter interface {
	Define(ctx context.Context, limits ...throttle.Limit) error
	AcquireAll(ctx context.Context, asks ...lanes.Ask) []lanes.Answer
	Extend(ctx context.Context, holder string, needs ...throttle.Need) (bool, error)
	Free(ctx context.Context, holder string, needs ...throttle.Need) error
	Refused(ctx context.Context, job lanes.Job, refusal lanes.Refusal, needs ...throttle.Need) (throttle.Decision, error)
	Accepted(ctx context.Context, d throttle.Decision, latency time.Duration) error
	Settle(ctx context.Context, d throttle.Decision, limit, key string, cost int) error
	Overloaded(ctx context.Context, at time.Time, needs ...throttle.Need) error
	BlockFor(ctx context.Context, d time.Duration, needs ...throttle.Need) error
	Places(ctx context.Context, jobs ...throttle.JobID) (map[throttle.JobID]lanes.Place, error)
	Forget(ctx context.Context, jobs ...throttle.JobID) (known int, err error)
	// Scope and ExtendCalendars are how the Server gives waiting jobs their turns.
	Scope() (rdb redis.UniversalClient, prefix string)
	ExtendCalendars(ctx context.Context, limits []string, now int64) error
}
