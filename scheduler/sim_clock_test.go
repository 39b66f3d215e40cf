package scheduler

import (
	"context"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// simClock is the clock of a miniredis: it steps, forward and back, between any
// two calls of the clients that it is a hook of.
type simClock struct {
	redis *miniredis.Miniredis
	mu    sync.Mutex
	steps []clockStep
	ahead time.Duration // of the bubble's clock
	most  time.Duration // that it was ever ahead
}

type clockStep struct {
	at    time.Time
	ahead time.Duration
}

// stepsBack is how far the clock may fall behind what it showed.
const stepsBack = 59 * time.Second

// step moves the clock, and returns by how much. What ends at a time of the clock
// ends sooner or later then.
func (c *simClock) step(by time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	by = max(by, c.most-stepsBack-c.ahead)
	c.ahead += by
	c.most = max(c.most, c.ahead)
	c.steps = append(c.steps, clockStep{time.Now(), c.ahead})
	if by < 0 {
		c.redis.SetTime(time.Now().Add(c.ahead))
		c.redis.FastForward(by)
	}
	return by
}

// now is how far the clock is ahead, and whether it has not stepped since.
func (c *simClock) now(since time.Time) (ahead time.Duration, steady bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ahead, len(c.steps) == 0 || c.steps[len(c.steps)-1].at.Before(since)
}

// reaches is when the clock shows a moment or more, from one of the bubble's on.
func (c *simClock) reaches(moment, from time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	ahead := time.Duration(0)
	for _, s := range c.steps {
		if at := latest(from, moment.Add(-ahead)); at.Before(s.at) {
			return at
		}
		from, ahead = latest(from, s.at), s.ahead
	}
	return latest(from, moment.Add(-ahead))
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (c *simClock) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *simClock) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.set()
		return next(ctx, cmds)
	}
}

func (c *simClock) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.set()
		return next(ctx, cmd)
	}
}

// set has miniredis, which takes its time as it is told, go on.
func (c *simClock) set() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.steps) > 0 {
		c.redis.SetTime(time.Now().Add(c.ahead))
	}
}
