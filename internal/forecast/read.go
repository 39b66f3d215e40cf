package forecast

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// What bounds a forecast: so many lanes are read, so many of each lane's jobs, or of
// all together where their costs differ, and so many turns followed. Of more lanes some
// are read, and it is an estimate by what is wanted of the meters that most is wanted of.
const (
	maxLanes   = 2000
	someLanes  = 100
	maxSteps   = 100_000
	firstJobs  = 16
	maxRecords = 6000
	mostWanted = 50
	meterPage  = 100
	lanePage   = 200
)

// Make says when the jobs that wait would run. It reads all lanes, up to some
// thousands, and how their meters stand, a part at a time: some milliseconds of Redis's
// time for a thousand lanes.
func Make(ctx context.Context, db *waitdb.DB, opts Options) (*Forecast, error) {
	now, err := db.Now(ctx)
	if err != nil {
		return nil, err
	}
	r := &forecastReader{db, newSight(now.UnixMicro(), opts)}
	for _, read := range []func(context.Context) error{r.readWeights, r.readLanes, r.readMeters, r.readCosts, r.readRest} {
		if err := read(ctx); err != nil {
			return nil, err
		}
	}
	return r.s.forecast(maxSteps), nil
}

// forecastReader reads what a forecast is made of.
type forecastReader struct {
	*waitdb.DB
	s *sight
}

// readWeights reads how queues take turns.
func (r *forecastReader) readWeights(ctx context.Context) (err error) {
	r.s.weights, err = r.Weights(ctx)
	return err
}

// readLanes reads who waits: of each lane how many jobs, and what the first of them
// cost. The others are taken to cost the same until readCosts knows better.
func (r *forecastReader) readLanes(ctx context.Context) error {
	names, all, err := r.LaneNames(ctx, maxLanes)
	if err != nil {
		return err
	}
	s := r.s
	s.Lanes = all
	if s.Estimated = s.Lanes > maxLanes; s.Estimated { // by now there may be fewer
		names = names[:min(someLanes, len(names))]
	}
	if lane := s.opts.Lane; s.Estimated && lane != "" && !slices.Contains(names, lane) {
		names = append(names, lane)
	}
	for page := range slices.Chunk(names, lanePage) {
		parts := make([]waitdb.Ranks, len(page))
		for i, name := range page {
			parts[i] = waitdb.Ranks{Lane: name, To: firstJobs}
		}
		waiting, err := r.ReadLanes(ctx, parts)
		if err != nil {
			return err
		}
		for i, w := range waiting {
			q := &queued{name: page[i], turn: w.LastTurn, since: w.Since}
			q.addAll(w.Costs, w.Jobs)
			s.lanes[q.name], s.order = q, append(s.order, q)
		}
	}
	// The lane whose last turn was longest ago has the next. They came in the order of
	// their numbers, so of those without one the first to come is first.
	slices.SortStableFunc(s.order, func(a, b *queued) int { return cmp.Compare(a.turn, b.turn) })
	return nil
}

// addAll adds jobs that cost so, and as many more that cost what these do in the mean
// as there are in all. One that nobody can read costs one permit of each meter.
func (q *queued) addAll(of []string, all int) {
	meters := len(fairqueue.Meters(q.name))
	mean := make([]float64, meters)
	known := 0
	for _, text := range of {
		costs := readCosts(text)
		if len(costs) != meters {
			continue
		}
		q.add(1, costs)
		known++
		for i, cost := range costs {
			mean[i] += cost
		}
	}
	if rest := all - known; rest > 0 {
		for i := range mean {
			if mean[i] /= float64(known); known == 0 {
				mean[i] = 1
			}
		}
		q.add(int64(rest), mean)
	}
}

// readCosts are the costs in a job's record.
func readCosts(text string) (costs []float64) {
	for text := range strings.SplitSeq(text, ",") {
		cost, _ := strconv.ParseInt(text, 10, 64)
		costs = append(costs, float64(cost))
	}
	return costs
}

// readMeters reads how the meters of all lanes stand, and of those of what is pending and planned.
func (r *forecastReader) readMeters(ctx context.Context) error {
	var names []string
	for _, lanes := range [][]*queued{r.s.order, r.s.pending.lanes, r.s.plan.lanes} {
		for _, q := range lanes {
			for _, name := range fairqueue.Meters(q.name) {
				if _, seen := r.s.meters[name]; !seen {
					r.s.meters[name] = nil
					names = append(names, name)
				}
			}
		}
	}
	return r.read(ctx, names)
}

// read reads how meters stand. Those whose limit Redis does not have stay as they are.
func (r *forecastReader) read(ctx context.Context, names []string) error {
	for page := range slices.Chunk(names, meterPage) {
		needs := make([]throttle.Need, len(page))
		for i, name := range page {
			needs[i] = needOf(name)
		}
		meters, err := r.LookDeep(ctx, needs...)
		if err != nil {
			return err
		}
		for i, m := range meters {
			if m.State != nil {
				r.s.meters[page[i]] = courseOf(m, r.s.now, r.s.runs(needs[i]))
			}
		}
	}
	return nil
}

// readCosts reads more jobs of lanes whose first ones cost differently, or do not account
// for what is wanted of some meter: of a long one some that are spread over it.
func (r *forecastReader) readCosts(ctx context.Context) error {
	if r.s.Estimated {
		return nil
	}
	wanted := map[string]float64{}
	for _, q := range r.s.order {
		for i, name := range fairqueue.Meters(q.name) {
			_, permits := q.left(i)
			wanted[name] += float64(permits)
		}
	}
	odd := slices.DeleteFunc(slices.Clone(r.s.order), func(q *queued) bool {
		return q.jobs <= firstJobs || len(q.costs) < 2 && !slices.ContainsFunc(fairqueue.Meters(q.name), func(name string) bool {
			m := r.s.meters[name]
			return m != nil && math.Abs(wanted[name]-float64(m.Wanted)) > 1+wanted[name]/200
		})
	})
	for _, q := range odd {
		if err := r.spread(ctx, q, max(firstJobs, maxRecords/len(odd))); err != nil {
			return err
		}
	}
	return nil
}

// spread reads some jobs of a lane, or all: each of a few in a row stands for those up
// to the next few.
func (r *forecastReader) spread(ctx context.Context, q *queued, records int) error {
	all := int(q.jobs)
	parts := 1
	if all > records {
		parts = records / firstJobs
	}
	stretches := make([]waitdb.Ranks, parts)
	for i := range parts {
		from, to := all*i/parts, all*(i+1)/parts
		if parts > 1 {
			to = min(to, from+firstJobs)
		}
		stretches[i] = waitdb.Ranks{Lane: q.name, From: from, To: to}
	}
	q.costs, q.jobs = nil, 0
	for page := range slices.Chunk(stretches, lanePage) {
		waiting, err := r.ReadLanes(ctx, page)
		if err != nil {
			return err
		}
		for i, w := range waiting {
			next := all
			if k := slices.Index(stretches, page[i]) + 1; k < parts {
				next = stretches[k].From
			}
			q.addAll(w.Costs, next-page[i].From)
		}
	}
	return nil
}

// readRest reads, where there are more lanes than are looked at, how those meters stand
// that most is wanted of, and notes when the last that is wanted of each could be taken.
func (r *forecastReader) readRest(ctx context.Context) error {
	if !r.s.Estimated {
		return nil
	}
	busiest := r.s.opts.Busiest
	if busiest == nil {
		wants, err := r.Demands(ctx)
		if err != nil {
			return err
		}
		slices.SortFunc(wants, func(a, b waitdb.Demand) int { return cmp.Compare(b.Permits, a.Permits) })
		for _, w := range wants[:min(len(wants), mostWanted)] {
			busiest = append(busiest, throttle.Need{Limit: w.Limit, Key: w.Key})
		}
	}
	rest := &sight{opts: r.s.opts, now: r.s.now, defined: r.s.defined}
	rest.meters = map[string]*course{}
	for _, n := range busiest {
		if r.s.meters[meterOf(n)] == nil {
			rest.meters[meterOf(n)] = nil
		}
	}
	var names []string
	for name := range rest.meters {
		names = append(names, name)
	}
	if err := (&forecastReader{r.DB, rest}).read(ctx, names); err != nil {
		return err
	}
	for _, meters := range []map[string]*course{rest.meters, r.s.meters} {
		for _, m := range meters {
			if m != nil && m.Wanted > 0 {
				at := m.ReadyAt(r.s.now, m.Wanted)
				r.s.unread = append(r.s.unread, Estimate{Need: m.Need, Known: at < far, Estimated: true, StartsIn: microseconds(max(0, at-r.s.now))})
			}
		}
	}
	return nil
}
