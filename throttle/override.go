package throttle

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/duration"
)

// Override is what one key of a limit counts by instead of the limit's own words,
// such as the pace that one host asks for. It can be slower or faster than the
// limit. One of Rate and Capacity is required.
type Override struct {
	// Rate is the key's own; of a FixedWindow per the limit's own period. The zero
	// value means the limit's.
	Rate Rate
	// Capacity is the key's own, for kinds that have one. The zero value means the
	// limit's.
	Capacity int
	// For is how long that holds, a microsecond at least. The zero value means until
	// UnsetKey.
	For time.Duration
}

// String is the override as UnmarshalText reads it, such as "1/10s capacity 1", and
// for how long it holds.
func (o Override) String() string {
	var parts []string
	if o.Rate != (Rate{}) {
		parts = append(parts, o.Rate.String())
	}
	if o.Capacity > 0 {
		parts = append(parts, fmt.Sprintf("capacity %d", o.Capacity))
	}
	if o.For > 0 {
		parts = append(parts, "for "+duration.Exact(o.For))
	}
	return strings.Join(parts, " ")
}

// UnmarshalText reads a rate, a capacity or both: "1/10s", "capacity 3", "1/10s
// capacity 1". The error is a [*FieldError]. How long it holds is no part of the
// text: a config file says it for as long as it stands there.
func (o *Override) UnmarshalText(text []byte) (err error) {
	const want = "want a rate such as 1/10s, capacity N, or both: 1/10s capacity 1"
	*o = Override{}
	rate, capacity, both := strings.Cut(strings.TrimSpace(string(text)), "capacity")
	if both {
		if o.Capacity, err = strconv.Atoi(strings.TrimSpace(capacity)); err != nil || o.Capacity < 1 {
			return fieldError("override", string(text), want)
		}
	}
	if rate = strings.TrimSpace(rate); rate != "" {
		o.Rate, err = ParseRate(rate)
	} else if !both {
		return fieldError("override", string(text), want)
	}
	return err
}

// KeyState is what differs for one key of a limit from what the limit says. A
// [Local] limiter fills in the override alone, with a Share of 1: it does not adapt.
type KeyState struct {
	Key string
	// Override is what was set for the key, by a config file where File is true;
	// the zero value where nothing was. Until is when it ends by the limiter's
	// clock, and For how long that is from now; both are zero where it does not.
	Override
	File  bool
	Until time.Time
	// Share is which part of its rate the key goes by at present, from 0 to 1, where
	// the limit adapts, and Now is that pace, such as "4.5/s": empty where it is all.
	Share float64
	Pace  string
	// Refused is how often in a row the other side refused calls, and Slowed whether
	// refusals have slowed the key down. Latency is what it is slowed down by where
	// that is longer than wanted, smoothed.
	RateLimited int
	Slowed      bool
	Latency     time.Duration
}

// differs reports whether a record says anything of today. It is kept for an hour
// after that, so that Settle gives nothing back at a rate that has changed since.
func (k KeyState) differs() bool { return k.Override != Override{} || k.Share < 1 || k.RateLimited > 0 }

// Adapt has each key of a limit find the pace that the other side bears, never
// beyond the limit's rate: it slows down when calls are refused, by half at first,
// and speeds up a little at a time while they are accepted (AIMD); and it slows down
// as far as they take longer than Latency, by the rule of Scrapy's AutoThrottle.
// Jobs tell a Redis limiter how their calls go (package scheduler does it), and it
// shares that among all processes; Local takes no notice. A fixed window and a
// concurrency limit cannot adapt.
//
// The first refusal takes half of the pace, and so does each that follows in a row;
// one that comes while a key was getting faster takes a tenth. Each second in which
// calls are accepted gives back a thousandth of the whole rate. That is additive
// increase and multiplicative decrease: with it many who share one capacity come to
// share it evenly (Chiu and Jain, "Analysis of the increase and decrease algorithms
// for congestion avoidance in computer networks", 1989). What was learned of a key of
// which nothing was heard for an hour is forgotten at the next call, of whatever key of
// the limit, of which something is heard, and when a key is set.
type Adapt struct {
	// Min is the slowest pace, at most the limit's rate. The zero value means a hundredth of the rate.
	Min Rate `yaml:"min"`
	// Latency is how long calls may take before the key slows down. The zero value means as long
	// as they like.
	Latency time.Duration `yaml:"latency"`
}

// String is what adapts, such as "adapt min 1/10s latency 500ms".
func (a Adapt) String() string {
	text := "adapt"
	if a.Min != (Rate{}) {
		text += " min " + a.Min.String()
	}
	if a.Latency > 0 {
		text += " latency " + duration.Exact(a.Latency)
	}
	return text
}

// wholeShare is all of a rate, as the scripts count its parts.
const wholeShare = 1_000_000

// share is the least part of the limit's rate, from 1 to wholeShare.
func (a Adapt) share(rate Rate) int {
	if a.Min == (Rate{}) {
		return wholeShare / 100
	}
	return max(1, min(wholeShare, int(wholeShare*perSecond(a.Min)/perSecond(rate))))
}
