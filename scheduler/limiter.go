package scheduler

import (
	"context"
	"slices"
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

// guardedLimiter is a limiter of the program's own. A call that panics has failed with that
// error, in whichever goroutine it was made.
type guardedLimiter struct {
	limiter Limiter
	code    *userCode
	rdb     redis.UniversalClient
	prefix  string
}

// guardLimiter returns the limiter that a server calls. One made by package lanes has no code
// of the program's, and stays as it is.
func (p *userCode) guardLimiter(l Limiter) Limiter {
	if _, ok := l.(*lanes.Lanes); ok {
		return l
	}
	rdb, prefix := l.Scope()
	return guardedLimiter{l, p, rdb, prefix}
}

// Scope implements Limiter, as the methods below do. The limiter was asked once.
func (l guardedLimiter) Scope() (redis.UniversalClient, string) { return l.rdb, l.prefix }

// do makes a call that has no result.
func (l guardedLimiter) do(method string, f func() error) error {
	_, err := guard(l.code, "the limiter's "+method, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

func (l guardedLimiter) Define(ctx context.Context, limits ...throttle.Limit) error {
	return l.do("Define", func() error { return l.limiter.Define(ctx, limits...) })
}

func (l guardedLimiter) AcquireAll(ctx context.Context, asks ...lanes.Ask) []lanes.Answer {
	answers, err := guard(l.code, "the limiter's AcquireAll", func() ([]lanes.Answer, error) { return l.limiter.AcquireAll(ctx, asks...), nil })
	if err != nil {
		return slices.Repeat([]lanes.Answer{{Err: err}}, len(asks))
	}
	return answers
}

func (l guardedLimiter) Extend(ctx context.Context, holder string, needs ...throttle.Need) (bool, error) {
	return guard(l.code, "the limiter's Extend", func() (bool, error) { return l.limiter.Extend(ctx, holder, needs...) })
}

func (l guardedLimiter) Free(ctx context.Context, holder string, needs ...throttle.Need) error {
	return l.do("Free", func() error { return l.limiter.Free(ctx, holder, needs...) })
}

func (l guardedLimiter) Refused(ctx context.Context, job lanes.Job, refusal lanes.Refusal, needs ...throttle.Need) (throttle.Decision, error) {
	return guard(l.code, "the limiter's Refused", func() (throttle.Decision, error) { return l.limiter.Refused(ctx, job, refusal, needs...) })
}

func (l guardedLimiter) Accepted(ctx context.Context, d throttle.Decision, latency time.Duration) error {
	return l.do("Accepted", func() error { return l.limiter.Accepted(ctx, d, latency) })
}

func (l guardedLimiter) Settle(ctx context.Context, d throttle.Decision, limit, key string, cost int) error {
	return l.do("Settle", func() error { return l.limiter.Settle(ctx, d, limit, key, cost) })
}

func (l guardedLimiter) Overloaded(ctx context.Context, at time.Time, needs ...throttle.Need) error {
	return l.do("Overloaded", func() error { return l.limiter.Overloaded(ctx, at, needs...) })
}

func (l guardedLimiter) BlockFor(ctx context.Context, d time.Duration, needs ...throttle.Need) error {
	return l.do("BlockFor", func() error { return l.limiter.BlockFor(ctx, d, needs...) })
}

func (l guardedLimiter) Places(ctx context.Context, jobs ...throttle.JobID) (map[throttle.JobID]lanes.Place, error) {
	return guard(l.code, "the limiter's Places", func() (map[throttle.JobID]lanes.Place, error) { return l.limiter.Places(ctx, jobs...) })
}

func (l guardedLimiter) Forget(ctx context.Context, jobs ...throttle.JobID) (int, error) {
	return guard(l.code, "the limiter's Forget", func() (int, error) { return l.limiter.Forget(ctx, jobs...) })
}

func (l guardedLimiter) ExtendCalendars(ctx context.Context, limits []string, now int64) error {
	return l.do("ExtendCalendars", func() error { return l.limiter.ExtendCalendars(ctx, limits, now) })
}
