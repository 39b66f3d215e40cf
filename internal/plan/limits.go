package plan

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/dial"
	"github.com/headgate/headgate/internal/history"
	"github.com/headgate/headgate/scheduler/lanes"
	"github.com/headgate/headgate/throttle"
)

// limits is whom a plan asks: Redis, and of limits of the config that are not in it yet a
// limiter that starts empty, as theirs will when a worker brings them.
type limits struct {
	rdb    redis.UniversalClient // nil where no Redis is running
	redis  *lanes.Lanes
	fresh  *throttle.Local
	config []throttle.Limit
	inFile map[string]bool // limits that only the config has
}

// New begins a plan under the limits of a config, and of its Redis if there is one.
func New(ctx context.Context, conf *config.Config) (*Plan, error) {
	p := &Plan{capacity: map[string]int{}, limits: limits{inFile: map[string]bool{}, config: conf.Limits, fresh: &throttle.Local{App: conf.App}}}
	for _, l := range conf.Limits {
		p.limits.inFile[l.Name] = true
	}
	err := p.limits.dial(ctx, conf)
	switch {
	case errors.Is(err, dial.ErrNoRedis):
		p.Basis, err = "no worker is running: the times are those of one that starts now", nil
	case err == nil && len(p.limits.inFile) > 0:
		p.Basis = "not in Redis yet, so the times are those of a worker that brings it now: limit " +
			strings.Join(slices.Sorted(maps.Keys(p.limits.inFile)), ", ")
	}
	if err == nil {
		err = p.limits.fresh.Define(ctx, conf.Limits...)
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

func (l *limits) dial(ctx context.Context, conf *config.Config) (err error) {
	if l.rdb, err = dial.Config(ctx, conf); err != nil {
		return err
	}
	l.redis = dial.Limiter(l.rdb, conf)
	there, err := l.redis.Limits(ctx)
	for _, limit := range there {
		delete(l.inFile, limit.Name)
	}
	return err
}

func (l *limits) close() {
	if l.rdb != nil {
		_ = l.rdb.Close()
	}
}

// capacity is that of a limit, and 0 if there is no such limit.
func (l *limits) capacity(ctx context.Context, n throttle.Need) (int, error) {
	var limiter throttle.Limiter = l.fresh
	if l.redis != nil && !l.inFile[n.Limit] {
		limiter = l.redis
	}
	look, err := limiter.Peek(ctx, n.Limit, n.Key)
	return look.Capacity, err
}

func (l *limits) forecast(ctx context.Context, wants lanes.ForecastOptions) (*lanes.Forecast, error) {
	wants.Limits = l.config
	if l.redis == nil {
		return wants.Forecast(time.Now()), nil
	}
	return history.Forecast(ctx, l.redis, l.rdb, wants)
}
