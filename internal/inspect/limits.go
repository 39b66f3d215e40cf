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

// Limit is how a limit stands. The page, the commands and the metrics draw it, and judge
// nothing themselves.
type Limit struct {
	throttle.Limit
	// By is what it counts by, such as host(payload.url), if that is known, and Keyed
	// whether it has keys at all. Where nobody knows that, Keyed goes by what waits and is
	// blocked: a limit with keys that nobody wants looks like one without.
	KeyExpr string
	Keyed   bool
	stats.LimitDemand
	// Passing is whether nothing has waited here for long: a
	// job is denied for a moment while others have the turn, and comes at once.
	IsBrief bool
	Blocks  []throttle.Blocked // those that open first in front
	// Any is the meter of the empty key: that of a limit without keys, and of any limit what
	// a key without a rate of its own may take. Meters are its only one, or those of the
	// busiest keys. It has none where no key is wanted, or too many limits were looked at
	// before it.
	DefaultMeter waitdb.Meter
	Meters       []waitdb.Meter
	// What all its keys gave a second lately, and what was decided.
	Permits, Allowed, Denied float64
	// NextIn is how long until the next permit of any of Meters: an estimate unless Known.
	NextIn    time.Duration
	NextKnown bool
	// Last is when the last job runs that waits and needs the limit, whatever else it waits
	// for, as the forecast says.
	ETA forecast.Estimate
	// Binds is whether jobs wait longest for this limit, or will.
	IsBottleneck bool
	State        State
	// Fill is how full the limit is, from 0 to 1, of several keys their mean.
	Fill float64
}

// State is how a limit stands in a word or two.
type State string

// The states. "Used up" is a limit without keys that has nothing left for more than a
// minute, "saturated" one that gives all it has to those who wait, which is what limits are
// for, and so no trouble.
const (
	Paused          State = "paused"
	Blocked         State = "blocked" // for all
	Exhausted       State = "exhausted"
	WillBeExhausted State = "will be exhausted"
	Saturated       State = "saturated"
	KeysBlocked     State = "keys blocked"
	Flowing         State = "flowing"
	Idle            State = "idle"
)

// judge says how the limit stands. What an operator would do something about comes first: a
// pause, a block of all, what waits, blocks of single keys; then whether it is in use. It
// comes after Look.
func (l *Limit) judge() {
	// One meter of which nobody knows makes the limit's last permit unknown.
	l.NextKnown = len(l.Meters) > 0
	for i, m := range l.Meters {
		if i == 0 || m.NextIn < l.NextIn {
			l.NextIn = m.NextIn
		}
		l.NextKnown = l.NextKnown && m.Known
	}
	l.fill()
	// Of a limit without keys the one that is blocked is the empty one: all of it.
	usedUp := !l.Keyed && l.Fill >= 1 && l.NextIn > time.Minute
	switch blocked := len(l.Blocks) > 0; {
	case l.Paused:
		l.State = Paused
	case blocked && !l.Keyed:
		l.State = Blocked
	case l.Waiting > 0 && l.Windowed() && usedUp:
		l.State = Exhausted
	case l.Waiting > 0 && l.IsBottleneck && !l.Keyed && l.Windowed() && l.Fill < 1:
		l.State = WillBeExhausted
	case l.Waiting > 0 && !l.IsBrief:
		l.State = Saturated
	case blocked:
		l.State = KeysBlocked
	case l.Permits > 0 || l.Waiting > 0:
		l.State = Flowing
	case usedUp:
		l.State = Exhausted
	default:
		l.State = Idle
	}
}

// fill says how full the limit is: of a window or of slots, what is taken; of a
// funnel, whose permits come one by one, how fast they are taken: where it gives one at
// a time, what is taken would jump between all and nothing.
func (l *Limit) fill() {
	if len(l.Meters) == 0 {
		return
	}
	if !l.Keyed && l.DefaultMeter.PerSecond > 0 && !l.Windowed() {
		l.Fill = min(l.Permits/l.DefaultMeter.PerSecond, 1)
		return
	}
	for _, m := range l.Meters {
		l.Fill += float64(m.Used()) / float64(m.Capacity) / float64(len(l.Meters))
	}
}

// Windowed reports whether the limit counts what was taken in a period.
func (l *Limit) Windowed() bool {
	return l.Kind == throttle.FixedWindow || l.Kind == throttle.SlidingLog || l.Kind == throttle.SlidingWindow
}

// Full is how many of its meters are.
func (l *Limit) FullMeters() (n int) {
	for _, m := range l.Meters {
		if m.Used() == m.Capacity {
			n++
		}
	}
	return n
}

// Fullest is the meter that the greatest share is taken of, the empty key's among them.
func (l *Limit) Fullest() waitdb.Meter {
	fullest := l.DefaultMeter
	for _, m := range l.Meters {
		if m.Used()*fullest.Capacity > fullest.Used()*m.Capacity {
			fullest = m
		}
	}
	return fullest
}

// WaitedFor is for how long the job has waited that waits longest here.
func (l *Limit) WaitedFor(now time.Time) time.Duration {
	if l.Since.IsZero() {
		return 0
	}
	return max(0, now.Sub(l.Since))
}

// Busiest is how many keys of a limit are looked at: those that most wait for. They tell of
// a limit with a million keys whether those that most wait for are full.
const BusiestKeys = 5

// looks is how many meters are looked at at once: Redis does nothing else meanwhile.
const looks = 100

// Known is what was read of limits.
type Snapshot struct {
	Now    time.Time // by Redis's clock
	Limits []throttle.Limit
	Blocks map[string][]throttle.Blocked // by limit, those that open first in front
	// KeyOf says what a limit counts by, the empty text where it has no keys. Nil means that
	// only what waits can tell.
	KeyOf    func(limit string) (by string, known bool)
	Demand   map[string]stats.LimitDemand // by limit
	Forecast *forecast.Forecast           // nil where nothing waits
	Recent   map[string]stats.LimitSummary
}

// ReadLimits reads the limits and their blocks: two round trips for each limit, and a third
// where keys of it are blocked. Where that fails, what was known stays.
func (k *Snapshot) Refresh(ctx context.Context, limiter *waitdb.DB) error {
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
	k.Limits, k.Blocks = limits, blocks
	return nil
}

// Counted are the limits with what waits for them.
func (k Snapshot) LimitsWithDemand() []Limit {
	lasts, binding := map[string]forecast.Estimate{}, []throttle.Need(nil)
	if k.Forecast != nil {
		lasts, binding = k.Forecast.Limits(), k.Forecast.Bottlenecks()
	}
	all := make([]Limit, len(k.Limits))
	for i, limit := range k.Limits {
		l := &all[i]
		l.Limit, l.LimitDemand = limit, k.Demand[limit.Name]
		l.IsBrief = l.Waiting > 0 && (l.Since.IsZero() || k.Now.Sub(l.Since) < passing)
		l.Blocks = slices.DeleteFunc(slices.Clone(k.Blocks[l.Name]), func(b throttle.Blocked) bool { return !b.Until.After(k.Now) })
		// A block of a key says that there are keys, also when nobody waits for one.
		l.Keyed = slices.ContainsFunc(l.BusiestKeys, func(key string) bool { return key != "" }) ||
			slices.ContainsFunc(l.Blocks, func(b throttle.Blocked) bool { return b.Key != "" })
		// The config knows better than what happens to wait just now.
		if by, known := k.keyOf(l.Name); known {
			l.KeyExpr, l.Keyed = by, by != ""
		}
		of := k.Recent[l.Name]
		l.Permits, l.Allowed, l.Denied = aSecond(of.Permits), aSecond(of.Allowed), aSecond(of.Denied)
		l.ETA = forecast.Estimate{Known: true} // at once, where none waits
		if last, waits := lasts[l.Name]; waits {
			l.ETA = last
			l.ETA.StartsIn = max(0, k.Forecast.At.Add(last.StartsIn).Sub(k.Now))
		}
		l.IsBottleneck = slices.ContainsFunc(binding, func(n throttle.Need) bool { return n.Limit == l.Name })
	}
	return all
}

// keyOf asks KeyOf, which is the program's. If that panics nothing is known: it is called while
// a page is read for all viewers.
func (k Snapshot) keyOf(limit string) (by string, known bool) {
	if k.KeyOf == nil {
		return "", false
	}
	defer func() {
		if recover() != nil {
			by, known = "", false
		}
	}()
	return k.KeyOf(limit)
}

// Recent is how far back the summaries reach that rates are made of, recently the whole
// seconds among them: a limit of one permit in 2 s would be at 0 and 1 in turn otherwise.
const (
	RecentWindow = recently + 2*time.Second
	recently     = 10 * time.Second
)

// Lately is what was decided of each limit, and how many jobs of each task were done, within
// the last whole seconds. The very last may not be told yet and is left out, as is the one that
// is underway.
func CountRecent(summaries []stats.Summary, now time.Time) (limits map[string]stats.LimitSummary, done map[stats.Task]int64) {
	limits, done = map[string]stats.LimitSummary{}, map[stats.Task]int64{}
	end := now.Truncate(time.Second).Add(-time.Second)
	for _, s := range summaries {
		if !s.At.Before(end) || s.At.Before(end.Add(-recently)) {
			continue
		}
		for name, of := range s.Limits {
			limits[name] = limits[name].Add(of)
		}
		for _, t := range s.Tasks {
			done[t.Task] += t.Ends[stats.Done]
		}
	}
	return limits, done
}

// passing is how long a job may wait for its turn without being held up.
const passing = 3 * time.Second

// aSecond is how many a second so many of lately are.
func aSecond(n int64) float64 { return float64(n) / recently.Seconds() }

// Looker looks at meters, a hundred at a time.
type MeterReader interface {
	Look(ctx context.Context, needs ...throttle.Need) ([]waitdb.Meter, error)
}

// Look asks how the limits' meters stand: of each that of the empty key and those of the
// busiest keys, most in all. A limit that was deleted since it was read gets none.
func ReadMeters(ctx context.Context, limiter MeterReader, limits []Limit, most int) error {
	var needs []throttle.Need
	named := map[string]*Limit{}
	for i := range limits {
		l := &limits[i]
		named[l.Name] = l
		l.BusiestKeys = l.BusiestKeys[:min(BusiestKeys, len(l.BusiestKeys))]
		needs = append(needs, throttle.Need{Limit: l.Name})
		for _, key := range l.BusiestKeys {
			if key != "" {
				needs = append(needs, throttle.Need{Limit: l.Name, Key: key})
			}
		}
	}
	for some := range slices.Chunk(needs[:min(most, len(needs))], looks) {
		meters, err := limiter.Look(ctx, some...)
		if err != nil {
			return err
		}
		for _, m := range meters {
			if m.Capacity == 0 {
				continue
			}
			l := named[m.Limit]
			if m.Key == "" {
				l.DefaultMeter = m
			}
			if !l.Keyed || m.Key != "" || slices.Contains(l.BusiestKeys, "") {
				l.Meters = append(l.Meters, m)
			}
		}
	}
	return nil
}

// Read says how the limits stand, most meters of them, what most waits for first. Its name
// decides last, so that limits which are alike do not change places from turn to turn.
func (k Snapshot) ReadLimitStates(ctx context.Context, limiter MeterReader, most int) ([]Limit, error) {
	all := k.LimitsWithDemand()
	slices.SortStableFunc(all, func(a, b Limit) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(b.Total, a.Total), strings.Compare(a.Name, b.Name))
	})
	if err := ReadMeters(ctx, limiter, all, most); err != nil {
		return nil, err
	}
	for i := range all {
		all[i].judge()
	}
	return all, nil
}
