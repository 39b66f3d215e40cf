// Package throttle decides whether a job may run.
//
// A limit is a named bound, such as 2000 a day. One limit and one key (a host,
// an account) make a meter, which hands out permits. A Limiter answers at once:
// allowed, with the permits taken, or denied, with how long until the same call
// could be allowed. Most callers want Allow; several limits at once are
// AllowAll, all or none.
//
// Redis is the limiter that all processes share, and Local the same within one.
// Package scheduler/lanes has queued jobs wait for permits, and package scheduler
// asynq's jobs.
package throttle

import (
	"context"
	"time"
)

// Limiter decides whether a call may go out now. [Redis] shares its meters among
// all processes; [Local] keeps them in this one. Both decide alike, to the
// microsecond, so what is tested with one holds for the other.
//
// A limit must be made known with Define or Set before it can be asked. Most
// callers then use Allow:
//
//	d, err := limiter.Allow(ctx, "api", host)
//	switch {
//	case err != nil:  // the limiter cannot be asked: say what that means to you
//	case d.OK():      // go: the permit is taken
//	default:          // come back in d.RetryAfter
//	}
//
// Costs are given with AllowN, several limits at once with AllowAll. Permits of a
// concurrency limit are held: Extend keeps them and Free gives them back, each
// with the Holder of the decision. No method waits: a denial says when to come
// back, and the caller decides whether to sleep, to queue or to give up. All are
// safe for concurrent use.
//
// Names and keys that cannot be, and numbers out of their bounds, are errors in
// which errors.As finds a [*FieldError]: a key has at most 200 bytes and no control
// characters. Nothing was changed then.
type Limiter interface {
	// Allow takes one permit of the limit for the key, if there is one. A denial
	// leaves nothing behind: it costs the key no later call.
	Allow(ctx context.Context, limit, key string) (Decision, error)
	// AllowN takes n permits at once, or none. With n = 0 it only looks. An n
	// above the capacity is Never, at once.
	AllowN(ctx context.Context, limit, key string, n int) (Decision, error)
	// AllowAll takes the permits of all needs in one step, or none of them: so a
	// call that one limit denies does not use up another. At least one need is
	// required, and each that says no Cost takes one permit.
	AllowAll(ctx context.Context, needs ...Need) (Decision, error)
	// Peek is AllowN with 0: what is left, and nothing changes. Look at Remaining.
	// The outcome is Denied while the limit is paused or the key blocked.
	Peek(ctx context.Context, limit, key string) (Decision, error)
	// Throttle is redis-cell's CL.THROTTLE: a limit given with the call, of count
	// permits per period and maxBurst more at once, of which it takes quantity.
	// Its keys are apart from those of limits with a name. Where the numbers for a
	// key change, what it owes stays owed, as with Set.
	Throttle(ctx context.Context, key string, maxBurst, count int, period time.Duration, quantity int) (Cell, error)

	// Extend renews the holder's leases on concurrency limits: each lasts from now
	// for as long as its limit says. The needs are those of the call that took them;
	// limits of another kind are passed over. It reports false if a lease was lost,
	// which then does not come back: somebody else may hold the permit, so what runs
	// under it should stop. Call it a few times per Decision.Lease.
	Extend(ctx context.Context, holder string, needs ...Need) (bool, error)
	// Free gives the holder's leases on concurrency limits back. That some have
	// ended by themselves is no error.
	Free(ctx context.Context, holder string, needs ...Need) error

	// Settle says what a call that was allowed has truly cost of a meter, such as
	// tokens that were estimated: more is charged at once, and later calls wait for
	// it; less is given back, as far as that lets no more through than the limit
	// guarantees. Nothing comes back that was taken an hour ago, or before the key's rate
	// changed, and a SlidingLog keeps a debt of its N permits at most. A holder of a
	// Concurrency limit holds as much as it costs from now on, one at least.
	//
	// The cost is the whole one, not the difference. It may be said again: the last one
	// counts. The decision's Taken remembers it, so who passes the decision on passes
	// that slice, and of one call two goroutines do not settle at once.
	Settle(ctx context.Context, d Decision, limit, key string, cost int) error

	// Define makes the limits known as a config file does: a limit that is
	// defined already in the same words stays as it is, even if Set changed
	// it since. All limits are checked before the first is made known. The words
	// of single keys, Limit.Overrides, are compared apart from the limit's.
	Define(ctx context.Context, limits ...Limit) error
	// Set changes one limit, or makes it, at once and for every user of it. What
	// was counted within its new period counts on, and what is owed leaks at the new
	// rate from then on.
	// Under another kind the meters start anew. What single keys count by stays:
	// Set takes no notice of Limit.Overrides.
	Set(ctx context.Context, limit Limit) error
	// SetKey has one key of a limit count otherwise, at once and for every user of
	// it, until the override ends, UnsetKey, or Delete of the limit. It holds for
	// the kind that the limit has now. A cost above the key's capacity is Never,
	// even where the override ends some time. What the key owes in permits stays owed.
	SetKey(ctx context.Context, limit, key string, o Override) error
	// UnsetKey has the key count as the limit says again, whoever said
	// otherwise. What adapting has learned of it stays, which Reset forgets. For a
	// key that counts as the limit says it does nothing.
	UnsetKey(ctx context.Context, limit, key string) error
	// Keys lists the keys of a limit that differ from it, by name. A limit that
	// does not exist has none.
	Keys(ctx context.Context, limit string) ([]KeyState, error)
	// Delete forgets a limit: who asks for it is answered NoLimit. Its meters stay
	// as they are, so that deleting a limit and making it again hands out nothing
	// twice.
	Delete(ctx context.Context, name string) error
	// Limits lists all limits by name, with their defaults spelled out and without
	// Overrides, which Keys lists.
	Limits(ctx context.Context) ([]Limit, error)
	// Pause stops a limit from handing out permits until Resume, over restarts and
	// changes of the limit. Permits that are held can be extended and freed.
	Pause(ctx context.Context, name string) error
	// Resume ends a Pause. What the meters counted before it counts on.
	Resume(ctx context.Context, name string) error
	// Block stops one key of a limit until a moment, as when the other side
	// answered 429 with Retry-After. A moment in the past unblocks it. The block
	// goes with its limit.
	Block(ctx context.Context, limit, key string, until time.Time) error
	// Reset makes the meter of a key as if never used, unblocks it, and forgets
	// what adapting has learned of it. Leases are lost: their holders go on until
	// they Extend, beside those who take the permits now.
	Reset(ctx context.Context, limit, key string) error
}
