package main

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/history"
	"github.com/headgate/headgate/throttle"
)

// topSource is what top shows and does.
type topSource interface {
	look(ctx context.Context, chosen string) (topView, error)
	job(ctx context.Context, id string) ([][2]string, error)
	set(ctx context.Context, limit throttle.Limit) error
	pause(ctx context.Context, limit string, paused bool) error
}

// topView is how all limits are at one moment.
type topView struct {
	limits []topLimit
	chosen string             // the limit whose keys are
	keys   []throttle.Backlog // those that most permits are wanted of first
}

// topLimit is how a limit is.
type topLimit struct {
	throttle.Limit
	state           string
	allowed, denied float64 // a second
	waiting         summary
}

// topRedis is the limits in Redis.
type topRedis struct{ *queues }

func (r topRedis) look(ctx context.Context, chosen string) (topView, error) {
	limits, err := r.limiter.Limits(ctx)
	if err != nil {
		return topView{}, err
	}
	rates, err := r.rates(ctx)
	if err != nil {
		return topView{}, err
	}
	view := topView{chosen: chosen}
	for _, l := range limits {
		blocks, err := r.limiter.Blocks(ctx, l.Name)
		if err != nil {
			return view, err
		}
		s, err := summarize(ctx, r.limiter, l.Name)
		if err != nil {
			return view, err
		}
		of := rates[l.Name]
		view.limits = append(view.limits, topLimit{
			Limit: l, state: newDefinition(l, blocks, nil).state(), waiting: s,
			allowed: float64(of.Allowed) / recently.Seconds(), denied: float64(of.Denied) / recently.Seconds(),
		})
	}
	if chosen == "" && len(limits) > 0 {
		view.chosen = limits[0].Name
	}
	view.keys, err = r.limiter.Backlogs(ctx, view.chosen)
	slices.SortStableFunc(view.keys, func(a, b throttle.Backlog) int { return cmp.Compare(b.Permits, a.Permits) })
	return view, err
}

// rates is what was decided within recently, by limit.
func (r topRedis) rates(ctx context.Context) (map[string]history.Limited, error) {
	now, err := r.rdb.Time(ctx).Result()
	if err != nil {
		return nil, err
	}
	summaries, err := history.Read(ctx, r.rdb, r.config.Scope, history.StreamID(now.Add(-recently)))
	sums := map[string]history.Limited{}
	for _, s := range summaries {
		for name, of := range s.Limits {
			sum := sums[name]
			sum.Allowed += of.Allowed
			sum.Denied += of.Denied
			sums[name] = sum
		}
	}
	return sums, err
}

func (r topRedis) job(ctx context.Context, id string) ([][2]string, error) {
	jobs, err := r.find(id, "")
	if err != nil {
		return nil, err
	}
	var lines [][2]string
	for _, job := range jobs {
		view, err := r.view(ctx, job)
		if err != nil {
			return nil, err
		}
		lines = append(lines, view.lines()...)
	}
	return lines, nil
}

func (r topRedis) set(ctx context.Context, limit throttle.Limit) error {
	return r.limiter.Set(ctx, limit)
}

func (r topRedis) pause(ctx context.Context, limit string, paused bool) error {
	if paused {
		return r.limiter.Pause(ctx, limit)
	}
	return r.limiter.Resume(ctx, limit)
}

// raised is a limit with a higher rate, by a tenth or one permit, or a lower one.
func raised(l throttle.Limit, up bool) throttle.Limit {
	n := &l.Rate.N
	if l.Kind == throttle.Concurrency {
		n = &l.Capacity
	}
	step := max(1, *n/10)
	switch {
	case up:
		*n += step
	case *n > step:
		*n -= step
	case l.Kind != throttle.Concurrency:
		l.Rate.Per = (l.Rate.Per + l.Rate.Per/10).Round(time.Millisecond)
	}
	return l
}
