package inspect

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/history"
	"github.com/headgate/headgate/scheduler/lanes"
	"github.com/headgate/headgate/throttle"
)

// Busiest is how many keys of a limit are looked at: those that most wait for. They tell of
// a limit with a million keys whether those that most wait for are full.
const Busiest = 5

// looks is how many meters are looked at at once: Redis does nothing else meanwhile.
const looks = 100

// Known is what was read of limits.
type Known struct {
	Now    time.Time // by Redis's clock
	Limits []throttle.Limit
	Blocks map[string][]throttle.Blocked // by limit, those that open first in front
	// KeyOf says what a limit counts by, the empty text where it has no keys. Nil means that
	// only what waits can tell.
	KeyOf    func(limit string) (by string, known bool)
	Wanted   map[string]Wanted // by limit
	Survey   *history.Survey   // nil where there is none
	Forecast *lanes.Forecast   // nil where nothing waits
	Lately   map[string]history.Limited
}

// ReadLimits reads the limits and their blocks: two round trips for each limit, and a third
// where keys of it are blocked.
func (k *Known) ReadLimits(ctx context.Context, limiter *lanes.Lanes) (err error) {
	if k.Limits, err = limiter.Limits(ctx); err != nil {
		return err
	}
	k.Blocks = map[string][]throttle.Blocked{}
	for _, l := range k.Limits {
		if k.Blocks[l.Name], err = limiter.Blocks(ctx, l.Name); err != nil {
			return err
		}
	}
	return nil
}

// Surveyed is what waits as the survey counted it: jobs.
func Surveyed(s *history.Survey) map[string]Wanted {
	wanted := map[string]Wanted{}
	if s == nil {
		return wanted
	}
	for name, w := range s.Limits {
		of := Wanted{Waiting: w.Jobs, All: w.Jobs, Keys: w.Keys}
		for _, b := range w.Busiest {
			of.Busiest = append(of.Busiest, b.Key)
		}
		wanted[name] = of
	}
	return wanted
}

// Counted are the limits with what waits for them, and since when.
//
// Since when comes from the survey, so it may be some seconds behind what waits, and a limit
// that jobs have only just begun to wait for has none.
func (k Known) Counted() []Limit {
	all := make([]Limit, len(k.Limits))
	for i, limit := range k.Limits {
		l := Limit{Limit: limit, Wanted: k.Wanted[limit.Name]}
		if k.Survey != nil && l.Waiting > 0 && k.Survey.Limits[l.Name].Jobs > 0 {
			l.Since = k.Survey.Limits[l.Name].Oldest
		}
		l.Keyed = slices.ContainsFunc(l.Busiest, func(key string) bool { return key != "" })
		all[i] = l
	}
	return all
}

func (k Known) limits() []Limit {
	lasts, binding := map[string]lanes.Expected{}, []throttle.Need(nil)
	if k.Forecast != nil {
		lasts, binding = k.Forecast.Limits(), k.Forecast.Binding()
	}
	all := k.Counted()
	for i := range all {
		l := &all[i]
		l.Blocks = stillShut(k.Blocks[l.Name], k.Now)
		// A block of a key says that there are keys, also when nobody waits for one.
		l.Keyed = l.Keyed || slices.ContainsFunc(l.Blocks, func(b throttle.Blocked) bool { return b.Key != "" })
		// The config knows better than what happens to wait just now.
		if k.KeyOf != nil {
			if by, known := k.KeyOf(l.Name); known {
				l.By, l.Keyed = by, by != ""
			}
		}
		l.Passing = k.Survey != nil && l.Waiting > 0 && (l.Since.IsZero() || k.Survey.At.Sub(l.Since) < spareTurns*time.Second)
		of := k.Lately[l.Name]
		l.Permits, l.Allowed, l.Denied = aSecond(of.Permits), aSecond(of.Allowed), aSecond(of.Denied)
		l.Last = lanes.Expected{Known: true} // at once, where none waits
		if last, waits := lasts[l.Name]; waits {
			l.Last = last
			l.Last.In = max(0, k.Forecast.At.Add(last.In).Sub(k.Now))
		}
		l.Binds = slices.ContainsFunc(binding, func(n throttle.Need) bool { return n.Limit == l.Name })
	}
	return all
}

// stillShut are the blocks that have not ended.
func stillShut(blocks []throttle.Blocked, now time.Time) []throttle.Blocked {
	return blocks[sort.Search(len(blocks), func(i int) bool { return blocks[i].Until.After(now) }):]
}

// Looker looks at meters, a hundred at a time.
type Looker interface {
	Look(ctx context.Context, needs ...throttle.Need) ([]throttle.Meter, error)
}

// Look asks how the limits' meters stand: of each that of the empty key and those of the
// busiest keys, most in all. A limit that was deleted since it was read gets none.
func Look(ctx context.Context, limiter Looker, limits []Limit, most int) error {
	var needs []throttle.Need
	var of []int
	ask := func(i int, key string) {
		if len(needs) < most {
			needs, of = append(needs, throttle.Need{Limit: limits[i].Name, Key: key}), append(of, i)
		}
	}
	for i := range limits {
		l := &limits[i]
		l.Busiest = l.Busiest[:min(Busiest, len(l.Busiest))]
		ask(i, "")
		for _, key := range l.Busiest {
			if key != "" {
				ask(i, key)
			}
		}
	}
	for start := 0; start < len(needs); start += looks {
		meters, err := limiter.Look(ctx, needs[start:min(start+looks, len(needs))]...)
		if err != nil {
			return err
		}
		for i, m := range meters {
			l := &limits[of[start+i]]
			if m.Capacity == 0 {
				continue
			}
			if m.Key == "" {
				l.Any = m
			}
			if !l.Keyed || m.Key != "" || slices.Contains(l.Busiest, "") {
				l.Meters = append(l.Meters, m)
			}
		}
	}
	return nil
}

// Judge says how limits stand, from turn to turn.
type Judge struct {
	// free has the limits that had permits in this turn or the one before, with how
	// many there are now, and spared for how many turns they had while jobs waited.
	free, spared map[string]int
}

// Limits looks at limits, most meters of them, and says how they stand while so many jobs
// wait: first those that most of these wait for. They are sorted twice: before the look,
// which begins with what matters most, and after explain, which may find that fewer wait at
// a limit than its marks say.
func (j *Judge) Limits(ctx context.Context, limiter Looker, k Known, jobs, most int) ([]Limit, error) {
	all := k.limits()
	sortLimits(all)
	if err := Look(ctx, limiter, all, most); err != nil {
		return nil, err
	}
	j.explain(all, jobs)
	for i := range all {
		all[i].judge()
	}
	sortLimits(all)
	return all, nil
}

// sortLimits puts what most waits for first. Its name decides last, so that limits which
// are alike do not change places from turn to turn.
func sortLimits(limits []Limit) {
	slices.SortStableFunc(limits, func(a, b Limit) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(b.All, a.All), strings.Compare(a.Name, b.Name))
	})
}

// spareTurns is for how many turns permits must be there while jobs wait before
// that is said: for a moment they are there each time one comes.
const spareTurns = 3

// explain says of which limits that have permits jobs wait all the same. A job that
// needs several waits for one that has none: only those that no such limit accounts
// for wait for one that has some. Where the full limits account for all, the other is
// said to have none waiting, and its jobs are told of at the limits they wait for.
//
// One turn with permits proves nothing, nor one without: a limit that had some in the
// turn before counts as having some, and is called not full after three in a row. Nor
// does what waits for a moment: a limit where nothing else does counts as having some.
func (j *Judge) explain(limits []Limit, jobs int) {
	free := map[string]int{}
	for i := range limits {
		l := &limits[i]
		n := l.free()
		full := n == 0 && j.free[l.Name] == 0 || l.Binds
		l.Flows = l.Passing && !full
		if full && !l.Passing || l.Waiting == 0 {
			jobs -= l.Waiting
			continue
		}
		free[l.Name] = n
	}
	spared := map[string]int{}
	for i := range limits {
		l := &limits[i]
		n, ok := free[l.Name]
		if !ok {
			continue
		}
		// What the full limits leave over is all that can wait for this one.
		if l.Waiting = max(0, min(l.Waiting, jobs)); l.Waiting == 0 {
			l.Since = time.Time{}
			continue
		}
		if n > 0 && !l.Passing {
			spared[l.Name] = j.spared[l.Name] + 1
		}
		if spared[l.Name] >= spareTurns {
			l.Spare = n
		}
	}
	// Limits that are not among them begin anew when they have permits again.
	j.free, j.spared = free, spared
}

// Limits is how all limits stand, by name.
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
	k := Known{Now: past.now, Forecast: forecast, Lately: past.limits}
	var err error
	if k.Survey, err = history.ReadSurvey(ctx, q.rdb, q.scope); err != nil {
		return nil, err
	}
	if err := k.ReadLimits(ctx, q.Limiter); err != nil {
		return nil, err
	}
	k.Wanted = Surveyed(k.Survey)
	jobs, _, _, err := q.Limiter.Crowd(ctx)
	if err != nil {
		return nil, err
	}
	all, err := q.judge.Limits(ctx, q.Limiter, k, jobs, math.MaxInt)
	slices.SortFunc(all, func(a, b Limit) int { return strings.Compare(a.Name, b.Name) })
	return all, err
}
