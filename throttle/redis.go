package throttle

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/script"
)

// Redis is the Limiter whose meters every process shares. Each call is one script
// in Redis: it reads all meters that are needed, takes from all or none, and
// answers, so no two processes ever see the same permit.
//
// All times are Redis's own, so the clocks of the processes do not matter. A call
// takes a round trip, and O(1) of Redis's time for each need: O(log n) for
// sliding logs and concurrency limits. It never waits for a permit; queued jobs can, with package
// scheduler/lanes.
//
// Errors that wrap [ErrUnavailable] mean that Redis was not reached or did not
// answer: what to do then, to wait or to go on without limits, is for the caller
// to say. Only the client that New was given tries calls again. Where it repeats one
// whose answer got lost, permits can be taken twice; a job that asks with package
// scheduler/lanes knows its repeats. A call of Allow whose context ends takes nothing, or
// gives back what it took once its answer comes.
//
// What is counted lives as long as it matters and a minute more, so an unused key
// costs no memory. If Redis loses its data, limits that Define was told are made
// known again by the next call that misses one.
type Redis struct {
	rdb    redis.UniversalClient
	keys   []string // KEYS of every script: the prefix
	prefix string
	app    string
	log    *slog.Logger

	callers    *script.Callers
	plains     plains
	plainCalls *together[plainCall]
	allowCalls *together[allowCall]

	mu   sync.Mutex
	told map[string]Limit // what Define was told, by name
}

var _ Limiter = (*Redis)(nil)

// RedisOptions are optional: the zero value is a limiter of the scope
// "default" that asks as no app. Limiters of one scope share their limits, those of
// two scopes nothing.
type RedisOptions struct {
	// Scope names a set of limits that can be asked for together. In a Redis
	// Cluster a scope lives on one node; more scopes spread the load. It is part of
	// every key's name, in braces, and so has none itself.
	Scope string
	// App is the name that limits list under Apps. The zero value is an app that
	// none of them lists: it may use only limits that are for all.
	App string
	// Logger hears when a config file overrides what was set at run time. The
	// zero value means slog.Default.
	Logger *slog.Logger
}

// New returns the limiter that keeps its meters in rdb: a single Redis, one behind
// a sentinel, or a cluster. It sends nothing yet, and rdb is the caller's to close.
func New(rdb redis.UniversalClient, opts RedisOptions) *Redis {
	if opts.Scope == "" {
		opts.Scope = "default"
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	prefix := script.Prefix(opts.Scope)
	r := &Redis{
		rdb: rdb, keys: []string{prefix}, prefix: prefix, app: opts.App, log: opts.Logger, callers: script.NewCallers(),
		told: map[string]Limit{}, plains: plains{known: map[string]*plainLimit{}},
	}
	r.plainCalls = &together[plainCall]{send: r.allowPlainly, undo: r.undoPlain}
	r.allowCalls = &together[allowCall]{send: r.sendAllows, undo: r.undoAllows}
	return r
}

// Scope is where the limiter's keys are: the client, and what their names begin with.
// Whoever waits for its permits is kept beside them.
func (r *Redis) Scope() (rdb redis.UniversalClient, prefix string) { return r.rdb, r.prefix }

// App is the app that it asks as.
func (r *Redis) App() string { return r.app }

// known runs a script that replies 0 where the limit does not exist, which is an
// error that wraps ErrNoLimit.
func (r *Redis) known(ctx context.Context, limit string, script *script.Script, args ...any) error {
	found, err := r.run(ctx, script, args...).Int()
	if err != nil {
		return unavailable(err)
	}
	if found == 0 {
		return noLimit(limit)
	}
	return nil
}

// run runs a script.
func (r *Redis) run(ctx context.Context, script *script.Script, args ...any) *redis.Cmd {
	return script.Run(ctx, r.rdb, r.keys, args...)
}

// Allow implements Limiter: AllowN with 1.
func (r *Redis) Allow(ctx context.Context, limit, key string) (Decision, error) {
	return r.AllowAll(ctx, Need{limit, key, 1})
}

// AllowN implements Limiter. It leaves permits alone that are reserved for called
// jobs, and where a lane waits all that those who wait there want: Remaining is what is
// left beside that, and RetryAfter when it would be the caller's turn if nobody else came.
func (r *Redis) AllowN(ctx context.Context, limit, key string, n int) (Decision, error) {
	return r.allow(ctx, []Need{{limit, key, n}})
}

// AllowAll implements Limiter. Needs of the same limit and key are added up; a
// need without a cost is one permit.
func (r *Redis) AllowAll(ctx context.Context, needs ...Need) (Decision, error) {
	return r.allow(ctx, withCosts(needs))
}

// Peek implements Limiter.
func (r *Redis) Peek(ctx context.Context, limit, key string) (Decision, error) {
	return r.AllowN(ctx, limit, key, 0)
}

// allow asks about needs whose costs may be 0, which only looks.
func (r *Redis) allow(ctx context.Context, needs []Need) (Decision, error) {
	needs, err := normalize(needs)
	if err != nil {
		return Decision{}, err
	}
	if p := r.takePlainly(ctx, needs); p.Decided || p.Err != nil {
		return p.Decision, p.Err
	}
	call := &allowCall{needs: needs, holder: r.callers.Unique()}
	return r.Decide(ctx, needs, func(ctx context.Context) ([]any, string, error) {
		again := *call // the reply of an earlier try is not this one's
		if err := r.allowCalls.do(ctx, &again); err != nil {
			return nil, "", err
		}
		return again.reply, again.holder, again.err
	})
}

// allowCall is a call of Allow that the plain way could not decide.
type allowCall struct {
	needs  []Need
	holder string

	reply []any
	err   error
}

// sendAllows sends calls in one script, or in several if they need many meters.
func (r *Redis) sendAllows(ctx context.Context, calls []*allowCall) {
	for some := range script.Batches(calls, func(c *allowCall) int { return len(c.needs) }) {
		r.sendSomeAllows(ctx, some)
	}
}

func (r *Redis) sendSomeAllows(ctx context.Context, calls []*allowCall) {
	args := []any{r.app}
	for _, c := range calls {
		args = append(args, c.holder, len(c.needs))
		for _, n := range c.needs {
			args = append(args, n.Limit, n.Key, n.Cost)
		}
	}
	replies, err := r.run(ctx, allowScript, args...).Slice()
	if len(calls) > 1 && script.IsDamage(err) {
		for _, c := range calls {
			r.sendSomeAllows(ctx, []*allowCall{c})
		}
		return
	}
	for i, c := range calls {
		if c.err = err; err == nil {
			c.reply = replies[i].([]any)
		}
	}
}

// Decide asks for the reply of a script that decides as lua/limits/allow.lua does, and
// whose leases are in it, and makes a decision of it. Where that says that a calendar
// ends, it extends the calendar and asks again; where it says that Redis lost a limit, it
// defines the limits again and asks once more. Neither has taken anything, so to ask
// again is safe. Three tries are enough for one of each; what needs more is in a race with
// somebody who changes the limit all the time.
//
// It is for scripts of other packages, such as those of scheduler/lanes.
func (r *Redis) Decide(
	ctx context.Context, needs []Need, ask func(context.Context) (reply []any, holder string, err error),
) (Decision, error) {
	for range 3 {
		reply, holder, err := ask(ctx)
		if err != nil {
			return Decision{}, unusable(needs, err)
		}
		switch outcome := reply[0].(int64); {
		case outcome == int64(NoLimit) && reply[3].(int64) == 1:
			again, err := r.defineAgain(ctx, needs[reply[1].(int64)].Limit)
			if err != nil {
				return Decision{}, err
			}
			if again {
				continue
			}
			fallthrough
		case outcome != stale:
			return decision(reply, needs, holder), nil
		}
		names := strings.Fields(reply[1].(string))
		if err := r.ExtendCalendars(ctx, names, reply[2].(int64)); err != nil {
			return Decision{}, err
		}
	}
	return Decision{}, errCalendar
}

// errCalendar is the error where others change a limit each time that its
// calendar has been extended.
var errCalendar = fmt.Errorf("%w: the calendar of a limit changes faster than it can be stored", ErrUnavailable)

// stale is the scripts' own outcome, past the last of Outcome: a calendar must be
// extended first.
const stale = 6

// decision reads a script's reply: outcome, index of the need that decided, now,
// ready at, remaining, full at, capacity, and the lease or how long to put the job
// back for. Moments are microseconds of Redis's clock, and become lengths of time
// here, so that this process's clock does not matter.
//
// What follows depends on the outcome: of a job that waits, whether anybody knows when
// it will run; of an allowed call, whether the limiter is to hear how it goes, the mark
// of each need, and of a job that waited since when, how often it was denied, and since
// when its permits were reserved or 0. Allow's denials end
// before that, and those that are Never or NoLimit sooner.
func decision(reply []any, needs []Need, holder string) Decision {
	n := make([]int64, max(9, len(reply)))
	for i := range reply {
		n[i] = reply[i].(int64)
	}
	need := needs[n[1]]
	d := Decision{
		Outcome: Outcome(n[0]), Limit: need.Limit, Key: need.Key, Cost: need.Cost,
		At: time.UnixMicro(n[2]), Remaining: int(n[4]), Capacity: int(n[6]),
	}
	if d.Outcome == NoLimit {
		d.ForOthers = n[3] == 2
		return d
	}
	if d.Outcome == Denied {
		d.RetryAfter, d.PutBack = microseconds(max(0, n[3]-n[2])), microseconds(n[7])
		d.Unknown = len(reply) > 8 && n[8] == 0
	}
	if d.Outcome == Allowed {
		d.At, d.BeginIn = time.UnixMicro(min(n[2], n[3])), microseconds(max(0, n[3]-n[2]))
	}
	if d.Outcome == Allowed && len(reply) > 8 {
		d.Heard = n[8] == 1
		for i, need := range needs {
			if need.Cost > 0 {
				d.Taken = append(d.Taken, Taken{need, mark(n[9+2*i:])})
			}
		}
		if waited := n[9+2*len(needs):]; len(waited) > 0 {
			d.Waited, d.Denials = microseconds(min(n[2], n[3])-waited[0]), int(waited[1])
			if d.Late = -1; waited[2] > 0 {
				d.Late = microseconds(n[2] - waited[2])
			}
		}
	}
	if d.Outcome != Denied && n[7] > 0 {
		d.Holder, d.Lease = holder, microseconds(n[7])
	}
	if n[5] > 0 {
		d.ResetAfter = microseconds(max(0, n[5]-n[2]))
	}
	return d
}

// Throttle implements Limiter.
func (r *Redis) Throttle(ctx context.Context, key string, maxBurst, count int, period time.Duration, quantity int) (Cell, error) {
	if err := validCell(key, maxBurst, count, period, quantity); err != nil {
		return Cell{}, err
	}
	reply, err := r.run(ctx, cellScript, key, maxBurst+1, count, period.Microseconds(), quantity).Int64Slice()
	if err != nil {
		return Cell{}, unavailable(err)
	}
	return newCell(Outcome(reply[0]), maxBurst+1, reply[1], reply[2], reply[3], reply[4]), nil
}

// Extend implements Limiter. Leases last from now on for as long as their limit
// says; those that have ended are not brought back.
func (r *Redis) Extend(ctx context.Context, holder string, needs ...Need) (bool, error) {
	held, err := r.run(ctx, extendScript, appendMeters([]any{holder}, needs)...).Int()
	return held == 1, unavailable(err)
}

// Free implements Limiter. A holder that holds nothing any more is no error: its
// leases may have ended by themselves.
func (r *Redis) Free(ctx context.Context, holder string, needs ...Need) error {
	return unavailable(r.run(ctx, freeScript, appendMeters([]any{holder}, needs)...).Err())
}

// Settle implements Limiter. It fails with an error that wraps ErrNoLimit where the
// limit is gone, a [*FieldError] for a cost out of bounds, and where the decision took
// nothing of that meter. After one that wraps ErrUnavailable nobody knows whether the
// difference was charged: said again, it can be charged twice, and is never given back
// twice. A call that go-redis repeats, because its answer got lost, charges once.
func (r *Redis) Settle(ctx context.Context, d Decision, limit, key string, cost int) error {
	t, err := d.settles(limit, key, cost)
	if err != nil {
		return err
	}
	c := r.callers.Next()
	defer r.callers.Done(c)
	was := t.Cost
	t.Cost = min(was, cost) // whatever becomes of the call
	reply, err := r.runExtended(ctx, chargeScript, limit, key, d.At.UnixMicro(), was, cost, t.Mark[0], t.Mark[1], d.Holder, c.Name, c.Calls)
	if err != nil {
		return unusable([]Need{t.Need}, err)
	}
	if reply[1].(int64) == 0 {
		return noLimit(limit)
	}
	t.charged(cost, reply[2].(int64))
	return nil
}
