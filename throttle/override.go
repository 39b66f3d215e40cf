package throttle

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/duration"
)

// Override is the rate or capacity of one key of a limit, in place of the limit's own. For example,
// one host may allow fewer requests than the others. Rate or Capacity is required.
type Override struct {
	// Rate is the key's own rate. For a FixedWindow it must have the period of the limit. The zero
	// value means the limit's rate.
	Rate Rate
	// Capacity is the key's own capacity, for a Funnel, a TokenBucket or a Concurrency limit. The
	// zero value means the limit's capacity.
	Capacity int
}

// String returns the override as UnmarshalText reads it, such as "1/10s capacity 1".
func (o Override) String() string {
	var parts []string
	if o.Rate != (Rate{}) {
		parts = append(parts, o.Rate.String())
	}
	if o.Capacity > 0 {
		parts = append(parts, fmt.Sprintf("capacity %d", o.Capacity))
	}
	return strings.Join(parts, " ")
}

// UnmarshalText reads a rate, a capacity or both: "1/10s", "capacity 3", "1/10s capacity 1". The
// error is a [*FieldError].
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

// KeyState describes how one key of a limit differs from the limit. String formats a KeyState for
// people, such as "1/10s from the config now 4.5/min (last 2 calls rate limited)".
type KeyState struct {
	Key string
	Override
	// File reports whether the override comes from a config file.
	File bool
	// Share is the part of its rate that the key gets now, from 0 to 1. For a limit that does not
	// adapt it is 1.
	Share float64

	pace        string        // the rate that the key gets; empty if Share is 1
	rateLimited int           // number of the last calls in a row that the upstream rate limited
	slowed      bool          // whether rate-limited calls still slow the key down
	latency     time.Duration // smoothed duration of calls; 0 if the limit does not adapt to it
}

// String returns the override, the rate to which the key has adapted, and the reason for that rate.
func (k KeyState) String() string {
	text := k.Override.String()
	if k.File {
		text += " from the config"
	}
	if k.pace != "" {
		text += " now " + k.pace
	}
	var reasons []string
	switch {
	case k.rateLimited > 1:
		reasons = append(reasons, fmt.Sprintf("last %d calls rate limited", k.rateLimited))
	case k.rateLimited == 1:
		reasons = append(reasons, "last call rate limited")
	case k.slowed:
		reasons = append(reasons, "was rate limited")
	}
	if k.pace != "" && k.latency > 0 {
		reasons = append(reasons, "latency "+duration.Text(k.latency))
	}
	if len(reasons) > 0 {
		text += " (" + strings.Join(reasons, ", ") + ")"
	}
	return strings.TrimSpace(text)
}

// differs reports whether the key differs from the limit now. Redis keeps the record of a key for
// an hour after it has ceased to differ, so that Settle knows when the rate changed.
func (k KeyState) differs() bool { return k.Override != Override{} || k.Share < 1 || k.rateLimited > 0 }

// Adapt adjusts the rate of each key to what the upstream accepts, up to the limit's rate. A key
// slows down when the upstream rate limits its calls, and speeds up a little at a time while it
// accepts them. It also slows down in proportion to how much longer than Latency calls take, by the
// rule of Scrapy's AutoThrottle. Package scheduler reports the results of calls, and all processes
// share them through Redis. A local limiter, a fixed window and a concurrency limit do not adapt.
//
// A rate-limited call halves the pace of a key that has its whole rate. Each further rate-limited
// call in a row halves the pace again. While the key speeds up, the first rate-limited call lowers
// its pace by a tenth. Each second of accepted calls adds a thousandth of the whole rate (additive
// increase, multiplicative decrease: Chiu and Jain 1989). An hour after the last feedback, the pace
// is discarded.
type Adapt struct {
	// Min is the slowest pace, at most the limit's rate. The zero value means a hundredth of the
	// rate.
	Min Rate `yaml:"min"`
	// Latency is the call duration above which the key slows down. The zero value means no bound.
	Latency time.Duration `yaml:"latency"`
}

// text returns the settings on one line, such as "adapt min 1/10s latency 500ms".
func (a Adapt) text() string {
	text := "adapt"
	if a.Min != (Rate{}) {
		text += " min " + a.Min.String()
	}
	if a.Latency > 0 {
		text += " latency " + duration.Exact(a.Latency)
	}
	return text
}

// wholeShare stands for the whole rate in the scripts, which count shares in millionths.
const wholeShare = 1_000_000

// share returns Min as a share of the limit's rate, from 1 to wholeShare.
func (a Adapt) share(rate Rate) int {
	if a.Min == (Rate{}) {
		return wholeShare / 100
	}
	return max(1, min(wholeShare, int(wholeShare*perSecond(a.Min)/perSecond(rate))))
}
