// Package throttle decides whether a job may run.
//
// A limit is a named bound, such as 2000 a day. One limit and one key (a host, an account) make a
// meter, which hands out permits. A Limiter decides at once. It allows a call and takes its
// permits, or denies the call and returns the time until the call could be allowed. Most callers
// need only Allow. AllowAll takes permits of several limits at once, all or none.
//
// New returns a limiter whose meters all processes share through Redis, NewLocal one for a single
// process. Package scheduler makes asynq's jobs wait for their permits.
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

// Limiter decides whether a call may be made now. Limiters of New and NewLocal make the same
// decisions to the microsecond, so a test with one kind is valid for the other.
//
// Define or Set must define a limit before the first call that needs the limit. Most callers use
// Allow:
//
//	d, err := limiter.Allow(ctx, "api", host)
//	switch {
//	case err != nil:  // no decision: decide whether to wait or to go on without a limit
//	case d.OK():      // go: the permit is taken
//	default:          // request again after d.RetryAfter
//	}
//
// No method waits. All methods are safe for concurrent use. An invalid argument changes nothing and
// returns an error in which errors.As finds a [*FieldError]. A key has at most 200 bytes and no
// control characters. A method that changes a limit returns an error that wraps [ErrNoLimit] if the
// limit does not exist.
//
// # In Redis
//
// A call takes one round trip. Concurrent calls share round trips. Redis needs O(1) time for each
// need, or O(log n) for sliding logs and concurrency limits. All times are Redis's own, so the
// clocks of the processes do not matter.
//
// Errors that wrap [ErrUnavailable] mean that Redis was not reached, did not answer, or answered
// with an error. If go-redis repeats a call whose reply was lost, permits can be taken twice. If
// the context of an Allow call ends, the call takes nothing, or the limiter gives its permits back
// when the reply comes.
//
// An unused key costs no memory. If Redis loses its data, the next call of this process that needs
// a lost limit repeats the process's earlier Define calls.
//
// # In the process
//
// A local limiter loses its state when the process ends. All calls share one lock, and ignore their
// contexts. A local limiter keeps no changelog, and its limits do not adapt.
type Limiter struct{ backend backend }

// backend is where a Limiter keeps its meters. The Limiter checks the arguments before it calls the
// backend.
type backend interface {
	allow(ctx context.Context, needs []Need) (Decision, error)
	throttle(ctx context.Context, key string, l Limit, quantity int) (Decision, error)
	extend(ctx context.Context, holder string, needs []Need) (time.Duration, error)
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

// Options configure a limiter. The zero value is valid: it means the scope "default" and no app.
type Options struct {
	// Scope names a set of limits in Redis. Limiters of one scope share their limits and meters. In
	// a Redis Cluster a scope is on one node, so several scopes spread the load. The scope is part
	// of every key's name, in braces, and must not contain braces.
	Scope string
	// App is the name of this program in the Apps of limits. The zero value means that the limiter
	// may use only limits without Apps.
	App string
	// Logger receives a warning if Define replaces a limit that was changed with Set, and if Redis
	// has lost its limits. The zero value means slog.Default.
	Logger *slog.Logger
	// Clock returns the time for a local limiter. It may step back by up to a minute, and must not
	// call the limiter, which calls Clock while it holds its lock. The zero value means time.Now.
	Clock func() time.Time
}

// New returns a limiter that keeps its meters in rdb: a single Redis, one behind a sentinel, or a
// cluster. New itself sends no command. The caller closes rdb after the last use of the limiter.
func New(rdb redis.UniversalClient, opts Options) *Limiter { return &Limiter{newShared(rdb, opts)} }

// NewLocal returns a limiter that keeps its meters in this process.
func NewLocal(opts Options) *Limiter { return &Limiter{newLocal(opts)} }

// Allow takes one permit of the limit for the key, if one is free. A denial changes nothing.
func (l *Limiter) Allow(ctx context.Context, limit, key string) (Decision, error) {
	return l.AllowN(ctx, limit, key, 1)
}

// AllowN takes n permits at once, or none. With n = 0 it only reads the meter: the outcome is
// Denied while the limit is paused or the key is blocked. If n is above the capacity, the outcome
// is Impossible.
//
// Jobs of package scheduler come first: AllowN takes no permits that are reserved for jobs, or that
// waiting jobs need.
func (l *Limiter) AllowN(ctx context.Context, limit, key string, n int) (Decision, error) {
	needs, err := normalize([]Need{{limit, key, n}})
	if err != nil {
		return Decision{}, err
	}
	return l.backend.allow(ctx, needs)
}

// AllowAll takes the permits of all needs in one step, or none of them. So if one limit denies the
// call, the call takes no permits of the other limits. At least one need is required. A need
// without a Cost takes one permit, and needs of the same limit and key are added up.
func (l *Limiter) AllowAll(ctx context.Context, needs ...Need) (Decision, error) {
	needs, err := Normalize(needs...)
	if err != nil {
		return Decision{}, err
	}
	return l.backend.allow(ctx, needs)
}

// Throttle is redis-cell's CL.THROTTLE: it takes quantity permits, or none. The call itself defines
// the limit: count permits per period, with bursts of up to maxBurst+1. Its keys are separate from
// the keys of named limits. If the rate for a key changes, permits in use stay in use.
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

// Extend renews the leases of a call on concurrency limits, each for the full Lease of its limit.
// holder is the call's Decision.Holder, and needs are the call's needs. Extend returns the time until
// the first of these leases ends, or 0 if a lease was lost: another holder may have the permit, so
// the caller should stop.
//
// Call Extend a few times in that time, which is Decision.Lease before the first call, and differs
// from it if the Lease of a limit has changed since. Extend never shortens a lease. If a limit was
// deleted, its lease is extended for the default Lease.
func (l *Limiter) Extend(ctx context.Context, holder string, needs ...Need) (time.Duration, error) {
	return l.backend.extend(ctx, holder, needs)
}

// Free gives back the leases of a call on concurrency limits, with the arguments of Extend. It
// ignores leases that have ended.
func (l *Limiter) Free(ctx context.Context, holder string, needs ...Need) error {
	return l.backend.free(ctx, holder, needs)
}

// Settle corrects the cost of an allowed call on one meter, such as an estimated number of tokens.
// If the cost is higher, the difference is charged at once, and later calls wait for it. If it is
// lower, the difference is given back, as far as the limit's guarantee holds. Nothing is given back
// if the call was more than an hour ago, or if the limit or the key's rate has changed since the
// call. Settle charges a SlidingLog at most the free permits and N more. A lease on a Concurrency
// limit gets as many permits as the cost, and at least one.
//
// The parameter cost is the whole cost, not the difference. A call may be settled several times:
// the last cost counts. Settle stores the cost in the decision's Taken, so keep that slice with the
// decision, and do not settle one call in two goroutines at once. After an error that wraps
// ErrUnavailable a repeated Settle can charge the difference twice, and never gives it back twice.
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

// Define defines limits as a config file does. If a definition equals that of the last Define,
// Define leaves the limit as it is, even if Set has changed the limit in between. The Overrides of
// each key are compared separately. Define checks all limits before it writes the first. It writes
// them to Redis one after the other; after an error, call it again with all limits. A change of a
// rate scans the names of all keys of the Redis server.
func (l *Limiter) Define(ctx context.Context, limits ...Limit) error {
	if err := validate(limits...); err != nil {
		return err
	}
	return l.backend.define(ctx, limits)
}

// Set creates or changes one limit at once, for all processes. Permits in use stay in use, and
// become available at the new rate. If the period of a FixedWindow becomes longer, only the permits
// of the last old window are in use. After a change of the kind, all permits are available. Set
// ignores Limit.Overrides: keys keep their overrides. A later Define with a changed definition
// undoes Set, and logs a warning.
func (l *Limiter) Set(ctx context.Context, limit Limit) error {
	if err := validate(limit); err != nil {
		return err
	}
	return l.backend.set(ctx, limit)
}

// SetKey overrides the rate or capacity of one key at once, for all processes, until UnsetKey or
// Delete removes the override. The override applies only while the limit has its present kind. The
// number of permits in use does not change.
func (l *Limiter) SetKey(ctx context.Context, limit, key string, o Override) error {
	if err := validMeter(limit, key); err != nil {
		return err
	}
	return l.backend.setKey(ctx, limit, key, o)
}

// UnsetKey removes the override of a key, whether SetKey or Define has set it. It does nothing if
// the key has no override. If the limit adapts, the key keeps the pace to which it has adapted.
// Reset discards that pace.
func (l *Limiter) UnsetKey(ctx context.Context, limit, key string) error {
	if err := validMeter(limit, key); err != nil {
		return err
	}
	return l.backend.unsetKey(ctx, limit, key)
}

// Keys lists the keys that differ from the limit, sorted by name: keys with an override or an
// adapted rate, and keys whose last calls were rate limited. It returns no keys if the limit does
// not exist.
func (l *Limiter) Keys(ctx context.Context, limit string) ([]KeyState, error) {
	return l.backend.keys(ctx, limit)
}

// Delete deletes a limit. Until Set or Define creates the limit again, calls that need it get
// NoLimit. The meters stay, so deleting and creating a limit hands out no permit twice.
func (l *Limiter) Delete(ctx context.Context, name string) error { return l.backend.delete(ctx, name) }

// Limits lists all limits, sorted by name, with the defaults of Capacity and Lease filled in.
// Overrides are empty: see Keys. In Redis it takes a round trip, and one more for each limit.
func (l *Limiter) Limits(ctx context.Context) ([]Limit, error) { return l.backend.limits(ctx) }

// Pause stops a limit until Resume. The pause survives restarts and changes of the limit. Leases
// can still be extended and freed.
func (l *Limiter) Pause(ctx context.Context, name string) error {
	return l.backend.pause(ctx, name, true)
}

// Resume ends a pause. Permits that were taken before the pause still count.
func (l *Limiter) Resume(ctx context.Context, name string) error {
	return l.backend.pause(ctx, name, false)
}

// Block stops one key of a limit until a time by the limiter's clock, for example after a response
// 429 with Retry-After. A time in the past unblocks the key. Deleting the limit removes the block.
func (l *Limiter) Block(ctx context.Context, limit, key string, until time.Time) error {
	if err := validMeter(limit, key); err != nil {
		return err
	}
	return l.backend.block(ctx, limit, key, until)
}

// Blocked is a key of a limit that is blocked, by Block or by an upstream's response.
type Blocked struct {
	Key string
	// Until is the end of the block by the limiter's clock.
	Until time.Time
}

// Blocks lists the keys of a limit that are blocked now, in the order in which the blocks end. It
// returns none if the limit does not exist.
func (l *Limiter) Blocks(ctx context.Context, limit string) ([]Blocked, error) {
	return l.backend.blocks(ctx, limit)
}

// Reset makes all permits of a key available, unblocks the key, and discards the pace to which the
// key has adapted. Leases are lost: their holders notice it when they Extend.
func (l *Limiter) Reset(ctx context.Context, limit, key string) error {
	if err := validMeter(limit, key); err != nil {
		return err
	}
	return l.backend.reset(ctx, limit, key)
}

// Changes returns the last n entries of the scope's changelog, newest first. The changelog keeps
// about 500 entries, and includes deleted limits.
func (l *Limiter) Changes(ctx context.Context, n int) ([]Change, error) {
	return l.backend.changes(ctx, n)
}
