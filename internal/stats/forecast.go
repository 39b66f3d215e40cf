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

// Survey is what waited when it was looked at last.
type BacklogSample struct {
	At     time.Time         `json:"at"` // by Redis's clock
	Limits map[string]Demand `json:"limits"`
	// Lasts is when the last job would run that needs each limit, and Unknown those limits
	// of which it is not known.
	DrainedAt map[string]time.Time `json:"lasts,omitempty"`
	Unknown   []string             `json:"unknown,omitempty"`
	// Pending is what the jobs will want that have not asked yet.
	Pending Pending `json:"pending"`
}

// Demand is what waits for one limit.
type Demand struct {
	// Waiting is how many permits jobs wait for here, and All how many are wanted at all, by
	// jobs that need this limit and wait for another first, too.
	Waiting int `json:"waiting"`
	Total   int `json:"all"`
	// Keys is how many keys anything waits for, and Busiest are those that most is wanted of.
	Keys        int      `json:"keys"`
	BusiestKeys []string `json:"busiest"`
	// Since is since when the job waits that waits longest here, if that is known.
	Since time.Time `json:"since,omitzero"`
}

// maxBusiest is how many keys of a limit a Demand names.
const maxBusiest = 10

// ReadDemand sums up by limit what is wanted of meters, and lists these: the most wanted first. A
// job that needs several limits waits at those at whose meters lanes wait, or will for longest
// by the forecast; while no process gives turns it waits at all.
func ReadDemand(ctx context.Context, limiter *waitdb.DB, f *forecast.Forecast, turns bool) ([]waitdb.Demand, map[string]Demand, error) {
	wants, err := limiter.Demands(ctx)
	if err != nil {
		return nil, nil, err
	}
	// If a limit without keys has permits now and will have them, its jobs wait for another one.
	var looked []throttle.Need
	for _, w := range wants {
		if w.Key == "" && w.HasLanes && !f.IsBottleneck(w.Limit, "") && len(looked) < maxLooked {
			looked = append(looked, throttle.Need{Limit: w.Limit})
		}
	}
	meters, err := limiter.Look(ctx, looked...)
	if err != nil {
		return nil, nil, err
	}
	free := map[string]bool{}
	for _, m := range meters {
		free[m.Limit] = !m.Shut && m.Left > m.Reserved
	}
	// By names too, so that keys which are wanted alike keep their places from turn to turn.
	slices.SortFunc(wants, func(a, b waitdb.Demand) int {
		return cmp.Or(cmp.Compare(b.Permits, a.Permits), strings.Compare(a.Key, b.Key))
	})
	limits, since := map[string]Demand{}, f.Since()
	for _, w := range wants {
		of := limits[w.Limit]
		of.Total += w.Permits
		if !turns || f.IsBottleneck(w.Limit, w.Key) || w.HasLanes && (w.Key != "" || !free[w.Limit]) {
			of.Waiting += w.Permits
			of.Since = since[w.Limit]
		}
		if of.Keys++; of.Keys <= maxBusiest {
			of.BusiestKeys = append(of.BusiestKeys, w.Key)
		}
		limits[w.Limit] = of
	}
	return wants, limits, nil
}

// ReadSurvey returns the scope's last survey, of the last minute; nil where there
// is none.
func ReadBacklogSample(ctx context.Context, rdb redis.UniversalClient, scope string) (*BacklogSample, error) {
	text, err := rdb.Get(ctx, script.Prefix(scope)+"survey").Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s := &BacklogSample{}
	return s, json.Unmarshal(text, s)
}

// Forecast makes the limiter's forecast with what else is known: what pending jobs will want,
// how long jobs run, as the processes tell, and which queues are paused, as asynq says in the
// Redis of the queues. All who tell people when jobs run ask here, so they say the same.
func Forecast(ctx context.Context, limiter *waitdb.DB, queues redis.UniversalClient, pending Pending, opts forecast.Options) (*forecast.Forecast, error) {
	pending.addTo(&opts)
	rdb, prefix := limiter.Scope()
	scope := script.Scope(prefix)
	if queues == nil {
		queues = rdb
	}
	var errs []error
	stops := map[string]bool{}
	opts.Stopped = func(queue string) bool {
		if _, asked := stops[queue]; !asked {
			n, err := queues.Exists(ctx, asynqdb.Key(queue, asynqdb.Paused)).Result()
			stops[queue] = n > 0
			errs = append(errs, err)
		}
		return stops[queue]
	}
	runs := sync.OnceValue(func() map[string]time.Duration {
		mean, err := MeanDurations(ctx, rdb, scope)
		errs = append(errs, err)
		return mean
	})
	survey, err := ReadBacklogSample(ctx, rdb, scope)
	if err != nil {
		return nil, err
	}
	if survey == nil {
		survey = &BacklogSample{}
	}
	for _, name := range slices.Sorted(maps.Keys(survey.Limits)) {
		for _, key := range survey.Limits[name].BusiestKeys {
			opts.Busiest = append(opts.Busiest, throttle.Need{Limit: name, Key: key})
		}
	}
	opts.Duration = func(queue string) time.Duration { return runs()[queue] }
	f, err := forecast.Make(ctx, limiter, opts)
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	return f, nil
}

// runsOver is over which time the mean is taken of how long jobs run.
const runsOver = 5 * time.Minute

// Runs is how long jobs of each queue have run lately, in the mean; queues of which no
// job has ended are not in it. By Little's law that is how many have run at a time, over
// how many have ended in it.
func MeanDurations(ctx context.Context, rdb redis.UniversalClient, scope string) (map[string]time.Duration, error) {
	now, err := rdb.Time(ctx).Result()
	if err != nil {
		return nil, err
	}
	summaries, err := ReadSummaries(ctx, rdb, scope, StreamID(now.Add(-runsOver)))
	if err != nil {
		return nil, err
	}
	type source struct {
		process string
		Task
	}
	running, since := map[source]int64{}, map[source]time.Time{}
	spent, ended := map[string]time.Duration{}, map[string]int64{}
	for _, s := range summaries {
		for _, t := range s.Tasks {
			of := source{s.Process, t.Task}
			spent[t.Queue] += time.Duration(running[of]) * s.At.Sub(since[of])
			running[of], since[of] = t.Running, s.At
			for end, n := range t.Ends {
				if End(end) != PutBack {
					ended[t.Queue] += n
				}
			}
		}
	}
	for of, jobs := range running {
		spent[of.Queue] += time.Duration(jobs) * now.Sub(since[of])
	}
	mean := map[string]time.Duration{}
	for queue, n := range ended {
		if n > 0 {
			mean[queue] = max(time.Millisecond, spent[queue]/time.Duration(n))
		}
	}
	return mean, nil
}
