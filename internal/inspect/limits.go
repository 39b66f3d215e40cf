package inspect

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/history"
	"github.com/headgate/headgate/scheduler/lanes"
	"github.com/headgate/headgate/throttle"
)

// Limit is how a limit is. What waits is as it was counted some seconds ago.
type Limit struct {
	Name    string  `json:"name"`
	Rate    string  `json:"limit"`
	State   string  `json:"state,omitempty"`
	Allowed float64 `json:"allowed_a_second"`
	Denied  float64 `json:"denied_a_second"`
	Waiting int     `json:"waiting"` // jobs
	Keys    int     `json:"keys"`    // that they wait for
	Since   float64 `json:"waiting_since_s"`
	// LastIn is in how long the last job would run that waits and needs the limit, and
	// null where nobody knows; About, whether that is an estimate.
	LastIn *float64 `json:"last_in_s"`
	About  bool     `json:"last_about,omitempty"`
}

// busiest is how many keys of each limit are looked at, and looks how many meters
// at once. So a look costs the same however much waits.
const (
	busiest = 3
	looks   = 100
)

// Limits is how all limits stand.
func (q *Queues) Limits(ctx context.Context) ([]Limit, error) {
	forecast, err := q.Forecast(ctx, lanes.ForecastOptions{})
	if err != nil {
		return nil, err
	}
	return q.limits(ctx, forecast)
}

func (q *Queues) limits(ctx context.Context, forecast *lanes.Forecast) ([]Limit, error) {
	limits, err := q.Limiter.Limits(ctx)
	if err != nil {
		return nil, err
	}
	now, err := q.rdb.Time(ctx).Result() // the summaries go by Redis's clock
	if err != nil {
		return nil, err
	}
	rates, err := q.rates(ctx, now)
	if err != nil {
		return nil, err
	}
	survey, err := history.ReadSurvey(ctx, q.rdb, q.scope)
	if err != nil {
		return nil, err
	}
	var found map[string]history.Waiting
	if survey != nil {
		found = survey.Limits
	}
	meters, err := q.busiest(ctx, limits, found)
	if err != nil {
		return nil, err
	}
	lasts := forecast.Limits()
	all := make([]Limit, len(limits))
	for i, l := range limits {
		of := rates[l.Name]
		all[i] = Limit{
			Name: l.Name, Rate: l.String(), Allowed: float64(of.Allowed) / recently.Seconds(), Denied: float64(of.Denied) / recently.Seconds(),
		}
		all[i].wait(found[l.Name], meters[l.Name], now)
		all[i].ends(lasts)
	}
	return all, nil
}

// busiest are the meters of each limit that most jobs wait for, or else that of the
// empty key.
func (q *Queues) busiest(ctx context.Context, limits []throttle.Limit, found map[string]history.Waiting) (map[string][]throttle.Meter, error) {
	var needs []throttle.Need
	for _, l := range limits {
		keys := found[l.Name].Busiest
		for _, b := range keys[:min(len(keys), busiest)] {
			needs = append(needs, throttle.Need{Limit: l.Name, Key: b.Key})
		}
		if len(keys) == 0 {
			needs = append(needs, throttle.Need{Limit: l.Name})
		}
	}
	meters := map[string][]throttle.Meter{}
	for some := range slices.Chunk(needs, looks) {
		looked, err := q.Limiter.Look(ctx, some...)
		if err != nil {
			return nil, err
		}
		for _, m := range looked {
			meters[m.Limit] = append(meters[m.Limit], m)
		}
	}
	return meters, nil
}

// wait fills in what waits for the limit, and why it is shut.
func (l *Limit) wait(w history.Waiting, meters []throttle.Meter, now time.Time) {
	l.Waiting, l.Keys = w.Jobs, w.Keys
	if w.Jobs > 0 {
		l.Since = max(0, now.Sub(w.Oldest)).Seconds()
	}
	for _, m := range meters {
		switch {
		case m.Paused:
			l.State = "paused"
		case m.Blocked == 1:
			l.State = "1 key blocked"
		case m.Blocked > 1:
			l.State = fmt.Sprintf("%d keys blocked", m.Blocked)
		}
	}
}

// ends fills in when the last would run: at once where none waits.
func (l *Limit) ends(lasts map[string]lanes.Expected) {
	last, waits := lasts[l.Name]
	if l.About = last.About; last.Known || !waits {
		in := last.In.Seconds()
		l.LastIn = &in
	}
}

// rates is what was decided within recently, by limit.
func (q *Queues) rates(ctx context.Context, now time.Time) (map[string]history.Limited, error) {
	summaries, err := history.Read(ctx, q.rdb, q.scope, history.StreamID(now.Add(-recently)))
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
