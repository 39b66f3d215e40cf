package inspect

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/forecast"
	"github.com/headgate/headgate/internal/stats"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// Limit is the state of a limit, as the page, the commands and the metrics show it.
type Limit struct {
	throttle.Limit
	stats.LimitDemand
	// KeyExpr is the expression of the key, such as host(payload.url); empty if there is none or it is
	// unknown.
	KeyExpr string
	// Keyed reports whether the limit has keys. If the expression is unknown, Keyed is guessed from
	// the waiting jobs and the blocks.
	Keyed bool
	// HasShortWait reports whether jobs wait, but none of them for 3 s or more.
	HasShortWait bool
	Blocks       []throttle.Blocked // ordered by their ends
	// DefaultMeter is the meter of the empty key. It is the only meter of a limit without keys. Its
	// rate and capacity are those of every key without an override. It is zero if the limit was
	// deleted, or if too many meters would have to be read.
	DefaultMeter waitdb.Meter
	// Meters are the meters of TopKeys, or DefaultMeter for a limit without keys. For a limit with
	// keys, Meters is empty if no job needs a key.
	Meters []waitdb.Meter
	// Permits, Allowed and Denied are rates per second over the last ten seconds, of all keys.
	Permits, Allowed, Denied float64
	// NextIn is the time until the next permit of any of Meters. It is an estimate unless NextKnown.
	NextIn    time.Duration
	NextKnown bool
	// ETA is the time at which the last waiting or pending job that needs the limit would run.
	ETA forecast.Estimate
	// IsBottleneck reports whether this limit delays some lane more than the lane's other limits do.
	IsBottleneck bool
	State        State
	// Fill is the share of the limit in use, from 0 to 1: the mean over Meters.
	Fill float64
}

// State is a limit's state in a word or two.
type State string

// The states of a limit.
const (
	Paused          State = "paused"
	Blocked         State = "blocked"           // all of it
	Exhausted       State = "exhausted"         // no permit for more than a minute
	WillBeExhausted State = "will be exhausted" // before all waiting jobs have run
	Saturated       State = "saturated"         // jobs wait, and all permits are used at once
	KeysBlocked     State = "keys blocked"
	Flowing         State = "flowing"
	Idle            State = "idle"
)

// setFill sets NextIn, NextKnown and Fill.
func (l *Limit) setFill() {
	l.NextKnown, l.Fill = len(l.Meters) > 0, 0
	for i, m := range l.Meters {
		if i == 0 || m.NextIn < l.NextIn {
			l.NextIn = m.NextIn
		}
		l.NextKnown = l.NextKnown && m.Known
		l.Fill += float64(m.Used()) / float64(m.Capacity) / float64(len(l.Meters))
	}
	if len(l.Meters) > 0 && !l.Keyed && l.DefaultMeter.PerSecond > 0 && !l.Windowed() {
		// The fill of a funnel with capacity 1 would jump between 0 and 1.
		l.Fill = min(l.Permits/l.DefaultMeter.PerSecond, 1)
	}
}

// setState sets State. If several states apply, it takes the one that needs an operator's attention
// most.
func (l *Limit) setState() {
	exhausted := !l.Keyed && l.Fill >= 1 && l.NextIn > time.Minute
	switch blocked := len(l.Blocks) > 0; {
	case l.Paused:
		l.State = Paused
	case blocked && !l.Keyed:
		l.State = Blocked
	case l.Waiting > 0 && l.Windowed() && exhausted:
		l.State = Exhausted
	case l.Waiting > 0 && l.IsBottleneck && !l.Keyed && l.Windowed() && l.Fill < 1:
		l.State = WillBeExhausted
	case l.Waiting > 0 && !l.HasShortWait:
		l.State = Saturated
	case blocked:
		l.State = KeysBlocked
	case l.Permits > 0 || l.Waiting > 0:
		l.State = Flowing
	case exhausted:
		l.State = Exhausted
	default:
		l.State = Idle
	}
}

// Windowed reports whether the limit counts the permits of a period.
func (l *Limit) Windowed() bool {
	return l.Kind == throttle.FixedWindow || l.Kind == throttle.SlidingLog || l.Kind == throttle.SlidingWindow
}

// FullMeters returns the number of full Meters.
func (l *Limit) FullMeters() (n int) {
	for _, m := range l.Meters {
		if m.Used() == m.Capacity {
			n++
		}
	}
	return n
}

// Fullest returns the meter with the greatest share of its permits taken.
func (l *Limit) Fullest() waitdb.Meter {
	fullest := l.DefaultMeter
	for _, m := range l.Meters {
		if m.Used()*fullest.Capacity > fullest.Used()*m.Capacity {
			fullest = m
		}
	}
	return fullest
}

// WaitedFor returns the time for which the oldest job has waited at this limit.
func (l *Limit) WaitedFor(now time.Time) time.Duration {
	if l.Since.IsZero() {
		return 0
	}
	return max(0, now.Sub(l.Since))
}

const (
	// MaxKeys is the number of TopKeys whose meters are read.
	MaxKeys = 5
	// metersPerCall keeps calls short, because Redis executes nothing else during a call.
	metersPerCall = 100
	shortWait     = 3 * time.Second
	// rateWindow is the time over which rates are taken.
	rateWindow = 10 * time.Second
	// RecentWindow is the age of the oldest summary that CountRecent needs.
	RecentWindow = rateWindow + 2*time.Second
)

// Snapshot is the data from which States computes the states of limits.
type Snapshot struct {
	Now    time.Time // by Redis's clock
	Limits []throttle.Limit
	Blocks map[string][]throttle.Blocked // by limit, the next to end first
	// KeyOf returns the expression of a limit's key, or the empty text if the limit has no keys. It
	// may be nil.
	KeyOf    func(limit string) (expr string, known bool)
	Demand   map[string]stats.LimitDemand  // by limit
	Forecast *forecast.Forecast            // nil if nothing waits
	Recent   map[string]stats.LimitSummary // by limit
}

// ReadLimits reads the limits and their blocks, in two or three round trips for each limit. If it
// fails, it leaves the snapshot unchanged.
func (s *Snapshot) ReadLimits(ctx context.Context, limiter *waitdb.DB) error {
	limits, err := limiter.Limits(ctx)
	if err != nil {
		return err
	}
	blocks := map[string][]throttle.Blocked{}
	for _, l := range limits {
		if blocks[l.Name], err = limiter.Blocks(ctx, l.Name); err != nil {
			return err
		}
	}
	s.Limits, s.Blocks = limits, blocks
	return nil
}

// States returns the states of all limits, the highest demand first. It reads at most maxMeters
// meters.
func (s *Snapshot) States(ctx context.Context, limiter *waitdb.DB, maxMeters int) ([]Limit, error) {
	var etas map[string]forecast.Estimate
	bottlenecks := map[string]bool{}
	if s.Forecast != nil {
		etas = s.Forecast.Limits()
		for _, b := range s.Forecast.Backlogs() {
			bottlenecks[b.Limit] = bottlenecks[b.Limit] || b.IsBottleneck
		}
	}
	all := make([]Limit, len(s.Limits))
	for i, limit := range s.Limits {
		l := &all[i]
		l.Limit, l.LimitDemand = limit, s.Demand[limit.Name]
		l.HasShortWait = l.Waiting > 0 && (l.Since.IsZero() || s.Now.Sub(l.Since) < shortWait)
		l.Blocks = slices.DeleteFunc(slices.Clone(s.Blocks[l.Name]), func(b throttle.Blocked) bool { return !b.Until.After(s.Now) })
		l.Keyed = slices.ContainsFunc(l.TopKeys, func(key string) bool { return key != "" }) ||
			slices.ContainsFunc(l.Blocks, func(b throttle.Blocked) bool { return b.Key != "" })
		if s.KeyOf != nil {
			if expr, known := s.KeyOf(l.Name); known {
				l.KeyExpr, l.Keyed = expr, expr != ""
			}
		}
		recent := s.Recent[l.Name]
		l.Permits, l.Allowed, l.Denied = rate(recent.Permits), rate(recent.Allowed), rate(recent.Denied)
		l.ETA = forecast.Estimate{Known: true} // now, if no job needs the limit
		if eta, waits := etas[l.Name]; waits {
			l.ETA = eta
			l.ETA.StartsIn = max(0, s.Forecast.At.Add(eta.StartsIn).Sub(s.Now))
		}
		l.IsBottleneck = bottlenecks[l.Name]
	}
	slices.SortStableFunc(all, func(a, b Limit) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(b.Total, a.Total), strings.Compare(a.Name, b.Name))
	})
	if err := readMeters(ctx, limiter, all, maxMeters); err != nil {
		return nil, err
	}
	for i := range all {
		all[i].setFill()
		all[i].setState()
	}
	return all, nil
}

// readMeters reads for each limit the meter of the empty key and the meters of TopKeys.
func readMeters(ctx context.Context, limiter *waitdb.DB, limits []Limit, maxMeters int) error {
	var needs []throttle.Need
	byName := map[string]*Limit{}
	for i := range limits {
		l := &limits[i]
		byName[l.Name] = l
		l.TopKeys = l.TopKeys[:min(MaxKeys, len(l.TopKeys))]
		needs = append(needs, throttle.Need{Limit: l.Name})
		for _, key := range l.TopKeys {
			if key != "" {
				needs = append(needs, throttle.Need{Limit: l.Name, Key: key})
			}
		}
	}
	for chunk := range slices.Chunk(needs[:min(maxMeters, len(needs))], metersPerCall) {
		meters, err := limiter.Meters(ctx, false, chunk...)
		if err != nil {
			return err
		}
		for _, m := range meters {
			if m.Capacity == 0 { // the limit was deleted
				continue
			}
			l := byName[m.Limit]
			if m.Key == "" {
				l.DefaultMeter = m
			}
			if !l.Keyed || m.Key != "" || slices.Contains(l.TopKeys, "") {
				l.Meters = append(l.Meters, m)
			}
		}
	}
	return nil
}

// CountRecent counts the decisions of each limit, and the jobs of each task that were done, over ten
// whole seconds. It leaves out the last second, whose summaries may not be complete.
func CountRecent(summaries []stats.Summary, now time.Time) (limits map[string]stats.LimitSummary, done map[stats.Task]int64) {
	limits, done = map[string]stats.LimitSummary{}, map[stats.Task]int64{}
	end := now.Truncate(time.Second).Add(-time.Second)
	for _, s := range summaries {
		if !s.At.Before(end) || s.At.Before(end.Add(-rateWindow)) {
			continue
		}
		for name, l := range s.Limits {
			limits[name] = limits[name].Add(l)
		}
		for _, t := range s.Tasks {
			done[t.Task] += t.Ends[stats.Done]
		}
	}
	return limits, done
}

// rate converts a count of CountRecent to a rate per second.
func rate(n int64) float64 { return float64(n) / rateWindow.Seconds() }
