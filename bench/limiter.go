package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redis/redis_rate/v10"

	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/throttle"
	"github.com/headgate/headgate/throttle/throttletest"
)

type limiterCommand struct {
	Seconds    float64 `default:"1" help:"Length of one round."`
	Pairs      int     `default:"7" help:"Rounds of each, in turns. The ratio is the median of the pairs."`
	Goroutines int     `default:"32" help:"How many ask at once."`
	Hammer     float64 `default:"3" help:"Seconds for which each kind of limit is hammered to see what gets through."`
	JSON       bool    `name:"json" help:"Print one JSON array."`
}

// limiterRow is one limiter in one case. What does not apply is null.
type limiterRow struct {
	Case   string  `json:"case" table:"case"`
	System string  `json:"system" table:"system"`
	Ops    float64 `json:"ops_per_s" table:"checks/s,0"`
	Ratio  float64 `json:"ratio_to_redis_rate" table:"ratio to redis_rate,2"`
	Bytes  *int64  `json:"bytes_per_key" table:"bytes/key,0"`
	Over   *int    `json:"over" table:"over,0"`
}

// Run compares headgate with redis_rate: one limit, three limits at once, and every kind of limit.
func (c *limiterCommand) Run(b *bench) error {
	if c.Seconds <= 0 || c.Pairs < 1 || c.Goroutines < 1 || c.Hammer <= 0 {
		return errors.New("--seconds, --pairs, --goroutines, --hammer: want more than 0")
	}
	limiter := throttle.New(b.rdb, throttle.Options{Logger: silent})
	rate := redis_rate.NewLimiter(b.rdb)
	var rows []limiterRow
	for _, limits := range []int{1, 3} {
		pair, err := c.compare(b, display.Count(limits, "limit"), allowAll(limiter, roomyLimits(limits)...), rateEach(rate, limits))
		if err != nil {
			return err
		}
		rows = append(rows, pair...)
	}
	kindRows, err := c.kinds(b, limiter, rate)
	if err != nil {
		return err
	}
	return printRows(b, c.JSON, append(rows, kindRows...))
}

// check takes a permit that always exists, of one of many keys.
type check func(ctx context.Context, key string) error

var errDenied = errors.New("denied, although the limit is above what can be reached")

// roomy is a rate that the checks cannot reach.
const roomy = 1_000_000

// allowAll returns a function that defines the limits and returns a check. The check takes a
// permit of each limit, in one call.
func allowAll(limiter *throttle.Limiter, limits ...throttle.Limit) func(context.Context) (check, error) {
	return func(ctx context.Context) (check, error) {
		return func(ctx context.Context, key string) error {
			needs := make([]throttle.Need, len(limits))
			for i, limit := range limits {
				needs[i] = throttle.Need{Limit: limit.Name, Key: key}
			}
			return allowed(limiter.AllowAll(ctx, needs...))
		}, limiter.Define(ctx, limits...)
	}
}

// roomyLimits are limits that the checks cannot reach.
func roomyLimits(n int) (limits []throttle.Limit) {
	for i := range n {
		limit := limitOf(throttle.Funnel, roomy)
		limit.Name = fmt.Sprintf("roomy-%d", i)
		limits = append(limits, limit)
	}
	return limits
}

func allowed(d throttle.Decision, err error) error {
	if err == nil && !d.OK() {
		err = fmt.Errorf("%w: %s", errDenied, d)
	}
	return err
}

// rateEach is allowAll for redis_rate. The check calls redis_rate for one limit after the other.
func rateEach(limiter *redis_rate.Limiter, limits int) func(context.Context) (check, error) {
	limit := redis_rate.PerSecond(roomy)
	return func(context.Context) (check, error) {
		return func(ctx context.Context, key string) error {
			for i := range limits {
				result, err := limiter.Allow(ctx, fmt.Sprintf("roomy-%d|%s", i, key), limit)
				if err != nil {
					return err
				}
				if result.Allowed == 0 {
					return errDenied
				}
			}
			return nil
		}, nil
	}
}

// compare runs headgate and redis_rate in turns, and returns a row for each. ours and theirs are
// called before each round, and return the check that the round repeats.
func (c *limiterCommand) compare(b *bench, name string, ours, theirs func(context.Context) (check, error)) ([]limiterRow, error) {
	var us, them, ratios []float64
	for pair := range c.Pairs {
		mine, err := c.round(b, ours)
		if err != nil {
			return nil, fmt.Errorf("%s: headgate: %w", name, err)
		}
		other, err := c.round(b, theirs)
		if err != nil {
			return nil, fmt.Errorf("%s: redis_rate: %w", name, err)
		}
		us, them, ratios = append(us, mine), append(them, other), append(ratios, mine/other)
		b.note("limiter: %s, pair %d of %d: headgate %.0f checks/s, redis_rate %.0f", name, pair+1, c.Pairs, mine, other)
	}
	return []limiterRow{
		{Case: name, System: "headgate", Ops: median(us), Ratio: median(ratios)},
		{Case: name, System: "redis_rate", Ops: median(them), Ratio: 1},
	}, nil
}

// roundKeys is the number of keys that the checks of a round use.
const roundKeys = 1000

// round returns the checks a second of all goroutines together, from an empty Redis.
func (c *limiterCommand) round(b *bench, prepare func(context.Context) (check, error)) (float64, error) {
	if err := b.empty(); err != nil {
		return 0, err
	}
	check, err := prepare(b.ctx)
	if err != nil {
		return 0, err
	}
	length := time.Duration(c.Seconds * float64(time.Second))
	ctx, cancel := context.WithTimeoutCause(b.ctx, length, errTimeUp)
	defer cancel()
	var done atomic.Int64
	begin := time.Now()
	err = together(ctx, c.Goroutines, func(int) error {
		return check(b.ctx, fmt.Sprintf("key-%d", done.Add(1)%roundKeys))
	})
	return float64(done.Load()) / time.Since(begin).Seconds(), err
}

var errTimeUp = errors.New("the round is over")

// together calls f from several goroutines until the context ends with errTimeUp or f fails.
func together(ctx context.Context, goroutines int, f func(goroutine int) error) error {
	errs := make([]error, goroutines)
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for ctx.Err() == nil && errs[g] == nil {
				errs[g] = f(g)
			}
		})
	}
	wg.Wait()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, errTimeUp) {
		return cause
	}
	return errors.Join(errs...)
}

// kinds compares every kind of limit with redis_rate at the same rate. Both are judged by the
// guarantee of the kind, which redis_rate gives only for a funnel.
func (c *limiterCommand) kinds(b *bench, limiter *throttle.Limiter, rate *redis_rate.Limiter) ([]limiterRow, error) {
	rateAdmitted, err := b.hammerRate(c.Hammer)
	if err != nil {
		return nil, err
	}
	rateBytes, err := b.weighRate()
	if err != nil {
		return nil, err
	}
	var rows []limiterRow
	for _, kind := range kinds {
		rounds := *c
		rounds.Pairs = min(c.Pairs, 3)
		pair, err := rounds.compare(b, string(kind), allowAll(limiter, limitOf(kind, usedPermits)), rateEach(rate, 1))
		if err != nil {
			return nil, err
		}
		bytes, err := b.weigh(limiter, kind)
		if err != nil {
			return nil, err
		}
		admitted, err := b.hammerKind(limiter, kind, c.Hammer)
		if err != nil {
			return nil, err
		}
		limit := limitOf(kind, hammerPermits)
		pair[0].Bytes, pair[0].Over = &bytes, new(throttletest.Over(limit, admitted))
		pair[1].Bytes = &rateBytes
		if kind != throttle.Concurrency {
			pair[1].Over = new(throttletest.Over(limit, rateAdmitted))
		}
		b.note("limiter: %s at %d/s, hammered for %g s: headgate admits %d, redis_rate %d",
			kind, hammerPermits, c.Hammer, len(admitted), len(rateAdmitted))
		rows = append(rows, pair...)
	}
	return rows, nil
}
