package throttle

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/duration"
)

// Override is what one key of a limit counts by instead of the limit itself, such as the pace that
// one host asks for. It can be slower or faster. One of Rate and Capacity is required.
type Override struct {
	// Rate is the key's own; for a FixedWindow, per the limit's period. The zero value means the
	// limit's rate.
	Rate Rate
	// Capacity is the key's own, for kinds that have one. The zero value means the limit's.
	Capacity int
	// For is how long the override holds, a microsecond at least. The zero value means until
	// UnsetKey.
	For time.Duration
}

// String returns the override as UnmarshalText reads it, such as "1/10s capacity 1", and for how
// long it holds.
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

// UnmarshalText reads a rate, a capacity or both: "1/10s", "capacity 3", "1/10s capacity 1". The
// error is a [*FieldError]. For is not part of the text, because an override in a config file holds
// as long as it stands there.
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

// KeyState is how one key of a limit differs from the limit.
type KeyState struct {
	Key string
	// Override is what was set for the key, by a config file if File is true. Until is when it ends
	// by the limiter's clock, and For how long that is from now; both are zero if it does not end.
	Override
	File  bool
	Until time.Time
	// Share is which part of its rate the key gets at present if the limit adapts, from 0 to 1, and
	// Pace is that rate, such as "4.5/s": empty if it is all.
	Share float64
	Pace  string
	// RateLimited is how often in a row the upstream rate limited calls, and Slowed whether that
	// has slowed the key down. Latency is the smoothed latency that slows it down.
	RateLimited int
	Slowed      bool
	Latency     time.Duration
}

// differs reports whether the key differs now. Redis keeps its record for an hour longer, so that
// Settle gives nothing back at a rate that has changed since.
func (k KeyState) differs() bool { return k.Override != Override{} || k.Share < 1 || k.RateLimited > 0 }

// Adapt makes each key of a limit find the pace that the upstream bears, never beyond the limit's
// rate. A key slows down when the upstream rate limits its calls, and speeds up a little at a time
// while it accepts them. It also slows down as far as calls take longer than Latency, by the rule
// of Scrapy's AutoThrottle. Package scheduler reports how calls go, and Redis shares that among all
// processes. A local limiter, a fixed window and a concurrency limit do not adapt.
//
// The first rate-limited call halves the pace, and so does each that follows in a row; one that
// comes while a key was speeding up takes a tenth. Each second in which calls are accepted gives
// back a thousandth of the whole rate. With this additive increase and multiplicative decrease,
// callers that share one capacity come to share it evenly (Chiu and Jain, "Analysis of the increase
// and decrease algorithms for congestion avoidance in computer networks", 1989). State of keys
// without feedback for an hour is discarded at the next feedback for any key of the limit, or when
// a key is set.
type Adapt struct {
	// Min is the slowest pace, at most the limit's rate. The zero value means a hundredth of the
	// rate.
	Min Rate `yaml:"min"`
	// Latency is how long calls may take before the key slows down. The zero value means any time.
	Latency time.Duration `yaml:"latency"`
}

// String returns the settings on one line, such as "adapt min 1/10s latency 500ms".
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

// wholeShare is a whole rate, as the scripts count its parts.
const wholeShare = 1_000_000

// share returns the smallest part of the limit's rate, from 1 to wholeShare.
func (a Adapt) share(rate Rate) int {
	if a.Min == (Rate{}) {
		return wholeShare / 100
	}
	return max(1, min(wholeShare, int(wholeShare*perSecond(a.Min)/perSecond(rate))))
}
