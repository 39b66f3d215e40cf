package forecast

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// What bounds a forecast: so many lanes are read, so many of each lane's jobs, or of all together
// if their costs differ, and so many turns followed. Of more lanes some are read, and the rest is
// an estimate by what is wanted of the meters that most is wanted of.
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

// Make returns when the jobs that wait would run. It changes nothing, and takes some milliseconds
// of Redis's time for a thousand lanes.
func Make(ctx context.Context, db *waitdb.DB, opts Options) (*Forecast, error) {
	now, err := db.Now(ctx)
	if err != nil {
		return nil, err
	}
	r := &reader{db, newSnapshot(now.UnixMicro(), opts)}
	if r.weights, err = r.Weights(ctx); err != nil {
		return nil, err
	}
	for _, read := range []func(context.Context) error{r.readLanes, r.readMeters, r.readCosts, r.readBusiest} {
		if err := read(ctx); err != nil {
			return nil, err
		}
	}
	return r.simulate(maxSteps), nil
}

// reader reads a snapshot.
type reader struct {
	*waitdb.DB
	*snapshot
}

// readLanes reads of each lane how many jobs wait, and what the first of them cost. The others are
// taken to cost the same until readCosts knows better.
func (r *reader) readLanes(ctx context.Context) error {
	names, all, err := r.LaneNames(ctx, maxLanes)
	if err != nil {
		return err
	}
	r.snapshot.Lanes = all
	if r.Estimated = all > maxLanes; r.Estimated { // by now there may be fewer
		names = names[:min(someLanes, len(names))]
	}
	if lane := r.opts.Lane; r.Estimated && lane != "" && !slices.Contains(names, lane) {
		names = append(names, lane)
	}
	for page := range slices.Chunk(names, lanePage) {
		ranks := make([]waitdb.Ranks, len(page))
		for i, name := range page {
			ranks[i] = waitdb.Ranks{Lane: name, To: firstJobs}
		}
		backlogs, err := r.ReadLanes(ctx, ranks)
		if err != nil {
			return err
		}
		for i, b := range backlogs {
			l := &lane{name: page[i], lastTurn: b.LastTurn, since: b.Since}
			l.addCosts(b.Costs, b.Jobs)
			r.lanes[l.name], r.order = l, append(r.order, l)
		}
	}
	// The lane whose last turn was longest ago has the next. Lanes come in the order of their
	// numbers, so of those without a turn the first to come is first.
	slices.SortStableFunc(r.order, func(a, b *lane) int { return cmp.Compare(a.lastTurn, b.lastTurn) })
	return nil
}

// addAll adds jobs that cost so, and the rest of all jobs at their average. A cost that cannot be
// read is one permit of each meter.
func (l *lane) addCosts(of []string, all int) {
	meters := len(fairqueue.Meters(l.name))
	mean := make([]float64, meters)
	known := 0
	for _, text := range of {
		var costs []float64
		for text := range strings.SplitSeq(text, ",") {
			cost, _ := strconv.ParseInt(text, 10, 64)
			costs = append(costs, float64(cost))
		}
		if len(costs) != meters {
			continue
		}
		l.add(1, costs)
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
		l.add(int64(rest), mean)
	}
}

// readMeters reads how the meters of all lanes stand, also of pending and planned jobs.
func (r *reader) readMeters(ctx context.Context) error {
	names := map[string]bool{}
	for _, l := range slices.Concat(r.order, r.pending.lanes, r.plan.lanes) {
		for _, name := range fairqueue.Meters(l.name) {
			names[name] = true
		}
	}
	return r.readStates(ctx, slices.Sorted(maps.Keys(names)), r.meters)
}

// look reads how meters stand. Those whose limit Redis does not have are left out.
func (r *reader) readStates(ctx context.Context, names []string, into map[string]*simMeter) error {
	for page := range slices.Chunk(names, meterPage) {
		needs := make([]throttle.Need, len(page))
		for i, name := range page {
			needs[i] = needOf(name)
		}
		meters, err := r.MeterStates(ctx, needs...)
		if err != nil {
			return err
		}
		for i, m := range meters {
			if m.State != nil {
				into[page[i]] = readMeter(m, r.now, r.meanDuration(needs[i]))
			}
		}
	}
	return nil
}

// readCosts reads more jobs of lanes whose first ones cost differently, or do not account for what
// is wanted of some meter: of a long lane some that are spread over it.
func (r *reader) readCosts(ctx context.Context) error {
	if r.Estimated {
		return nil
	}
	wanted := map[string]float64{}
	for _, l := range r.order {
		for i, name := range fairqueue.Meters(l.name) {
			_, permits := l.remaining(i)
			wanted[name] += float64(permits)
		}
	}
	uneven := slices.DeleteFunc(slices.Clone(r.order), func(l *lane) bool {
		return l.jobs <= firstJobs || len(l.costs) < 2 && !slices.ContainsFunc(fairqueue.Meters(l.name), func(name string) bool {
			m := r.meters[name]
			return m != nil && math.Abs(wanted[name]-float64(m.Wanted)) > 1+wanted[name]/200
		})
	})
	for _, l := range uneven {
		if err := r.sampleLane(ctx, l, max(firstJobs, maxRecords/len(uneven))); err != nil {
			return err
		}
	}
	return nil
}

// readSome reads some jobs of a lane, or all: each of a few in a row stands for those up to the
// next few.
func (r *reader) sampleLane(ctx context.Context, l *lane, records int) error {
	all, parts := int(l.jobs), 1
	if all > records {
		parts = records / firstJobs
	}
	ranks := make([]waitdb.Ranks, parts)
	for i := range parts {
		from, to := all*i/parts, all*(i+1)/parts
		if parts > 1 {
			to = min(to, from+firstJobs)
		}
		ranks[i] = waitdb.Ranks{Lane: l.name, From: from, To: to}
	}
	l.costs, l.jobs = nil, 0
	done := 0
	for page := range slices.Chunk(ranks, lanePage) {
		backlogs, err := r.ReadLanes(ctx, page)
		if err != nil {
			return err
		}
		for i, b := range backlogs {
			next := all
			if done++; done < parts {
				next = ranks[done].From
			}
			l.addCosts(b.Costs, next-page[i].From)
		}
	}
	return nil
}

// readRest reads, if there are too many lanes, how the meters stand that most is wanted of, and
// notes when the last that is wanted of each could be taken.
func (r *reader) readBusiest(ctx context.Context) error {
	if !r.Estimated {
		return nil
	}
	busiest := r.opts.Busiest
	if busiest == nil {
		demands, err := r.Demands(ctx)
		if err != nil {
			return err
		}
		slices.SortFunc(demands, func(a, b waitdb.Demand) int { return cmp.Compare(b.Permits, a.Permits) })
		for _, d := range demands[:min(len(demands), mostWanted)] {
			busiest = append(busiest, throttle.Need{Limit: d.Limit, Key: d.Key})
		}
	}
	meters := maps.Clone(r.meters)
	var names []string
	for _, n := range busiest {
		if name := meterOf(n); meters[name] == nil {
			names = append(names, name)
		}
	}
	if err := r.readStates(ctx, names, meters); err != nil {
		return err
	}
	for _, m := range meters {
		if m != nil && m.Wanted > 0 {
			at := m.ReadyAt(r.now, m.Wanted)
			r.unread = append(r.unread, Estimate{Need: m.Need, Known: at < far, Estimated: true, StartsIn: microseconds(max(0, at-r.now))})
		}
	}
	return nil
}
