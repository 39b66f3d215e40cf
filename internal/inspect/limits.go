package inspect

import (
	"context"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/forecast"
	"github.com/headgate/headgate/internal/stats"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// Limit is the state of a limit, as the page, the commands and the metrics show it.
type Limit struct {
	Definition // Keys is nil; Blocks are sorted by Until
	stats.LimitDemand
	KeyExpr string // expression of the key, such as host(payload.url), if it is known
	// Keyed reports whether the limit has keys. If the expression is unknown, Keyed is guessed from
	// the waiting jobs and the blocks.
	Keyed         bool
	WaitsAreShort bool // jobs wait for the limit now, but none of them for 3 s or more, as far as known
	// DefaultMeter is the meter of the empty key. Its rate and capacity are those of every key
	// without an override. It is zero if the limit was deleted.
	DefaultMeter waitdb.Meter
	// Meters are the meters of TopKeys, or DefaultMeter for a limit without keys. For a limit with
	// keys, Meters is empty if no job needs a key.
	Meters []waitdb.Meter
	// Permits are the permits taken, Allowed and Denied the calls allowed and denied: each per
	// second over the last ten seconds, for all keys together.
	Permits, Allowed, Denied float64
	// NextIn is the time until the next permit of any of Meters. If NextKnown is false, NextIn is
	// only an estimate.
	NextIn    time.Duration
	NextKnown bool
	ETA       forecast.Estimate // of the last waiting or pending job that needs the limit
	// IsBottleneck reports whether some waiting or pending job will have waited longer for this limit
	// than for its other limits when it starts.
	IsBottleneck bool
	State        State
	// Fill is the share of the limit in use, from 0 to 1: the mean over Meters. For a funnel or a
	// bucket without keys it is the share of the rate that was used in the last ten seconds.
	Fill float64
}

// State is a limit's state in a word or two.
type State string

// The states of a limit.
const (
	Paused          State = "paused"
	Blocked         State = "blocked"           // blocked, and the limit has no keys
	Exhausted       State = "exhausted"         // the next permit comes in more than a minute
	WillBeExhausted State = "will be exhausted" // exhausted before all waiting jobs have run
	Saturated       State = "saturated"         // the limit has held a job back for 3 s or more: jobs take each permit as it comes
	KeysBlocked     State = "keys blocked"
	Flowing         State = "flowing"
	Idle            State = "idle"
)

// add adds what was read of the limit in one scope. name is the limit's name there.
func (l *Limit) add(scope scopeStatus, name string, s *Status) {
	demand, decided := scope.limits[name], scope.decided[name]
	l.Waiting += demand.Waiting
	l.WaitingPermits += demand.WaitingPermits
	l.Total += demand.Total
	l.HoldsJobs = l.HoldsJobs || demand.HoldsJobs
	if l.Since.IsZero() || !demand.Since.IsZero() && demand.Since.Before(l.Since) {
		l.Since = demand.Since
	}
	l.Permits += rate(max(0, decided.Permits))
	l.Allowed += rate(decided.Allowed)
	l.Denied += rate(decided.Denied)
	for _, b := range scope.backlogs[name] {
		l.ETA = s.rebase(scope.forecast, b.Last).OrLater(l.ETA)
		l.IsBottleneck = l.IsBottleneck || b.IsBottleneck
	}
	for _, m := range scope.meters {
		if m.Limit == name && m.Capacity > 0 { // else the limit was deleted
			l.Meters = joinMeter(l.Meters, m)
		}
	}
}

// complete sets the fields that are computed from what was read.
func (l *Limit) complete(s *Status, keyOf func(limit string) (expr string, known bool)) {
	demand := s.Demand[l.Name]
	l.KeyCount = len(demand)
	for _, d := range demand[:min(MaxKeys, len(demand))] {
		l.TopKeys = append(l.TopKeys, d.Key)
	}
	l.WaitsAreShort = l.HoldsJobs && (l.Since.IsZero() || s.At.Sub(l.Since) < shortWait)
	l.Blocks = slices.DeleteFunc(l.Blocks, func(b throttle.Blocked) bool { return !b.Until.After(s.At) })
	slices.SortStableFunc(l.Blocks, func(a, b throttle.Blocked) int { return a.Until.Compare(b.Until) })
	l.Keyed = slices.ContainsFunc(l.TopKeys, func(key string) bool { return key != "" }) ||
		slices.ContainsFunc(l.Blocks, func(b throttle.Blocked) bool { return b.Key != "" })
	if keyOf != nil {
		if expr, known := keyOf(l.Name); known {
			l.KeyExpr, l.Keyed = expr, expr != ""
		}
	}
	l.Meters = slices.DeleteFunc(l.Meters, func(m waitdb.Meter) bool {
		if m.Key == "" {
			l.DefaultMeter = m
		}
		return !slices.Contains(l.TopKeys, m.Key) && (l.Keyed || m.Key != "")
	})
	l.NextKnown = len(l.Meters) > 0
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
	l.setState()
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
	case l.HoldsJobs && !l.WaitsAreShort:
		l.State = Saturated
	case l.Waiting > 0 && l.IsBottleneck && !l.HoldsJobs && !l.Keyed && l.Windowed() && l.Fill < 1:
		l.State = WillBeExhausted
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

const (
	// MaxKeys is the number of TopKeys whose meters are read.
	MaxKeys   = 5
	shortWait = 3 * time.Second
)

// MeterNeeds returns the meters that are read of a limit: the meter of the empty key, and those of
// the first MaxKeys keys.
func MeterNeeds(limit string, keys []string) []throttle.Need {
	needs := []throttle.Need{{Limit: limit}}
	for _, key := range keys[:min(MaxKeys, len(keys))] {
		if key != "" {
			needs = append(needs, throttle.Need{Limit: limit, Key: key})
		}
	}
	return needs
}

// ReadMeters reads meters, a hundred in each call, because Redis does nothing else during a call.
func ReadMeters(ctx context.Context, limiter *waitdb.DB, needs []throttle.Need) (meters []waitdb.Meter, err error) {
	for chunk := range slices.Chunk(needs, 100) {
		some, err := limiter.Meters(ctx, false, chunk...)
		if err != nil {
			return nil, err
		}
		meters = append(meters, some...)
	}
	return meters, nil
}
