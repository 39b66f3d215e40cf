package throttle

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/duration"
	"github.com/headgate/headgate/internal/meter"
	"github.com/headgate/headgate/internal/zone"
)

// Kind is the algorithm of a limit, which determines its guarantee. As a rule of thumb, use Funnel
// for an even rate, SlidingLog if the upstream counts strictly, FixedWindow for a quota of a day or
// a month, and Concurrency to bound what runs at once.
type Kind string

// The kinds of limit. W is the length of any window of time by the limiter's clock. N is the number
// of permits of the rate.
const (
	// Funnel is a leaky bucket, kept as GCRA (ITU-T I.371): in any W it lets at most Capacity +
	// Rate·W permits through. With Capacity 1 calls are evenly spaced.
	Funnel Kind = "funnel"
	// TokenBucket has the same guarantee as Funnel, described differently: it has Capacity tokens
	// at first, and is refilled at Rate.
	TokenBucket Kind = "token_bucket"
	// FixedWindow lets N through in each window. An hour, day, week or month follows the calendar
	// of the Zone; other windows start at multiples of the period. Around a boundary between two
	// windows, 2·N can pass in a short time. The machine has the time zones, or the program imports
	// time/tzdata.
	FixedWindow Kind = "fixed_window"
	// SlidingLog lets N through in every window of one period, exactly. It keeps the times of the
	// last N permits, about 10 bytes each.
	SlidingLog Kind = "sliding_log"
	// SlidingWindow is SlidingLog in bounded memory, for a large N: it counts 60 parts of the
	// period, and never lets more than N through. A permit can become free up to 1/60 of a period
	// late.
	SlidingWindow Kind = "sliding_window"
	// Concurrency lets Capacity permits be held at once. Each call's permits are a lease. The
	// holder gives the lease back when its work is done, and extends it until then. A lease that is
	// not extended in time ends.
	Concurrency Kind = "concurrency"
)

var kinds = []string{string(Funnel), string(TokenBucket), string(FixedWindow), string(SlidingLog), string(SlidingWindow), string(Concurrency)}

// UnmarshalText reads a kind's name. Its error, a [*FieldError], lists the valid names.
func (k *Kind) UnmarshalText(text []byte) error {
	if !slices.Contains(kinds, string(text)) {
		return fieldError("kind", string(text), "want one of %s", strings.Join(kinds, ", "))
	}
	*k = Kind(text)
	return nil
}

// Limit is a named bound. A limit counts the permits of each key (a host, an account) separately:
// the counter of one key is a meter. For example, a limit of 1/s with the host as the key allows
// one call a second to each host.
//
// Name, Kind and Rate are required; Concurrency requires Capacity instead of Rate. The zero value
// of every other field is a sensible default. Methods that take limits return the error of
// [Limit.Validate]. They copy limits, so a Limit can be changed and used again.
type Limit struct {
	// Name identifies the limit: up to 100 letters, digits and _ . : -
	Name string
	// Kind is how the limit counts. Required.
	Kind Kind `yaml:"kind"`
	// Rate is the number of permits per period. It is required for all kinds except concurrency,
	// which has no rate. In a config file a limit can be just a rate, which means a `sliding_log`
	// with that rate.
	Rate Rate `yaml:"rate" short:""`
	// Capacity is the largest number of permits that can be taken at once. A job with a higher cost
	// never runs. For kinds that count in windows it is the N of the rate, and is left out. For
	// concurrency it is required. The zero value means `1`.
	Capacity int `yaml:"capacity"`
	// Margin lengthens the period, so that a strict server does not count a call too many because
	// of network jitter. A fixed window opens later and closes earlier by the margin instead. The
	// zero value means none.
	Margin time.Duration `yaml:"margin"`
	// Zone is the time zone whose calendar a fixed window follows, by its IANA name. The zero value
	// means `UTC`.
	Zone string `yaml:"zone"`
	// Apps are the apps that may use the limit, by exact name. For other apps the limit does not
	// exist. The zero value means all.
	Apps []string `yaml:"apps"`
	// Lease is how long a permit of a concurrency limit stays taken after its holder has died, a
	// second at least. The zero value means `30s`.
	Lease time.Duration `yaml:"lease"`
	// MaxBlock is the longest time for which a response of the upstream, such as 429 with
	// Retry-After, blocks a key. It is at least a second. The zero value means a day, or the period
	// if that is longer.
	MaxBlock time.Duration `yaml:"max_block"`
	// Adapt lowers the rate of a key while the upstream rate limits its calls or is slow. A fixed
	// window and a concurrency limit cannot adapt. The zero value means off.
	Adapt *Adapt `yaml:"adapt"`
	// Overrides are keys with another rate or capacity. If tasks in a config file use the limit
	// with `key: host(…)`, the hosts here are normalized too.
	Overrides map[string]Override `yaml:"overrides"`
	// Paused reports whether the limit is paused. Pause and Resume change it. Define and Set ignore
	// it.
	Paused bool
}

// Validate returns all errors of the limit joined, or nil. Each is a [*FieldError]. For an invalid
// override, Field is "overrides" and Value is the key.
func (l Limit) Validate() error {
	var f faults
	f.want(isName(l.Name), "name", l.Name, wantName)
	l.validateKind(&f)
	if l.Kind != Concurrency {
		f = append(f, l.Rate.validate())
		f.want(l.Lease == 0, "lease", l.Lease, "only a concurrency limit has leases")
	}
	f.want(l.Lease == 0 || l.Lease >= time.Second, "lease", l.Lease, "want at least 1s")
	f.want(l.Lease <= maxFill, "lease", l.Lease, "want at most a hundred years")
	blocks := l.MaxBlock >= time.Second && l.MaxBlock <= maxFill
	f.want(l.MaxBlock == 0 || blocks, "max_block", l.MaxBlock, "want at least 1s and at most a hundred years")
	bound, words := l.Rate.Per, "the period"
	if l.Kind == FixedWindow {
		bound, words = l.Rate.Per/2, "half of the period"
	}
	margin := l.Margin >= 0 && l.Margin%time.Microsecond == 0 && (l.Rate.Per <= 0 || l.Margin < bound)
	f.want(margin, "margin", l.Margin, "want whole microseconds, from 0 to less than %s %s", words, duration.Exact(l.Rate.Per))
	f.want(l.Zone == "" || l.Kind == FixedWindow, "zone", l.Zone, "only a fixed_window limit follows a calendar")
	_, err := zone.Load(l.Zone)
	f.want(err == nil, "zone", l.Zone, "%v", err)
	if l.Adapt != nil {
		l.validateAdapt(&f)
	}
	for _, key := range slices.Sorted(maps.Keys(l.Overrides)) {
		if err := cmp.Or(validMeter(l.Name, key), l.Overrides[key].validate(l)); err != nil {
			f.want(false, "overrides", key, "%v", strings.ReplaceAll(err.Error(), "\n", "; "))
		}
	}
	for _, app := range l.Apps {
		f.want(isName(app), "apps", app, wantName)
	}
	return errors.Join(f...)
}

// validate returns the errors of the first invalid limit, or nil if all are valid.
func validate(limits ...Limit) error {
	defined := map[string]bool{}
	for _, l := range limits {
		if err := l.Validate(); err != nil {
			return fmt.Errorf("limit %s: %w", l.Name, err)
		}
		if defined[l.Name] {
			return fmt.Errorf("limit %s is defined twice: want a name for each limit", l.Name)
		}
		defined[l.Name] = true
	}
	return nil
}

// validateKind checks the kind, and the fields that only some kinds have.
func (l Limit) validateKind(f *faults) {
	switch l.Kind {
	case Funnel, TokenBucket:
		within := l.Capacity >= 0 && l.Capacity <= maxPermits
		f.want(within, "capacity", l.Capacity, "want 1 to %d", maxPermits)
		fills := !within || l.Rate.N <= 0 || float64(l.MaxCost())*l.Rate.Per.Hours()/float64(l.Rate.N) <= maxFill.Hours()
		f.want(fills, "capacity", l.Capacity, "at %s it takes over a hundred years to fill; want less", l.Rate)
	case FixedWindow, SlidingLog, SlidingWindow:
		f.want(l.Capacity == 0 || l.Capacity == l.Rate.N, "capacity", l.Capacity, "a %s limit has the capacity of its rate, %d; leave it out", l.Kind, l.Rate.N)
		f.want(l.Kind != SlidingLog || l.Rate.N <= maxLog, "rate", l.Rate, "a sliding_log keeps every time, at most %d; use sliding_window", maxLog)
	case Concurrency:
		f.want(l.Capacity >= 1 && l.Capacity <= maxPermits, "capacity", l.Capacity, "want how many may run at once, 1 to %d", maxPermits)
		f.want(l.Rate == Rate{}, "rate", l.Rate, "a concurrency limit has no rate, only a capacity")
	default:
		f.want(false, "kind", string(l.Kind), "want one of %s", strings.Join(kinds, ", "))
	}
}

// validateAdapt checks Adapt. It compares Min with the limit's own rate only if that rate is valid.
func (l Limit) validateAdapt(f *faults) {
	switch l.Kind {
	case Funnel, TokenBucket, SlidingLog, SlidingWindow:
	default:
		f.want(false, "adapt", l.Adapt.text(), "a %s limit cannot adapt; want funnel, token_bucket, sliding_log or sliding_window", l.Kind)
		return
	}
	latency := l.Adapt.Latency
	f.want(latency >= 0 && latency%time.Microsecond == 0, "adapt.latency", latency, "want how long a call may take, in whole microseconds")
	if least := l.Adapt.Min; least != (Rate{}) && l.Rate.validate() == nil {
		slower := least.validate() == nil && perSecond(least) <= perSecond(l.Rate)
		f.want(slower, "adapt.min", least, "want a rate, at most the limit's own %s", l.Rate)
	}
}

// validate checks an override of the limit l, and the limit that the key would have with it. For
// the kinds that count in windows it checks the override's own capacity, because l's capacity is
// the N of l's rate.
func (o Override) validate(l Limit) error {
	var f faults
	if o.Rate == (Rate{}) && o.Capacity == 0 {
		f = append(f, &FieldError{"rate", "missing", "want the key's own rate, such as 1/10s, or its capacity"})
	}
	if l.Kind == FixedWindow && o.Rate != (Rate{}) {
		per := Rate{1, l.Rate.Per}.String()
		f.want(o.Rate.Per == l.Rate.Per, "rate", o.Rate, "want N%s: the keys of a fixed_window share its windows", per[1:])
	}
	l.Overrides, l.Adapt = nil, nil
	if l = l.With(o); l.Kind == FixedWindow || l.Kind == SlidingLog || l.Kind == SlidingWindow {
		l.Capacity = o.Capacity
	}
	return errors.Join(append(f, l.Validate())...)
}

// maxFill is the longest valid time in which all permits of a limit become available again. It is
// also the longest lease and block. Lua's numbers are exact up to 2^53 µs, and today plus a hundred
// years is less.
const maxFill = 100 * 365 * Day

// maxLog is the largest N of a sliding log, whose meter then takes about 1 MB.
const maxLog = 100_000

// String returns the limit on one line, such as "fixed_window 2000/day zone America/New_York".
// Define compares limits by this text, so the text includes every setting except the name and the
// overrides.
func (l Limit) String() string {
	text := string(l.Kind)
	add := func(there bool, format string, value any) {
		if there {
			text += fmt.Sprintf(format, value)
		}
	}
	add(l.Rate != Rate{}, " %v", l.Rate)
	add(l.Kind == Funnel || l.Kind == TokenBucket || l.Kind == Concurrency, " capacity %d", l.MaxCost())
	add(l.Margin > 0, " margin %s", duration.Exact(l.Margin))
	add(l.Zone != "", " zone %s", l.Zone)
	add(len(l.Apps) > 0, " apps %s", strings.Join(l.Apps, ","))
	add(l.Lease != 0 && l.Lease != meter.DefaultLease, " lease %s", duration.Exact(l.Lease))
	add(l.MaxBlock != 0, " max_block %s", duration.Exact(l.MaxBlock))
	if l.Adapt != nil {
		text += " " + l.Adapt.text()
	}
	if l.Paused {
		text += " (paused)"
	}
	return text
}

// With returns the limit of a key with this override. A FixedWindow keeps its period, because all
// its keys share the windows.
func (l Limit) With(o Override) Limit {
	if per := l.Rate.Per; o.Rate != (Rate{}) {
		if l.Rate = o.Rate; l.Kind == FixedWindow {
			l.Rate.Per = per
		}
	}
	if o.Capacity != 0 {
		l.Capacity = o.Capacity
	}
	return l
}

// MaxCost returns the largest number of permits that one call can take: Capacity, or its default. A
// higher cost is Impossible.
func (l Limit) MaxCost() int {
	switch l.Kind {
	case Funnel, TokenBucket:
		return max(1, l.Capacity)
	case Concurrency:
		return l.Capacity
	}
	return l.Rate.N
}

// lease returns Lease, or its default.
func (l Limit) lease() time.Duration { return cmp.Or(l.Lease, meter.DefaultLease) }
