package stats

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
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
	// The dispatcher samples the backlog every sampleInterval, or every sampleIdleInterval while no
	// job requests permits. A pause is at least sampleRest times as long as the sampling before it.
	sampleInterval     = 5 * time.Second
	sampleIdleInterval = 20 * time.Second
	sampleRest         = 50
	sampleLifetime     = time.Minute
	// maxUnkeyedMeters is the largest number of meters without a key that are read for one sample.
	maxUnkeyedMeters = 100
	// maxTopKeys is the length of LimitDemand.TopKeys.
	maxTopKeys = 10
)

// BacklogSample is the dispatcher's last view of the backlog.
type BacklogSample struct {
	At     time.Time              `json:"at"` // by Redis's clock
	Limits map[string]LimitDemand `json:"limits"`
	// DrainedAt is the time at which the last job that needs the limit would run. It is zero if that
	// time is unknown, and missing if no job needs the limit.
	DrainedAt map[string]time.Time `json:"drained_at,omitempty"`
	Pending   Pending              `json:"pending"`
}

// LimitDemand is the demand for one limit.
type LimitDemand struct {
	// Waiting is the number of permits that jobs wait for at this limit. Total includes the permits
	// for jobs that wait for another limit first.
	Waiting int `json:"waiting"`
	Total   int `json:"total"`
	// KeyCount is the number of keys that jobs need.
	KeyCount int `json:"key_count"`
	// TopKeys are the keys with the highest demand.
	TopKeys []string `json:"top_keys"`
	// Since is the time at which the oldest waiting job began to wait here; zero if unknown.
	Since time.Time `json:"since,omitzero"`
}

// ReadDemand returns the demand for each meter, the highest first, and for each limit. A job that
// needs several limits waits at the meters that have lanes, and at those that the forecast calls
// bottlenecks. Without a dispatcher, a job waits at all of its limits.
func ReadDemand(ctx context.Context, limiter *waitdb.DB, f *forecast.Forecast, hasDispatcher bool) ([]waitdb.Demand, map[string]LimitDemand, error) {
	meters, err := limiter.Demands(ctx)
	if err != nil {
		return nil, nil, err
	}
	// Jobs do not wait at a limit without keys that has free permits and is no bottleneck.
	var unkeyed []throttle.Need
	for _, m := range meters {
		if m.Key == "" && m.HasLanes && !f.Backlog(m.Limit, "").IsBottleneck && len(unkeyed) < maxUnkeyedMeters {
			unkeyed = append(unkeyed, throttle.Need{Limit: m.Limit})
		}
	}
	states, err := limiter.Meters(ctx, unkeyed...)
	if err != nil {
		return nil, nil, err
	}
	free := map[string]bool{}
	for _, m := range states {
		free[m.Limit] = !m.Closed && m.Left > m.Reserved
	}
	slices.SortFunc(meters, func(a, b waitdb.Demand) int {
		return cmp.Or(cmp.Compare(b.Permits, a.Permits), strings.Compare(a.Key, b.Key))
	})
	limits := map[string]LimitDemand{}
	for _, m := range meters {
		l, b := limits[m.Limit], f.Backlog(m.Limit, m.Key)
		l.Total += m.Permits
		if !hasDispatcher || b.IsBottleneck || m.HasLanes && (m.Key != "" || !free[m.Limit]) {
			l.Waiting += m.Permits
			if l.Since.IsZero() || !b.Since.IsZero() && b.Since.Before(l.Since) {
				l.Since = b.Since
			}
		}
		if l.KeyCount++; l.KeyCount <= maxTopKeys {
			l.TopKeys = append(l.TopKeys, m.Key)
		}
		limits[m.Limit] = l
	}
	return meters, limits, nil
}

// sampleBacklog samples the backlog if this process is the dispatcher, and returns the time until
// the next call.
func (r *Recorder) sampleBacklog(ctx context.Context) (next time.Duration) {
	started := time.Now()
	calls, _, _ := r.LimiterCalls.Snapshot()
	if !r.IsLeader.Load() || calls == r.sampledCalls && started.Sub(r.sampledAt) < sampleIdleInterval {
		return sampleInterval
	}
	r.sampledCalls, r.sampledAt = calls, started
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := r.writeBacklogSample(ctx); err != nil {
		r.FailedWrites.Add(1)
	}
	return max(sampleInterval, sampleRest*time.Since(started))
}

func (r *Recorder) writeBacklogSample(ctx context.Context) error {
	rdb, scope := r.Redis()
	limiter := waitdb.New(throttle.New(rdb, throttle.Options{Scope: scope}))
	pending, err := ReadPending(ctx, r.Queues, limiter, r.ServedQueues, r.RuleFor)
	if err != nil {
		return err
	}
	pending.truncate()
	f, err := Forecast(ctx, limiter, r.Queues, pending, forecast.Options{})
	if err != nil {
		return err
	}
	_, demand, err := ReadDemand(ctx, limiter, f, true)
	if err != nil {
		return err
	}
	s := BacklogSample{At: f.At, Limits: demand, DrainedAt: map[string]time.Time{}, Pending: pending}
	for name, last := range f.Limits() {
		s.DrainedAt[name] = time.Time{}
		if last.Known {
			s.DrainedAt[name] = f.At.Add(last.StartsIn)
		}
	}
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

// Forecast returns the limiter's forecast with the pending jobs of queues, an asynq Redis. It adds
// the mean durations of jobs and the pauses of queues to the options. The page, the commands and the
// metrics all use this forecast.
func Forecast(ctx context.Context, limiter *waitdb.DB, queues redis.UniversalClient, pending Pending, opts forecast.Options) (*forecast.Forecast, error) {
	pending.addTo(&opts)
	rdb, prefix := limiter.Scope()
	scope := script.Scope(prefix)
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
	f, err := forecast.Make(ctx, limiter, opts)
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	return f, nil
}
