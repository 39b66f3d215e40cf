package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/dial"
	"github.com/headgate/headgate/internal/history"
	"github.com/headgate/headgate/throttle"
)

// planner is whom a plan asks: Redis, and of limits of the config that are not in it yet
// a limiter that starts empty, as theirs will when a worker brings them.
type planner struct {
	rdb    redis.UniversalClient // nil where no Redis is running
	redis  *throttle.Lanes
	fresh  *throttle.Local
	limits []throttle.Limit
	inFile map[string]bool // limits that only the config has
}

// newPlanner says on standard error what its times stand for.
func newPlanner(ctx context.Context, conf *config.Config, stdio cli.IO) (*planner, error) {
	p := &planner{inFile: map[string]bool{}, limits: conf.Limits, fresh: &throttle.Local{App: conf.App}}
	for _, l := range conf.Limits {
		p.inFile[l.Name] = true
	}
	rdb, err := dial.Config(ctx, conf)
	switch {
	case errors.Is(err, dial.ErrNoRedis):
		fmt.Fprintln(stdio.Err, "enqueue: no worker is running: the times are those of one that starts now")
	case err != nil:
		return nil, err
	default:
		p.rdb, p.redis = rdb, dial.Limiter(rdb, conf)
		limits, err := p.redis.Limits(ctx)
		if err != nil {
			p.close()
			return nil, err
		}
		for _, l := range limits {
			delete(p.inFile, l.Name)
		}
		if len(p.inFile) > 0 {
			fmt.Fprintf(stdio.Err, "enqueue: not in Redis yet, so the times are those of a worker that brings it now: limit %s\n",
				strings.Join(slices.Sorted(maps.Keys(p.inFile)), ", "))
		}
	}
	if err := p.fresh.Define(ctx, conf.Limits...); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *planner) close() {
	if p.rdb != nil {
		_ = p.rdb.Close()
	}
}

// capacity is that of a limit, and 0 if there is no such limit.
func (p *planner) capacity(ctx context.Context, n throttle.Need) (int, error) {
	var limiter throttle.Limiter = p.fresh
	if p.redis != nil && !p.inFile[n.Limit] {
		limiter = p.redis
	}
	look, err := limiter.Peek(ctx, n.Limit, n.Key)
	return look.Capacity, err
}

// forecast is when the jobs of a plan would run, behind all that wait.
func (p *planner) forecast(ctx context.Context, plan throttle.ForecastOptions) (*throttle.Forecast, error) {
	plan.Limits = p.limits
	if p.redis == nil {
		return plan.Forecast(time.Now()), nil
	}
	return history.Forecast(ctx, p.redis, p.rdb, plan)
}
