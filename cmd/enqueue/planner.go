package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/dial"
	"github.com/headgate/headgate/throttle"
)

// planner is whom a plan asks: Redis, and for limits of the config that are not
// in it yet a limiter that starts empty, as theirs will when a worker brings
// them.
type planner struct {
	redis  *throttle.Lanes // nil where no Redis is running
	fresh  *throttle.Lanes
	inFile map[string]bool // limits that only the config has
	close  func()
}

// newPlanner says on standard error what its times stand for.
func newPlanner(ctx context.Context, conf *config.Config, stdio cli.IO) (*planner, error) {
	p := &planner{inFile: map[string]bool{}, close: func() {}}
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
		p.close = func() { _ = rdb.Close() }
		p.redis = dial.Limiter(rdb, conf)
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
	if err := p.startFresh(ctx, conf); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// startFresh makes the limiter of those limits that Redis has never counted.
func (p *planner) startFresh(ctx context.Context, conf *config.Config) error {
	empty := miniredis.NewMiniRedis()
	rdb := redis.NewClient(&redis.Options{Dialer: func(context.Context, string, string) (net.Conn, error) {
		return empty.Dial()
	}})
	closeRedis := p.close
	p.close = func() { closeRedis(); _ = rdb.Close(); empty.Close() }
	p.fresh = dial.Limiter(rdb, conf)
	return p.fresh.Define(ctx, conf.Limits...)
}

// of is whom to ask about a limit.
func (p *planner) of(limit string) *throttle.Lanes {
	if p.redis == nil || p.inFile[limit] {
		return p.fresh
	}
	return p.redis
}

// capacity is that of a limit, and 0 if there is no such limit.
func (p *planner) capacity(ctx context.Context, n throttle.Need) (int, error) {
	look, err := p.of(n.Limit).Peek(ctx, n.Limit, n.Key)
	return look.Capacity, err
}

// forecast is Redis.Forecast for needs of both.
func (p *planner) forecast(ctx context.Context, needs []throttle.Need) ([]throttle.Forecast, error) {
	asked := map[*throttle.Lanes][]throttle.Need{}
	for _, n := range needs {
		asked[p.of(n.Limit)] = append(asked[p.of(n.Limit)], n)
	}
	var all []throttle.Forecast
	for limiter, needs := range asked {
		answers, err := limiter.Forecast(ctx, needs...)
		if err != nil {
			return nil, err
		}
		all = append(all, answers...)
	}
	return all, nil
}
