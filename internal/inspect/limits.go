package inspect

import (
	"context"
	"fmt"
	"slices"

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

// looks is how many meters are looked at at once.
const looks = 100

// Limits is how all limits stand.
func (q *Queues) Limits(ctx context.Context) ([]Limit, error) {
	forecast, err := q.Forecast(ctx, lanes.ForecastOptions{})
	if err != nil {
		return nil, err
	}
	past, err := q.past(ctx)
	if err != nil {
		return nil, err
	}
	return q.limits(ctx, forecast, past)
}

func (q *Queues) limits(ctx context.Context, forecast *lanes.Forecast, past past) ([]Limit, error) {
	limits, err := q.Limiter.Limits(ctx)
	if err != nil {
		return nil, err
	}
	survey, err := history.ReadSurvey(ctx, q.rdb, q.scope)
	if err != nil {
		return nil, err
	}
	if survey == nil {
		survey = &history.Survey{}
	}
	lasts := forecast.Limits()
	all := make([]Limit, len(limits))
	for i, l := range limits {
		of := past.limits[l.Name]
		waits := survey.Limits[l.Name]
		all[i] = Limit{
			Name: l.Name, Rate: l.String(), Allowed: float64(of.Allowed) / recently.Seconds(), Denied: float64(of.Denied) / recently.Seconds(),
			Waiting: waits.Jobs, Keys: waits.Keys, Since: waits.For(past.now).Seconds(),
		}
		all[i].ends(lasts)
	}
	return all, q.shut(ctx, all)
}

// shut fills in why limits are.
func (q *Queues) shut(ctx context.Context, all []Limit) error {
	for some := range slices.Chunk(all, looks) {
		needs := make([]throttle.Need, len(some))
		for i, l := range some {
			needs[i].Limit = l.Name
		}
		meters, err := q.Limiter.Look(ctx, needs...)
		if err != nil {
			return err
		}
		for i, m := range meters {
			switch {
			case m.Paused:
				some[i].State = "paused"
			case m.Blocked == 1:
				some[i].State = "1 key blocked"
			case m.Blocked > 1:
				some[i].State = fmt.Sprintf("%d keys blocked", m.Blocked)
			}
		}
	}
	return nil
}

// ends fills in when the last would run: at once where none waits.
func (l *Limit) ends(lasts map[string]lanes.Expected) {
	last, waits := lasts[l.Name]
	if l.About = last.About; last.Known || !waits {
		in := last.In.Seconds()
		l.LastIn = &in
	}
}
