package throttle

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/lua"
)

// Place is where a waiting job stands.
type Place struct {
	// Called is whether its permits are kept for it and it is on its way.
	Called bool
	// Position in its lane counts from 1; Waiting is the lane's length.
	Position, Waiting int
	// Lane lists the meters, limit|key, that the lane's jobs need.
	Lane []string
	// Binding is the meter, limit|key, that it waits longest for.
	Binding string
	// Expected is when it would run, by Redis's clock, if nothing changes.
	// In is how far off that is.
	Expected time.Time
	In       time.Duration
}

// Waiting says where a job stands, and false if it does not wait.
func (r *Redis) Waiting(ctx context.Context, job string) (Place, bool, error) {
	reply, err := r.run(ctx, lua.Waiting, job).Slice()
	if err != nil {
		return Place{}, false, unavailable(err)
	}
	if len(reply) == 0 {
		return Place{}, false, nil
	}
	expected, now := reply[3].(int64), reply[4].(int64)
	return Place{
		Called:   reply[0].(int64) == 1,
		Position: int(reply[1].(int64)),
		Waiting:  int(reply[2].(int64)),
		Expected: time.UnixMicro(expected),
		In:       microseconds(expected - now),
		Binding:  reply[5].(string),
		Lane:     strings.Split(reply[6].(string), "\n"),
	}, true, nil
}

// Forecast is when permits would exist on one meter for those who come after
// everything that waits there now.
type Forecast struct {
	Need
	// Waiting is how many permits the waiting jobs want of the meter.
	Waiting int
	// In is how long until the last of the permits would exist.
	In time.Duration
	// Known is whether the limit exists for this app.
	Known bool
}

// Forecast tells, for each need, when its permits would exist after all that
// waits already. It changes nothing.
func (r *Redis) Forecast(ctx context.Context, needs ...Need) ([]Forecast, error) {
	needs, err := normalize(withCosts(needs))
	if err != nil {
		return nil, err
	}
	return r.forecast(ctx, needs)
}

// forecast is Forecast for needs in order; one that costs nothing is ready when
// the last of those that wait is.
func (r *Redis) forecast(ctx context.Context, needs []Need) ([]Forecast, error) {
	reply, err := r.run(ctx, lua.Forecast, appendNeeds([]any{r.app}, needs)...).Int64Slice()
	if err != nil {
		return nil, unavailable(err)
	}
	forecasts := make([]Forecast, len(needs))
	for i, need := range needs {
		now, at, waiting := reply[3*i], reply[3*i+1], reply[3*i+2]
		forecasts[i] = Forecast{Need: need, Waiting: int(waiting), Known: at >= 0}
		if at >= 0 {
			forecasts[i].In = microseconds(at - now)
		}
	}
	return forecasts, nil
}

// Backlog is what waits for one meter.
type Backlog struct {
	Key string
	// Permits is how many the waiting jobs want.
	Permits int
	// LastIn is how long until the last of them would run.
	LastIn time.Duration
}

// Backlogs lists what waits for a limit's meters, by key. It reads all meters
// of the scope that anything waits for, a part at a time.
func (r *Redis) Backlogs(ctx context.Context, limit string) ([]Backlog, error) {
	var needs []Need
	scan := r.rdb.HScan(ctx, r.prefix+"demand", 0, globEscape(limit)+"|*", 1000).Iterator()
	for scan.Next(ctx) {
		_, key, _ := strings.Cut(scan.Val(), "|")
		needs = append(needs, Need{Limit: limit, Key: key})
		scan.Next(ctx) // the value
	}
	if err := scan.Err(); err != nil {
		return nil, unavailable(err)
	}
	slices.SortFunc(needs, func(a, b Need) int { return cmp.Compare(a.Key, b.Key) })
	needs = slices.Compact(needs) // a scan can name a field twice
	var backlogs []Backlog
	for part := range slices.Chunk(needs, 50) { // less than a millisecond of Redis
		forecasts, err := r.forecast(ctx, part)
		if err != nil {
			return nil, err
		}
		for _, f := range forecasts {
			if f.Waiting > 0 {
				backlogs = append(backlogs, Backlog{f.Key, f.Waiting, f.In})
			}
		}
	}
	return backlogs, nil
}

func globEscape(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(text)
}
