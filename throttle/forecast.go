package throttle

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/lua"
)

// Forecast is when permits would exist on one meter for those who come after
// everything that waits there now. It is what a plan is made of: how long a batch
// of jobs would take if it were enqueued now.
type Forecast struct {
	Need
	// Waiting is how many permits the waiting jobs want of the meter.
	Waiting int
	// In is how long until the last of the permits would exist, if nothing changes
	// and nobody but who waits takes any. It means nothing unless Known.
	In time.Duration
	// Known is whether the limit exists for this app.
	Known bool
	// Unsure is whether nobody can tell: the limit is paused, or its slots come back
	// when jobs end. In is then when to look again.
	Unsure bool
}

// Forecast tells, for each need, when its permits would exist after all that
// waits already. It changes nothing. The needs are taken apart, each for itself; they
// come back sorted by limit and key, those of the same meter as one. A cost above the
// capacity is no mistake here: it stands for many jobs.
func (l *Lanes) Forecast(ctx context.Context, needs ...Need) ([]Forecast, error) {
	needs, err := normalize(withCosts(needs))
	if err != nil {
		return nil, err
	}
	return l.forecasts(ctx, needs)
}

// forecasts is Forecast, where a cost of 0 asks for the last that waits already.
func (l *Lanes) forecasts(ctx context.Context, needs []Need) ([]Forecast, error) {
	args := appendNeeds([]any{l.app}, needs)
	for range 3 {
		reply, err := l.run(ctx, lua.Forecast, args...).Slice()
		if err != nil {
			return nil, unavailable(err)
		}
		names, now := strings.Fields(reply[0].(string)), reply[1].(int64)
		if len(names) > 0 {
			if err := l.extendCalendars(ctx, slices.Compact(names), now); err != nil {
				return nil, err
			}
			continue
		}
		forecasts := make([]Forecast, len(needs))
		for i, need := range needs {
			at, waiting, known := reply[3*i+2].(int64), reply[3*i+3].(int64), reply[3*i+4].(int64)
			forecasts[i] = Forecast{Need: need, Waiting: int(waiting), Known: at >= 0}
			if at >= 0 {
				forecasts[i].In, forecasts[i].Unsure = microseconds(at-now), known == 0
			}
		}
		return forecasts, nil
	}
	return nil, errCalendar
}

// Backlog is what waits for one meter.
type Backlog struct {
	Key string
	// Permits is how many the waiting jobs want.
	Permits int
	// LastIn is how long until the last of those permits would exist. Their jobs may
	// wait longer for another limit.
	LastIn time.Duration
	// Unsure is whether nobody can tell, as in a Forecast.
	Unsure bool
}

// backlogPage bounds how many meters one call of Redis looks at.
const backlogPage = 100

// Backlogs lists what waits for a limit's meters, by key. It reads all meters
// of the scope that anything waits for, a part at a time.
func (l *Lanes) Backlogs(ctx context.Context, limit string) ([]Backlog, error) {
	var needs []Need
	scan := l.rdb.HScan(ctx, l.prefix+"demand", 0, globEscape(limit)+"|*", 1000).Iterator()
	for scan.Next(ctx) {
		_, key, _ := strings.Cut(scan.Val(), "|")
		needs = append(needs, Need{Limit: limit, Key: key})
		scan.Next(ctx) // the value
	}
	if err := scan.Err(); err != nil {
		return nil, unavailable(err)
	}
	var backlogs []Backlog
	for page := range slices.Chunk(merge(needs), backlogPage) { // a scan may tell one twice
		forecasts, err := l.forecasts(ctx, page)
		if err != nil {
			return nil, err
		}
		for _, f := range forecasts {
			if f.Waiting > 0 {
				backlogs = append(backlogs, Backlog{f.Key, f.Waiting, f.In, f.Unsure})
			}
		}
	}
	return backlogs, nil
}

// globEscape has a pattern of SCAN find the text itself: keys are other people's
// words, and may have stars in them.
func globEscape(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(text)
}
