package forecast

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

const (
	// If there are more than maxLanes lanes, only someLanes lanes are read. The demand of the other
	// lanes counts as one lane at each of the busiestMeters meters with the highest demand.
	maxLanes      = 2000
	someLanes     = 100
	busiestMeters = 50
	// maxSteps is the most turns that are simulated.
	maxSteps = 100_000
	// The costs of at least minSample jobs of each lane are read. If there are few lanes, more jobs
	// of each lane are read, up to maxSample in all.
	minSample = 16
	maxSample = 2000
	// meterPage and jobPage are the most meters and jobs that one call reads.
	meterPage = 100
	jobPage   = 2000
)

// Make returns a forecast for all waiting jobs. Make changes nothing in Redis. For a thousand lanes
// it takes some milliseconds of Redis's time.
func Make(ctx context.Context, db *waitdb.DB, opts Options) (*Forecast, error) {
	now, err := db.Now(ctx)
	if err != nil {
		return nil, err
	}
	s := newSimulation(now.UnixMicro(), opts)
	if s.weights, err = db.Weights(ctx); err != nil {
		return nil, err
	}
	if err := s.readLanes(ctx, db); err != nil {
		return nil, err
	}
	s.joinAll()
	if err := s.readMeters(ctx, db); err != nil {
		return nil, err
	}
	return s.simulate(maxSteps), nil
}

// readLanes reads the number of waiting jobs of each lane, and a sample of their costs.
func (s *simulation) readLanes(ctx context.Context, db *waitdb.DB) error {
	names, err := db.LaneNames(ctx, 0, maxLanes+1)
	if err != nil {
		return err
	}
	s.Estimated = len(names) > maxLanes
	s.Partial = s.Estimated
	names = slices.DeleteFunc(names, func(name string) bool { return !fairqueue.IsLane(name) })
	if s.Estimated {
		names = names[:min(someLanes, len(names))]
	}
	sample := max(minSample, maxSample/max(1, len(names)))
	for page := range slices.Chunk(names, max(1, jobPage/sample)) {
		backlogs, err := db.ReadLanes(ctx, sample, page...)
		if err != nil {
			return err
		}
		for i, b := range backlogs {
			l := s.lane(page[i])
			l.lastTurn, l.since = b.LastTurn, b.Since
			l.addSample(b.Costs, b.Jobs)
		}
	}
	// The lane whose last turn was longest ago has the next turn. Other lanes stay in their order.
	slices.SortStableFunc(s.order, func(a, b *lane) int { return cmp.Compare(a.lastTurn, b.lastTurn) })
	return nil
}

// addSample adds a number of jobs to a lane. Their costs are those of the sample, spread evenly
// over the lane. An unreadable cost counts as one permit of each meter.
func (l *lane) addSample(sample []string, jobs int) {
	meters := len(fairqueue.Meters(l.name))
	for i, text := range sample {
		of := slices.Repeat([]float64{1}, meters)
		for k, part := range strings.Split(text, ",") {
			if cost, err := strconv.ParseFloat(part, 64); err == nil && k < meters {
				of[k] = cost
			}
		}
		l.add(costs{int64((i+1)*jobs/len(sample) - i*jobs/len(sample)), of})
	}
}

// readMeters reads the meters of all lanes. If not all lanes were read, it also reads the meters
// with the highest demand. At each such meter it adds one lane for the demand of the lanes that
// were not read.
func (s *simulation) readMeters(ctx context.Context, db *waitdb.DB) error {
	names, wanted, lanes := map[string]bool{}, map[string]int64{}, map[string]int64{}
	for _, l := range s.order {
		for i, name := range fairqueue.Meters(l.name) {
			_, permits := l.remaining(i)
			names[name], wanted[name], lanes[name] = true, wanted[name]+permits, lanes[name]+1
		}
	}
	if s.Estimated {
		demands, err := db.Demands(ctx)
		if err != nil {
			return err
		}
		slices.SortFunc(demands, func(a, b waitdb.Demand) int { return cmp.Compare(b.Permits, a.Permits) })
		for _, d := range demands[:min(len(demands), busiestMeters)] {
			names[d.Limit+"|"+d.Key] = true
		}
	}
	for page := range slices.Chunk(slices.Sorted(maps.Keys(names)), meterPage) {
		var needs []throttle.Need
		for _, name := range page {
			needs = append(needs, needOf(name))
		}
		meters, err := db.Meters(ctx, true, needs...)
		if err != nil {
			return err
		}
		for i, m := range meters {
			if m.State == nil { // Redis does not have the limit
				continue
			}
			name := page[i]
			s.meters[name] = newMeter(m, s.startedAt, s.meanDuration(needs[i]))
			if rest := int64(m.Wanted-m.Reserved) - wanted[name]; s.Estimated && rest > 0 {
				l := s.lane("\n" + name)
				l.add(costs{rest, []float64{1}})
				l.known, l.standsFor = rest, max(1, int64(m.Lanes)-lanes[name])
			}
		}
	}
	return nil
}
