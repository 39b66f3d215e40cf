// Package throttle decides whether a job may run.
//
// A limit is a named bound, such as 2000 a day. One limit and one key (a host, an account) make a
// meter, which hands out permits. A Limiter answers at once: allowed, with the permits taken, or
// denied, with how long until the same call could be allowed. Most callers want Allow; AllowAll
// asks for several limits at once, all or none.
//
// New returns a limiter whose meters all processes share through Redis, NewLocal one for a single
// process. In package scheduler asynq's jobs wait for their permits.
package throttle

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// Limiter decides whether a call may go out now. New and NewLocal make limiters that decide alike,
// to the microsecond, so what is tested with one holds for the other.
//
// A limit must be made known with Define or Set before it can be asked. Most callers then use
// Allow:
//
//	d, err := limiter.Allow(ctx, "api", host)
//	switch {
//	case err != nil:  // the limiter cannot be asked: decide whether to wait or to go on without it
//	case d.OK():      // go: the permit is taken
//	default:          // come back in d.RetryAfter
//	}
//
// No method waits: a denial says when to come back, and the caller decides whether to sleep, to
// queue or to give up. All methods are safe for concurrent use.
//
// An argument out of its bounds is an error in which errors.As finds a [*FieldError], and changes
// nothing. A key has at most 200 bytes and no control characters. A method that changes a limit
// which does not exist returns an error that wraps [ErrNoLimit].
//
// # In Redis
//
// Each call is one script in Redis that reads all meters it needs, takes from all or none, and
// answers. A call takes one round trip, and O(1) of Redis's time for each need: O(log n) for
// sliding logs and concurrency limits. Calls that are made while others are under way share one
// script. All times are Redis's own, so the clocks of the processes do not matter.
//
// Errors that wrap [ErrUnavailable] mean that Redis was not reached or did not answer. Only the
// go-redis client repeats calls. If it repeats one whose answer got lost, permits can be taken
// twice. A call of Allow whose context ends takes nothing, or gives back what it took once its
// answer comes.
//
// Redis keeps what is counted as long as it matters and a minute more, so an unused key costs no
// memory. If Redis loses its data, the next call that misses a limit defines again what Define was
// given.
//
// # In the process
//
// A local limiter forgets everything when the process ends. A meter takes memory only once permits
// were taken from it, and until it is as if never used. All calls share one lock, and ignore their
// contexts. It keeps no changelog, and limits do not adapt.
type Limiter struct{ backend backend }

// backend is where a Limiter keeps its meters. Its arguments are valid.
type backend interface {
	allow(ctx context.Context, needs []Need) (Decision, error)
	throttle(ctx context.Context, key string, l Limit, quantity int) (Decision, error)
	extend(ctx context.Context, holder string, needs []Need) (bool, error)
	free(ctx context.Context, holder string, needs []Need) error
	settle(ctx context.Context, d Decision, i, cost int) error
	define(ctx context.Context, limits []Limit) error
	set(ctx context.Context, l Limit) error
	setKey(ctx context.Context, limit, key string, o Override) error
	unsetKey(ctx context.Context, limit, key string) error
	keys(ctx context.Context, limit string) ([]KeyState, error)
	delete(ctx context.Context, name string) error
	limits(ctx context.Context) ([]Limit, error)
	pause(ctx context.Context, name string, paused bool) error
	block(ctx context.Context, limit, key string, until time.Time) error
	blocks(ctx context.Context, limit string) ([]Blocked, error)
	reset(ctx context.Context, limit, key string) error
	changes(ctx context.Context, n int) ([]Change, error)
}

// Options are optional: the zero value is a limiter of the scope "default" that asks as no app.
type Options struct {
	// Scope names a set of limits in Redis. Limiters of one scope share their limits and meters,
	// those of two scopes nothing. In a Redis Cluster a scope lives on one node; more scopes spread
	// the load. It is part of every key's name, in braces, and so has no braces itself.
	Scope string
	// App is the name that limits list under Apps. The zero value is an app that none of them
	// lists: it may use only limits that are for all.
	App string
	// Logger receives a warning when a config file overrides what was set at run time, and when
	// Redis has lost its limits. The zero value means slog.Default.
	Logger *slog.Logger
	// Clock tells a local limiter the time; in Redis it has no effect. It must be safe for
	// concurrent use. It may step back by up to a minute: no meter hands out more for that. The
	// zero value means time.Now.
	Clock func() time.Time
}

// New returns a limiter that keeps its meters in rdb: a single Redis, one behind a sentinel, or a
// cluster. It sends nothing yet, and the caller closes rdb.
func New(rdb redis.UniversalClient, opts Options) *Limiter { return &Limiter{newShared(rdb, opts)} }

// NewLocal returns a limiter that keeps its meters in this process.
func NewLocal(opts Options) *Limiter { return &Limiter{newLocal(opts)} }

// Allow takes one permit of the limit for the key, if there is one. A denial leaves nothing behind:
// it costs the key no later call.
func (l *Limiter) Allow(ctx context.Context, limit, key string) (Decision, error) {
	return l.AllowN(ctx, limit, key, 1)
}

// AllowN takes n permits at once, or none. With n = 0 it only looks: Remaining is what is left, and
// the outcome is Denied while the limit is paused or the key blocked. An n above the capacity is
// Impossible, at once.
//
// It leaves permits alone that are reserved for jobs of package scheduler, and at a meter for which
// jobs wait it leaves everything that they want. RetryAfter is then when it would be the caller's
// turn if nobody else came.
func (l *Limiter) AllowN(ctx context.Context, limit, key string, n int) (Decision, error) {
	needs, err := normalize([]Need{{limit, key, n}})
	if err != nil {
		return Decision{}, err
	}
	return l.backend.allow(ctx, needs)
}

// AllowAll takes the permits of all needs in one step, or none of them, so a call that one limit
// denies does not use up another. At least one need is required. A need without a Cost takes one
// permit, and needs of the same limit and key are added up.
func (l *Limiter) AllowAll(ctx context.Context, needs ...Need) (Decision, error) {
	needs, err := Normalize(needs...)
	if err != nil {
		return Decision{}, err
	}
	return l.backend.allow(ctx, needs)
}

// Throttle is redis-cell's CL.THROTTLE: a limit that is given with the call, of count permits per
// period and maxBurst more at once, of which it takes quantity. Its keys are apart from those of
// named limits. If the numbers for a key change, what it owes stays owed, as with Set.
func (l *Limiter) Throttle(ctx context.Context, key string, maxBurst, count int, period time.Duration, quantity int) (Decision, error) {
	if err := validMeter("cell", key); err != nil {
		return Decision{}, err
	}
	if maxBurst < 0 || maxBurst >= maxPermits {
		return Decision{}, fieldError("max_burst", maxBurst, "want 0 to %d", maxPermits-1)
	}
	if quantity < 0 || quantity > math.MaxInt32 {
		return Decision{}, fieldError("quantity", quantity, "want 0 to %d", math.MaxInt32)
	}
	limit := Limit{Name: "cell", Kind: Funnel, Rate: Rate{count, period}, Capacity: maxBurst + 1}
	if err := limit.Validate(); err != nil {
		return Decision{}, err
	}
	return l.backend.throttle(ctx, key, limit, quantity)
}

// Extend renews the holder's leases on concurrency limits: each lasts from now on for as long as
// its limit says. The needs are those of the call that took them; limits of another kind are
// ignored. It reports false if a lease was lost. That lease does not come back, because somebody
// else may hold the permit, so what runs under it should stop. Call Extend a few times per
// Decision.Lease.
func (l *Limiter) Extend(ctx context.Context, holder string, needs ...Need) (bool, error) {
	return l.backend.extend(ctx, holder, needs)
}

// Free gives the holder's leases on concurrency limits back. It is no error if some have ended by
// themselves.
func (l *Limiter) Free(ctx context.Context, holder string, needs ...Need) error {
	return l.backend.free(ctx, holder, needs)
}

// Settle says what a call that was allowed has truly cost of a meter, such as tokens that were
// estimated. More is charged at once, and later calls wait for it. Less is given back, as far as
// that lets no more through than the limit guarantees. Nothing comes back that was taken an hour
// ago, or before the key's rate changed, and a SlidingLog keeps a debt of its N permits at most. A
// holder of a Concurrency limit holds as much as it costs from now on, at least one permit.
//
// The cost is the whole one, not the difference. It may be settled again: the last cost counts. The
// decision's Taken remembers it, so pass the decision on with that slice, and do not settle one
// call in two goroutines at once.
//
// After an error that wraps ErrUnavailable it is unknown whether the difference was charged: a
// repeated Settle can charge it twice, and never gives it back twice. A call that go-redis repeats
// charges once.
func (l *Limiter) Settle(ctx context.Context, d Decision, limit, key string, cost int) error {
	i := slices.IndexFunc(d.Taken, func(n Need) bool { return n.Limit == limit && n.Key == key })
	if i < 0 {
		return fmt.Errorf("settle: nothing was taken of limit %s for key %q", limit, key)
	}
	if cost < 0 || cost > maxPermits {
		return fieldError("cost", cost, "want 0 to %d of limit %s", maxPermits, limit)
	}
	return l.backend.settle(ctx, d, i, cost)
}

// Define makes the limits known as a config file does: a limit that is defined already in the same
// words stays as it is, even if Set has changed it since. All limits are checked before the first
// is made known. The words of single keys, Limit.Overrides, are compared apart from the limit's.
//
// In Redis the limits are written one after the other, a round trip each. If Redis fails in
// between, the limits before have changed; to call it again with all is safe. A change of a rate
// looks through the names of all keys of that Redis once.
func (l *Limiter) Define(ctx context.Context, limits ...Limit) error {
	if err := validate(limits...); err != nil {
		return err
	}
	return l.backend.define(ctx, limits)
}

// Set changes one limit, or makes it, at once and for every user of it. What was counted within its
// new period still counts, and what is owed leaks at the new rate from then on. Under another kind
// the meters start anew. Set ignores Limit.Overrides: single keys keep theirs. A later Define in
// the same words as before does not undo it; other words do, and a warning in the log says so.
func (l *Limiter) Set(ctx context.Context, limit Limit) error {
	if err := validate(limit); err != nil {
		return err
	}
	return l.backend.set(ctx, limit)
}

// SetKey makes one key of a limit count otherwise, at once and for every user of it, until the
// override ends, UnsetKey, or Delete of the limit. It holds for the kind that the limit has now. A
// cost above the key's capacity is Impossible, even if the override ends some time. What the key
// owes in permits stays owed.
func (l *Limiter) SetKey(ctx context.Context, limit, key string, o Override) error {
	if err := validMeter(limit, key); err != nil {
		return err
	}
	return l.backend.setKey(ctx, limit, key, o)
}

// UnsetKey makes the key count as the limit says again, whoever said otherwise. What adapting has
// learned of it stays; Reset forgets that. For a key that has no override it does nothing.
func (l *Limiter) UnsetKey(ctx context.Context, limit, key string) error {
	if err := validMeter(limit, key); err != nil {
		return err
	}
	return l.backend.unsetKey(ctx, limit, key)
}

// Keys lists the keys of a limit that differ from it, by name. A limit that does not exist has
// none.
func (l *Limiter) Keys(ctx context.Context, limit string) ([]KeyState, error) {
	return l.backend.keys(ctx, limit)
}

// Delete forgets a limit: whoever asks for it gets NoLimit. It stays deleted until Set or Define
// makes it again. Its meters stay as they are, so deleting a limit and making it again hands out
// nothing twice.
func (l *Limiter) Delete(ctx context.Context, name string) error { return l.backend.delete(ctx, name) }

// Limits lists all limits by name, with their defaults spelled out and without Overrides, which
// Keys lists. In Redis it takes a round trip, and one more for each limit.
func (l *Limiter) Limits(ctx context.Context) ([]Limit, error) { return l.backend.limits(ctx) }

// Pause stops a limit from handing out permits until Resume, over restarts and changes of the
// limit. Permits that are held can be extended and freed.
func (l *Limiter) Pause(ctx context.Context, name string) error {
	return l.backend.pause(ctx, name, true)
}

// Resume ends a Pause. What the meters counted before still counts.
func (l *Limiter) Resume(ctx context.Context, name string) error {
	return l.backend.pause(ctx, name, false)
}

// Block stops one key of a limit until a time, as when the upstream answered 429 with Retry-After.
// A time in the past unblocks the key. The block goes with its limit. The time is compared with the
// limiter's clock.
func (l *Limiter) Block(ctx context.Context, limit, key string, until time.Time) error {
	if err := validMeter(limit, key); err != nil {
		return err
	}
	return l.backend.block(ctx, limit, key, until)
}

// Blocked is a key of a limit that is blocked, by Block or by an upstream's answer.
type Blocked struct {
	Key string
	// Until is when the block ends by the limiter's clock, and For how far off that is.
	Until time.Time
	For   time.Duration
}

// Blocks lists the keys of a limit that are blocked now, in the order in which the blocks end. A
// limit that does not exist has none.
func (l *Limiter) Blocks(ctx context.Context, limit string) ([]Blocked, error) {
	return l.backend.blocks(ctx, limit)
}

// Reset makes the meter of a key as if never used, unblocks it, and forgets what adapting has
// learned of it. Leases are lost: their holders go on until they Extend, beside those who take the
// permits now.
func (l *Limiter) Reset(ctx context.Context, limit, key string) error {
	if err := validMeter(limit, key); err != nil {
		return err
	}
	return l.backend.reset(ctx, limit, key)
}

// Changes returns the last n entries of the changelog, the newest first. It keeps about 500, of all
// limits of the scope, those that are deleted too.
func (l *Limiter) Changes(ctx context.Context, n int) ([]Change, error) {
	return l.backend.changes(ctx, n)
}
