package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/history"
	"github.com/headgate/headgate/internal/spare"
	"github.com/headgate/headgate/throttle"
)

// topSource is what top shows and does.
type topSource interface {
	look(ctx context.Context, chosen string) (topView, error)
	job(ctx context.Context, id string) ([][2]string, error)
	set(ctx context.Context, was, next throttle.Limit) error
	pause(ctx context.Context, limit string, paused bool) error
}

// topView is how all limits are at one moment.
type topView struct {
	limits []topLimit
	chosen string   // the limit whose keys are
	keys   []topKey // those that most jobs wait for first
	jobs   int      // that wait, in all
	told   bool     // whether anybody has counted what waits lately
}

// topLimit is how a limit is. What waits is as it was counted some seconds ago.
type topLimit struct {
	throttle.Limit
	state           string
	allowed, denied float64 // a second
	waiting, keys   int     // jobs, and keys that they wait for
	since           time.Duration
	last            time.Duration // until the last one runs, of the busiest keys
	known           bool          // whether that is
}

// topKey is how a key of the chosen limit is.
type topKey struct {
	throttle.Meter
	jobs int // that wait, as they were counted
}

// topRedis is the limits in Redis.
type topRedis struct{ *queues }

// busiest is how many keys of each limit are looked at, and topLooks how many
// meters at once. So a look costs the same however much waits.
const (
	busiest  = 3
	topLooks = 100
)

func (r topRedis) look(ctx context.Context, chosen string) (topView, error) {
	limits, err := r.limiter.Limits(ctx)
	if err != nil {
		return topView{}, err
	}
	rates, err := r.rates(ctx)
	if err != nil {
		return topView{}, err
	}
	crowd, err := r.limiter.Crowd(ctx)
	if err != nil {
		return topView{}, err
	}
	survey, now, err := r.survey(ctx)
	if err != nil {
		return topView{}, err
	}
	view := topView{chosen: chosen, jobs: crowd.Jobs, told: survey != nil || crowd.Jobs == 0}
	if chosen == "" && len(limits) > 0 {
		view.chosen = limits[0].Name
	}
	var found map[string]history.Waiting
	if survey != nil {
		found = survey.Limits
	}
	meters, err := r.meters(ctx, limits, found, view.chosen)
	if err != nil {
		return view, err
	}
	for _, l := range limits {
		of := rates[l.Name]
		limit := topLimit{Limit: l, allowed: float64(of.Allowed) / recently.Seconds(), denied: float64(of.Denied) / recently.Seconds()}
		limit.stands(found[l.Name], meters[l.Name], now)
		view.limits = append(view.limits, limit)
	}
	for _, m := range meters[view.chosen] {
		at := slices.IndexFunc(found[view.chosen].Busiest, func(b history.Backed) bool { return b.Key == m.Key })
		if at >= 0 {
			view.keys = append(view.keys, topKey{m, found[view.chosen].Busiest[at].Jobs})
		}
	}
	return view, nil
}

// survey is what waits, as some process of the scope has counted it, or nil, and
// Redis's time.
func (r topRedis) survey(ctx context.Context) (*history.Survey, time.Time, error) {
	survey, err := history.ReadSurvey(ctx, r.rdb, r.config.Scope)
	if err != nil {
		return nil, time.Time{}, err
	}
	now, err := r.rdb.Time(ctx).Result()
	return survey, now, err
}

// meters are the busiest of each limit, more of the chosen one, and that of the
// empty key.
func (r topRedis) meters(ctx context.Context, limits []throttle.Limit, found map[string]history.Waiting, chosen string) (map[string][]throttle.Meter, error) {
	var needs []throttle.Need
	for _, l := range limits {
		keys := found[l.Name].Busiest
		if l.Name != chosen {
			keys = keys[:min(len(keys), busiest)]
		}
		for _, b := range keys {
			needs = append(needs, throttle.Need{Limit: l.Name, Key: b.Key})
		}
		if len(keys) == 0 {
			needs = append(needs, throttle.Need{Limit: l.Name})
		}
	}
	meters := map[string][]throttle.Meter{}
	for some := range slices.Chunk(needs, topLooks) {
		looked, err := r.limiter.Look(ctx, some...)
		if err != nil {
			return nil, err
		}
		for _, m := range looked {
			meters[m.Limit] = append(meters[m.Limit], m)
		}
	}
	return meters, nil
}

// stands fills in what waits for the limit, and why it is shut.
func (l *topLimit) stands(w history.Waiting, meters []throttle.Meter, now time.Time) {
	l.waiting, l.keys = w.Jobs, w.Keys
	if w.Jobs > 0 {
		l.since = max(0, now.Sub(w.Oldest))
	}
	l.known = true
	for _, m := range meters {
		l.last, l.known = max(l.last, m.LastIn), l.known && m.Known
		switch {
		case m.Paused:
			l.state = "paused"
		case m.Blocked == 1:
			l.state = "1 key blocked"
		case m.Blocked > 1:
			l.state = fmt.Sprintf("%d keys blocked", m.Blocked)
		}
	}
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

// set changes a limit, unless jobs wait that it then refuses.
func (r topRedis) set(ctx context.Context, was, next throttle.Limit) error {
	hit, err := spare.Check(ctx, r.limiter, was, next)
	if err != nil {
		return err
	}
	if hit != "" {
		return errors.New(hit + "; \"worker limits set\" with --yes if that is meant")
	}
	return r.limiter.Set(ctx, next)
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
