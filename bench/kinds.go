package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-redis/redis_rate/v10"

	"github.com/headgate/headgate/throttle"
	"github.com/headgate/headgate/throttle/throttletest"
)

// kinds are all kinds of limits.
var kinds = []throttle.Kind{
	throttle.Funnel, throttle.TokenBucket, throttle.FixedWindow,
	throttle.SlidingLog, throttle.SlidingWindow, throttle.Concurrency,
}

func limitOf(kind throttle.Kind, permits int) throttle.Limit {
	limit := throttle.Limit{Name: string(kind), Kind: kind, Rate: throttle.PerSecond(permits)}
	switch kind {
	case throttle.Funnel, throttle.TokenBucket:
		limit.Capacity = permits
	case throttle.Concurrency:
		limit.Rate, limit.Capacity, limit.Lease = throttle.Rate{}, permits, time.Second
	}
	return limit
}

// hammerPermits is the rate a second that hammer exceeds.
const hammerPermits = 10

// hammer calls allow from several goroutines for that time, and returns the admissions. allow
// reports whether the call was admitted, and notes the time of the decision in the context's visit.
func (b *bench) hammer(seconds float64, allow func(context.Context) (bool, error)) ([]throttletest.Admission, error) {
	ctx, cancel := context.WithTimeoutCause(b.ctx, time.Duration(seconds*float64(time.Second)), errTimeUp)
	defer cancel()
	var mu sync.Mutex
	var admitted []throttletest.Admission
	return admitted, together(ctx, 4, func(int) error {
		visited, v := withVisit(b.ctx)
		ok, err := allow(visited)
		if ok {
			mu.Lock()
			defer mu.Unlock()
			admitted = append(admitted, throttletest.Admission{At: v.at, Cost: 1})
		}
		return err
	})
}

// hammerKind returns the admissions of one kind of limit.
func (b *bench) hammerKind(limiter *throttle.Limiter, kind throttle.Kind, seconds float64) ([]throttletest.Admission, error) {
	limit := limitOf(kind, hammerPermits)
	if err := limiter.Set(b.ctx, limit); err != nil {
		return nil, err
	}
	admitted, err := b.hammer(seconds, func(ctx context.Context) (bool, error) {
		d, err := limiter.Allow(ctx, limit.Name, "hammered")
		noteVisit(ctx, d.At)
		return d.OK(), err
	})
	if kind == throttle.Concurrency { // no process extends the leases
		for i := range admitted {
			admitted[i].Until = admitted[i].At + limit.Lease.Microseconds()
		}
	}
	return admitted, err
}

// hammerRate returns the admissions of redis_rate.
func (b *bench) hammerRate(seconds float64) ([]throttletest.Admission, error) {
	limiter, err := timedRate(b.ctx, b.rdb)
	if err != nil {
		return nil, err
	}
	return b.hammer(seconds, func(ctx context.Context) (bool, error) {
		result, err := limiter.Allow(ctx, "hammered", redis_rate.PerSecond(hammerPermits))
		return err == nil && result.Allowed > 0, err
	})
}

// usedPermits is how many permits of a meter are taken before its memory is measured. The memory of
// a sliding log and of a concurrency limit depends on this number.
const usedPermits = 1000

// weigh returns the memory of the key of one meter, name included, after usedPermits permits.
func (b *bench) weigh(limiter *throttle.Limiter, kind throttle.Kind) (int64, error) {
	limit := limitOf(kind, usedPermits)
	if kind == throttle.SlidingWindow {
		limit = limitOf(kind, 1_000_000)
	}
	if limit.Lease > 0 {
		limit.Lease = time.Minute
	}
	if err := limiter.Set(b.ctx, limit); err != nil {
		return 0, err
	}
	const key = "customer-12345"
	for begin, taken := time.Now(), 0; taken < usedPermits; {
		d, err := limiter.Allow(b.ctx, limit.Name, key)
		if err != nil {
			return 0, err
		}
		if d.OK() {
			taken++
		}
		if kind == throttle.SlidingWindow { // over a second, so that all of its parts are in use
			time.Sleep(time.Until(begin.Add(time.Duration(taken) * time.Second / usedPermits)))
		}
		time.Sleep(d.RetryAfter)
	}
	return b.memory("*" + string(kind) + "|" + key)
}

// weighRate returns the memory of redis_rate for one key.
func (b *bench) weighRate() (int64, error) {
	_, err := redis_rate.NewLimiter(b.rdb).Allow(b.ctx, "customer-12345", redis_rate.PerSecond(usedPermits))
	if err != nil {
		return 0, err
	}
	return b.memory("rate:customer-12345")
}

// memory returns the memory of the one key that matches a pattern.
func (b *bench) memory(pattern string) (int64, error) {
	keys, err := b.rdb.Keys(b.ctx, pattern).Result()
	if err != nil {
		return 0, err
	}
	if len(keys) != 1 {
		return 0, fmt.Errorf("keys like %s in Redis: there are %d (%s), want one", pattern, len(keys), strings.Join(keys, " "))
	}
	return b.rdb.MemoryUsage(b.ctx, keys[0], 0).Result()
}
