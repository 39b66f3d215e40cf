package throttle

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/meter"
	"github.com/headgate/headgate/internal/safelog"
	"github.com/headgate/headgate/internal/script"
)

// The scripts that this package runs.
var (
	allowScript    = script.New("limits/allow")
	blockScript    = script.New("limits/block")
	blockForScript = script.New("limits/block_for")
	convertScript  = script.New("limits/convert")
	cellScript     = script.New("limits/cell")
	chargeScript   = script.New("limits/charge")
	defineScript   = script.New("limits/define")
	deleteScript   = script.New("limits/delete")
	edgesScript    = script.New("limits/edges")
	extendScript   = script.New("limits/extend")
	fileKeysScript = script.New("limits/file_keys")
	freeScript     = script.New("limits/free")
	noteScript     = script.New("limits/note")
	pauseScript    = script.New("limits/pause")
	fastPathScript = script.New("limits/fast_path")
	resetScript    = script.New("limits/reset")
	setKeyScript   = script.New("limits/set_key")
)

// shared is the backend that keeps its meters in Redis. Its exported methods are for the packages
// of this module.
type shared struct {
	rdb     redis.UniversalClient
	prefix  string // prefix of the names of the scope's Redis keys
	app     string
	log     *slog.Logger
	callers *script.Callers
	calls   *coalescer[call] // calls of Allow, AllowN and AllowAll
	fast    sync.Map         // the *fastLimit of each limit's name, as last read from Redis

	mu      sync.Mutex
	defined map[string]Limit // limits of earlier Define calls, by name
}

func newShared(rdb redis.UniversalClient, opts Options) *shared {
	s := &shared{
		rdb: rdb, prefix: script.Prefix(cmp.Or(opts.Scope, "default")), app: opts.App,
		log: safelog.New(cmp.Or(opts.Logger, slog.Default())), callers: script.NewCallers(),
		defined: map[string]Limit{},
	}
	s.calls = &coalescer[call]{send: s.sendAllow, undo: s.undo}
	return s
}

// Internals returns the backend of a limiter in Redis, for the packages of this module. It panics
// for a local limiter.
func (l *Limiter) Internals() *shared { return l.backend.(*shared) }

// Scope returns the limiter's Redis client, the prefix of its Redis keys, and its app.
func (s *shared) Scope() (rdb redis.UniversalClient, prefix, app string) {
	return s.rdb, s.prefix, s.app
}

// run runs a script on the scope's Redis keys.
func (s *shared) run(ctx context.Context, script *script.Script, args ...any) *redis.Cmd {
	return script.Run(ctx, s.rdb, []string{s.prefix}, args...)
}

// change runs a script that changes a limit. If the script replies 0, the limit does not exist, and
// change returns an error that wraps ErrNoLimit.
func (s *shared) change(ctx context.Context, limit string, script *script.Script, args ...any) error {
	found, err := s.run(ctx, script, args...).Int()
	if err == nil && found == 0 {
		return noLimit(limit)
	}
	return unavailable(err)
}

// call is a call of Allow, or a job's request for permits.
type call struct {
	needs    []Need
	Decision Decision
	TakenAt  time.Time // about when the permits were taken, by this process's clock; see script.Callers.When
	Err      error

	limits  []*fastLimit // the limit of each need; nil if the fast path cannot decide the call
	meters  []int        // index of each need's meter in the fastBatch
	decided bool         // true if the fast path decided the call; if false, it took nothing for the call

	holder string // holder of the call's leases, which runAllow sets
	reply  []any  // the full script's reply to the call
}

func (s *shared) allow(ctx context.Context, needs []Need) (Decision, error) {
	c := &call{needs: needs}
	if err := s.calls.do(ctx, c); err != nil {
		return Decision{}, unavailable(err)
	}
	return c.Decision, c.Err
}

// sendAllow decides calls of Allow by the fast path. For the calls that the fast path could not
// decide, it runs the full script.
func (s *shared) sendAllow(ctx context.Context, calls []*call) {
	s.tryFast(ctx, calls, false)
	calls = slices.DeleteFunc(calls, func(c *call) bool { return c.decided || c.Err != nil })
	for batch := range script.Batches(calls, func(c *call) int { return len(c.needs) }) {
		s.runAllow(ctx, batch)
		for _, c := range batch {
			c.Decision, _, c.Err = s.Decide(ctx, c.needs, func(ctx context.Context, try int) ([]any, string, error) {
				if try > 0 {
					s.runAllow(ctx, []*call{c})
				}
				return c.reply, c.holder, c.Err
			})
		}
	}
}

// runAllow runs the full script for calls. If the script fails because of corrupt data, runAllow
// sends each call alone.
func (s *shared) runAllow(ctx context.Context, calls []*call) {
	args := []any{s.app}
	for _, c := range calls {
		c.holder = rand.Text()
		args = append(args, c.holder, len(c.needs))
		for _, n := range c.needs {
			args = append(args, n.Limit, n.Key, n.Cost)
		}
	}
	replies, err := s.run(ctx, allowScript, args...).Slice()
	if len(calls) > 1 && script.IsCorrupt(err) {
		for _, c := range calls {
			s.runAllow(ctx, []*call{c})
		}
		return
	}
	for i, c := range calls {
		if c.Err = err; err == nil {
			c.reply = replies[i].([]any)
		}
	}
}

// undo gives back the permits of calls whose callers have given up. After an error the permits stay
// taken, which is safe.
func (s *shared) undo(ctx context.Context, calls []*call) {
	for _, c := range calls {
		if c.Decision.Holder != "" {
			_ = s.free(ctx, c.Decision.Holder, c.Decision.Taken)
		}
		for i := range c.Decision.Taken {
			_ = s.settle(ctx, c.Decision, i, 0)
		}
	}
}

// Decide calls ask, and returns the decision and the whole reply as integers. The function ask runs
// a script that replies as lua/limits/allow.lua does, and returns the reply and the holder of the
// call's leases. If a calendar ends or Redis has lost a limit, the script takes nothing. Decide
// then extends the calendar, or defines the limits again, and calls ask again, at most three times.
func (s *shared) Decide(
	ctx context.Context, needs []Need, ask func(ctx context.Context, try int) (reply []any, holder string, err error),
) (Decision, []int64, error) {
	for try := range 3 {
		reply, holder, err := ask(ctx, try)
		if err != nil {
			return Decision{}, nil, scriptError(needs, err)
		}
		again := false
		switch outcome := reply[0].(int64); {
		case outcome == staleCalendar:
			again, err = true, s.ExtendCalendars(ctx, strings.Fields(reply[1].(string)), reply[2].(int64))
		case outcome == int64(NoLimit) && reply[3].(int64) == 1:
			again, err = s.defineAgain(ctx, needs[reply[1].(int64)].Limit)
		}
		if err != nil {
			return Decision{}, nil, err
		}
		if !again {
			d, n := newDecision(reply, needs, holder)
			return d, n, nil
		}
	}
	return Decision{}, nil, errCalendar
}

// errCalendar is the error of Decide if each try found a stale calendar or a lost limit.
var errCalendar = fmt.Errorf("%w: limits change or are lost faster than this process can store them", ErrUnavailable)

// staleCalendar is an outcome that only scripts return. This process must extend a calendar, and
// then run the script again.
const staleCalendar = 6

func (s *shared) throttle(ctx context.Context, key string, l Limit, quantity int) (Decision, error) {
	reply, err := s.run(ctx, cellScript, key, l.Capacity, l.Rate.N, l.Rate.Per.Microseconds(), quantity).Int64Slice()
	if err != nil {
		return Decision{}, unavailable(err)
	}
	now := reply[1]
	d := Decision{
		Outcome: Outcome(reply[0]), Key: key, Cost: quantity, Capacity: l.Capacity, Remaining: int(reply[3]),
		At: time.UnixMicro(now), ResetAfter: microseconds(reply[4] - now),
	}
	if d.Outcome == Denied {
		d.RetryAfter = microseconds(reply[2] - now)
	}
	return d, nil
}

func (s *shared) extend(ctx context.Context, holder string, needs []Need) (time.Duration, error) {
	us, err := s.run(ctx, extendScript, appendMeters([]any{holder, meter.DefaultLease.Microseconds()}, needs)...).Int64()
	return microseconds(us), unavailable(err)
}

func (s *shared) free(ctx context.Context, holder string, needs []Need) error {
	return unavailable(s.run(ctx, freeScript, appendMeters([]any{holder}, needs)...).Err())
}

func (s *shared) settle(ctx context.Context, d Decision, i, cost int) error {
	c, done := s.callers.Next()
	defer done()
	t, mark := d.Taken[i], d.marks[i]
	d.Taken[i].Cost = min(t.Cost, cost) // stays if the script fails, so that a later Settle gives nothing back twice
	reply, err := s.Extended(ctx, func() ([]any, error) {
		return s.run(ctx, chargeScript, t.Limit, t.Key, d.At.UnixMicro(), t.Cost, cost, mark[0], mark[1], d.Holder, c.Name, c.Calls).Slice()
	})
	if err != nil {
		return scriptError([]Need{t}, err)
	}
	if reply[1].(int64) == 0 {
		return noLimit(t.Limit)
	}
	d.settled(i, cost, reply[2].(int64))
	return nil
}

func (s *shared) block(ctx context.Context, limit, key string, until time.Time) error {
	return s.change(ctx, limit, blockScript, limit, key, until.UnixMicro(), script.Actor(ctx))
}

func (s *shared) blocks(ctx context.Context, limit string) ([]Blocked, error) {
	ends, err := s.rdb.ZRangeWithScores(ctx, s.prefix+"blocked:"+limit, 0, -1).Result()
	if err != nil || len(ends) == 0 {
		return nil, unavailable(err)
	}
	now, err := s.rdb.Time(ctx).Result()
	if err != nil {
		return nil, unavailable(err)
	}
	var blocks []Blocked
	for _, end := range ends {
		if until := time.UnixMicro(int64(end.Score)); until.After(now) {
			key, _ := end.Member.(string)
			blocks = append(blocks, Blocked{key, until})
		}
	}
	return blocks, nil
}

// BlockFor blocks the meters of needs for the duration d by Redis's clock. It never shortens a
// block. BlockFor ignores limits that do not exist, and the costs of the needs.
func (s *shared) BlockFor(ctx context.Context, d time.Duration, needs ...Need) error {
	if _, err := normalize(needs); err != nil {
		return err
	}
	return unavailable(s.run(ctx, blockForScript, appendMeters([]any{min(d, maxFill).Microseconds()}, needs)...).Err())
}

func (s *shared) reset(ctx context.Context, limit, key string) error {
	return s.change(ctx, limit, resetScript, limit, key, script.Actor(ctx))
}
