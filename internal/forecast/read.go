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

// Bounds of what a forecast reads and simulates.
const (
	// maxLanes is the most lanes that are all read. Of more lanes some are read, and the rest is
	// estimated from the demand at the busiest meters.
	maxLanes = 2000
	// someLanes is the number of lanes that are read if there are too many.
	someLanes = 100
	// maxSteps is the most turns that are simulated.
	maxSteps = 100_000
	// firstJobs is the number of jobs of each lane whose costs are read first.
	firstJobs = 16
	// maxRecords is the most jobs of all lanes that are read if the costs in a lane differ.
	maxRecords = 6000
	// mostWanted is the number of busiest meters that are read if there are too many lanes.
	mostWanted = 50
	// meterPage and lanePage are the most meters and lanes that one call reads.
	meterPage = 100
	lanePage  = 200
)

// Make returns a forecast of the start of all waiting jobs. It changes nothing in Redis, and takes
// some milliseconds of Redis's time for a thousand lanes.
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

// readLanes reads the number of waiting jobs of each lane, and the costs of the first ones. The
// other jobs have the average cost of the first ones, unless readCosts reads more.
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

// addCosts adds jobs to a lane. Texts are the costs of the first ones, and the other jobs get their
// average. A cost that is unreadable counts as one permit of each meter if there is no average.
func (l *lane) addCosts(texts []string, jobs int) {
	mean := make([]float64, len(fairqueue.Meters(l.name)))
	known := 0
	for _, text := range texts {
		var costs []float64
		for text := range strings.SplitSeq(text, ",") {
			cost, _ := strconv.ParseInt(text, 10, 64)
			costs = append(costs, float64(cost))
		}
		if len(costs) != len(mean) {
			continue
		}
		l.add(1, costs)
		known++
		for i, cost := range costs {
			mean[i] += cost
		}
	}
	if known >= jobs {
		return
	}
	for i := range mean {
		if known > 0 {
			mean[i] /= float64(known)
		} else {
			mean[i] = 1
		}
	}
	l.add(int64(jobs-known), mean)
}

// readMeters reads the meters of all lanes, and those of pending and planned jobs.
func (r *reader) readMeters(ctx context.Context) error {
	names := map[string]bool{}
	for _, l := range slices.Concat(r.order, r.pending.lanes, r.plan.lanes) {
		for _, name := range fairqueue.Meters(l.name) {
			names[name] = true
		}
	}
	return r.readStates(ctx, slices.Sorted(maps.Keys(names)), r.meters)
}

// readStates reads the states of meters into a map. It omits meters whose limit Redis does not
// have.
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

// readCosts reads the costs of more jobs of some lanes: if the costs of the first jobs differ, or
// do not add up to the demand at a meter. Of a long lane it reads a sample.
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

// sampleLane reads the costs of all jobs of a lane, or of about as many as records says, in parts
// that are spread over the lane. Jobs between two parts get the average cost of the part before.
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

// readBusiest reads the meters with the highest demand if there are too many lanes to read each. It
// adds an estimate of the time at which the last of the demand at each meter is met.
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
