package stats

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/forecast"
	"github.com/headgate/headgate/internal/script"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

const (
	// sampleInterval is how often the dispatcher samples the backlog, sampleIdleInterval while no
	// job asks for permits. Sampling takes at most 1/sampleShare of the time.
	sampleInterval     = 5 * time.Second
	sampleIdleInterval = 20 * time.Second
	sampleShare        = 50
	sampleLifetime     = time.Minute
	// maxUnkeyedMeters bounds the meters of limits without keys that are read for one sample.
	maxUnkeyedMeters = 100
	maxBusiestKeys   = 10
)

// BacklogSample is the backlog as the dispatcher saw it last.
type BacklogSample struct {
	At     time.Time              `json:"at"` // by Redis's clock
	Limits map[string]LimitDemand `json:"limits"`
	// DrainedAt is when the last job would run that needs a limit. Unknown are the limits for which
	// that is unknown.
	DrainedAt map[string]time.Time `json:"drained_at,omitempty"`
	Unknown   []string             `json:"unknown,omitempty"`
	Pending   Pending              `json:"pending"`
}

// LimitDemand is the demand for one limit.
type LimitDemand struct {
	// Waiting is how many permits jobs wait for at this limit. Total counts also the permits for
	// jobs that wait for another limit first.
	Waiting int `json:"waiting"`
	Total   int `json:"all"`
	// Keys is how many keys are wanted, BusiestKeys are the most wanted of them.
	Keys        int      `json:"keys"`
	BusiestKeys []string `json:"busiest"`
	// Since is when the oldest waiting job began to wait here; zero if unknown.
	Since time.Time `json:"since,omitzero"`
}

// ReadDemand returns the demand for each meter, the largest first, and for each limit. A job that
// needs several limits waits at those of the meters that have lanes or are bottlenecks by the
// forecast. Without a dispatcher it waits at all of them.
func ReadDemand(ctx context.Context, limiter *waitdb.DB, f *forecast.Forecast, hasDispatcher bool) ([]waitdb.Demand, map[string]LimitDemand, error) {
	meters, err := limiter.Demands(ctx)
	if err != nil {
		return nil, nil, err
	}
	// Jobs do not wait at a limit without keys that has free permits and will have them.
	var unkeyed []throttle.Need
	for _, m := range meters {
		if m.Key == "" && m.HasLanes && !f.IsBottleneck(m.Limit, "") && len(unkeyed) < maxUnkeyedMeters {
			unkeyed = append(unkeyed, throttle.Need{Limit: m.Limit})
		}
	}
	states, err := limiter.Look(ctx, unkeyed...)
	if err != nil {
		return nil, nil, err
	}
	free := map[string]bool{}
	for _, m := range states {
		free[m.Limit] = !m.Shut && m.Left > m.Reserved
	}
	slices.SortFunc(meters, func(a, b waitdb.Demand) int {
		return cmp.Or(cmp.Compare(b.Permits, a.Permits), strings.Compare(a.Key, b.Key))
	})
	limits, since := map[string]LimitDemand{}, f.Since()
	for _, m := range meters {
		l := limits[m.Limit]
		l.Total += m.Permits
		if !hasDispatcher || f.IsBottleneck(m.Limit, m.Key) || m.HasLanes && (m.Key != "" || !free[m.Limit]) {
			l.Waiting += m.Permits
			l.Since = since[m.Limit]
		}
		if l.Keys++; l.Keys <= maxBusiestKeys {
			l.BusiestKeys = append(l.BusiestKeys, m.Key)
		}
		limits[m.Limit] = l
	}
	return meters, limits, nil
}

// sampleBacklog samples the backlog if this process is the dispatcher and jobs have asked for
// permits lately. It returns when to call it again.
func (r *Recorder) sampleBacklog(ctx context.Context) (next time.Duration) {
	started := time.Now()
	calls, _, _ := r.LimiterCalls.Snapshot()
	if !r.IsDispatcher.Load() || calls == r.sampledCalls && started.Sub(r.sampledAt) < sampleIdleInterval {
		return sampleInterval
	}
	r.sampledCalls, r.sampledAt = calls, started
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := r.writeBacklogSample(ctx); err != nil {
		r.FailedWrites.Add(1)
	}
	return max(sampleInterval, sampleShare*time.Since(started))
}

func (r *Recorder) writeBacklogSample(ctx context.Context) error {
	rdb, scope := r.Redis()
	limiter := waitdb.New(throttle.New(rdb, throttle.Options{Scope: scope}))
	queues, rule := r.Queues, r.RuleFor
	if queues == nil {
		queues = rdb
	}
	if time.Now().Before(r.rulesResume) {
		rule = nil
	}
	pending, err := ReadPending(ctx, queues, limiter, r.ServedQueues, rule)
	if pending.slowRules {
		r.rulesResume = time.Now().Add(slowRulesPause)
	}
	if err != nil {
		return err
	}
	pending.truncate()
	f, err := Forecast(ctx, limiter, queues, pending, forecast.Options{})
	if err != nil {
		return err
	}
	_, demand, err := ReadDemand(ctx, limiter, f, true)
	if err != nil {
		return err
	}
	s := BacklogSample{At: f.At, Limits: demand, DrainedAt: map[string]time.Time{}, Pending: pending}
	for name, last := range f.Limits() {
		if last.Known {
			s.DrainedAt[name] = f.At.Add(last.StartsIn)
		} else {
			s.Unknown = append(s.Unknown, name)
		}
	}
	slices.Sort(s.Unknown)
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return rdb.Set(ctx, r.prefix+"backlog", text, sampleLifetime).Err()
}

// ReadBacklogSample returns the sample of the last minute, or nil if there is none.
func ReadBacklogSample(ctx context.Context, rdb redis.UniversalClient, scope string) (*BacklogSample, error) {
	text, err := rdb.Get(ctx, script.Prefix(scope)+"backlog").Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s := &BacklogSample{}
	return s, json.Unmarshal(text, s)
}

// Forecast returns the limiter's forecast with the pending jobs, how long jobs run, and which
// queues are paused. Everything that shows people when jobs run comes from here. A nil queues is
// the limiter's Redis.
func Forecast(ctx context.Context, limiter *waitdb.DB, queues redis.UniversalClient, pending Pending, opts forecast.Options) (*forecast.Forecast, error) {
	pending.addTo(&opts)
	rdb, prefix := limiter.Scope()
	scope := script.Scope(prefix)
	if queues == nil {
		queues = rdb
	}
	var errs []error
	paused := map[string]bool{}
	opts.Stopped = func(queue string) bool {
		if _, known := paused[queue]; !known {
			n, err := queues.Exists(ctx, asynqdb.Key(queue, asynqdb.Paused)).Result()
			paused[queue] = n > 0
			errs = append(errs, err)
		}
		return paused[queue]
	}
	durations := sync.OnceValue(func() map[string]time.Duration {
		mean, err := MeanDurations(ctx, rdb, scope)
		errs = append(errs, err)
		return mean
	})
	opts.Duration = func(queue string) time.Duration { return durations()[queue] }
	sample, err := ReadBacklogSample(ctx, rdb, scope)
	if err != nil {
		return nil, err
	}
	if sample != nil {
		for _, name := range slices.Sorted(maps.Keys(sample.Limits)) {
			for _, key := range sample.Limits[name].BusiestKeys {
				opts.Busiest = append(opts.Busiest, throttle.Need{Limit: name, Key: key})
			}
		}
	}
	f, err := forecast.Make(ctx, limiter, opts)
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	return f, nil
}
