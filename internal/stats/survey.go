package stats

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/forecast"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

const (
	// surveyEach is how often the process that gives turns looks at what waits, and surveyIdle
	// while it decides nothing. A look takes at most 1/surveyShare of the time.
	surveyEach  = 5 * time.Second
	surveyIdle  = 20 * time.Second
	surveyShare = 50
	// surveyLife is how long a survey lives.
	surveyLife = time.Minute
	// maxLooked bounds the meters of limits without keys that are looked at.
	maxLooked = 100
)

// lookAround makes a survey, if this process gives turns and anything may have changed, and
// returns when to do so again.
func (r *Recorder) lookAround(ctx context.Context) (next time.Duration) {
	began := time.Now()
	decided, _, _ := r.LimiterCalls.Snapshot()
	if !r.IsDispatcher.Load() || decided == r.decided && began.Sub(r.looked) < surveyIdle {
		return surveyEach
	}
	r.decided, r.looked = decided, began
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := r.survey(ctx); err != nil {
		r.FailedWrites.Add(1)
	}
	return max(surveyEach, surveyShare*time.Since(began))
}

func (r *Recorder) survey(ctx context.Context) error {
	_, scope := r.Redis()
	limiter := waitdb.New(throttle.New(r.rdb, throttle.RedisOptions{Scope: scope}))
	pending, err := r.readPending(ctx, limiter)
	if err != nil {
		return err
	}
	f, err := Forecast(ctx, limiter, r.Queues, pending, forecast.Options{})
	if err != nil {
		return err
	}
	_, demand, err := ReadDemand(ctx, limiter, f, true)
	if err != nil {
		return err
	}
	s := BacklogSample{At: f.At, Limits: demand, DrainedAt: map[string]time.Time{}, Pending: pending}
	limits := f.Limits()
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		if last := limits[name]; last.Known {
			s.DrainedAt[name] = f.At.Add(last.StartsIn)
		} else {
			s.Unknown = append(s.Unknown, name)
		}
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return r.rdb.Set(ctx, r.prefix+"survey", text, surveyLife).Err()
}

// readPending looks at the jobs that have not asked yet, by the rules of this process.
func (r *Recorder) readPending(ctx context.Context, limiter *waitdb.DB) (Pending, error) {
	queues, rule := r.Queues, r.RuleFor
	if queues == nil {
		queues = r.rdb
	}
	if time.Now().Before(r.rulesRest) {
		rule = nil
	}
	pending, err := ReadPending(ctx, queues, limiter, r.ServedQueues, rule)
	if pending.slow {
		r.rulesRest = time.Now().Add(rulesRest)
	}
	pending.bound()
	return pending, err
}
