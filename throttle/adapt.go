package throttle

import (
	"fmt"
	"time"
)

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
	// Min is the slowest pace, at most the limit's rate. The zero value means a
	// hundredth of the rate.
	Min Rate
	// Latency is how long calls may take before the key slows down. The zero value
	// means that their time does not matter.
	Latency time.Duration
}

// String is what adapts, such as "adapt min 1/10s latency 500ms".
func (a Adapt) String() string {
	text := "adapt"
	if a.Min != (Rate{}) {
		text += " min " + a.Min.String()
	}
	if a.Latency > 0 {
		text += " latency " + a.Latency.String()
	}
	return text
}

// validateAdapt reports what is wrong with Adapt. Where the limit's own rate is wrong
// Min is held against nothing: that rate's error is enough.
func (l Limit) validateAdapt(wrong func(field string, value any, format string, args ...any)) {
	switch l.Kind {
	case Funnel, TokenBucket, SlidingLog, SlidingWindow:
	default:
		wrong("adapt", l.Adapt.String(), "a %s limit cannot adapt; want funnel, token_bucket, sliding_log or sliding_window", l.Kind)
		return
	}
	if l.Adapt.Latency < 0 || l.Adapt.Latency%time.Microsecond != 0 {
		wrong("adapt.latency", l.Adapt.Latency, "want how long a call may take, in whole microseconds")
	}
	if l.Adapt.Min == (Rate{}) || l.Rate.validate() != nil {
		return
	}
	if err := l.Adapt.Min.validate(); err != nil || perSecond(l.Adapt.Min) > perSecond(l.Rate) {
		wrong("adapt.min", l.Adapt.Min, "want a rate, at most the limit's own %s", l.Rate)
	}
}

// perSecond makes rates of different periods comparable.
func perSecond(r Rate) float64 { return float64(r.N) / r.Per.Seconds() }

// wholeShare is all of a rate, as the scripts count its parts.
const wholeShare = 1_000_000

// share is the least part of the limit's rate, from 1 to wholeShare.
func (a Adapt) share(rate Rate) int {
	if a.Min == (Rate{}) {
		return wholeShare / 100
	}
	return max(1, min(wholeShare, int(wholeShare*perSecond(a.Min)/perSecond(rate))))
}

// fields are those of the definition in Redis.
func (a Adapt) fields(rate Rate) []any {
	return []any{
		"adapt_n", a.Min.N, "adapt_per_us", a.Min.Per.Microseconds(),
		"adapt_share", a.share(rate), "adapt_latency_us", a.Latency.Microseconds(),
	}
}

// pace is a share of a rate, for people: "4.5/s". It takes the shortest period in
// which there is at least one permit.
func pace(r Rate, share float64) string {
	times := share * float64(r.N)
	for _, u := range units {
		if n := times * float64(u.per) / float64(r.Per); n >= 1 || u.per == Month {
			return fmt.Sprintf("%.3g/%s", n, u.names[0])
		}
	}
	return ""
}
