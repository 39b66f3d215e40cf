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
	reply, err := l.run(ctx, lua.Forecast, appendNeeds([]any{l.app}, needs)...).Int64Slice()
	if err != nil {
		return nil, unavailable(err)
	}
	forecasts := make([]Forecast, len(needs))
	for i, need := range needs {
		now, at, waiting, known := reply[4*i], reply[4*i+1], reply[4*i+2], reply[4*i+3]
		forecasts[i] = Forecast{Need: need, Waiting: int(waiting), Known: at >= 0}
		if at >= 0 {
			forecasts[i].In, forecasts[i].Unsure = microseconds(at-now), known == 0
		}
	}
	return forecasts, nil
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
	for page := range slices.Chunk(needs, backlogPage) {
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
	slices.SortFunc(backlogs, func(a, b Backlog) int { return strings.Compare(a.Key, b.Key) })
	return backlogs, nil
}

// globEscape has a pattern of SCAN find the text itself: keys are other people's
// words, and may have stars in them.
func globEscape(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(text)
}
