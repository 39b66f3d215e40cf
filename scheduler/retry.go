package scheduler

import (
	"math/rand/v2"
	"regexp"
	"time"

	"github.com/headgate/headgate/internal/enum"
)

// RetryPosition is where a job waits that comes again after an attempt that failed, or that put the
// job back with [RetryAfter]. As text, in config files too, it is keep or back.
type RetryPosition int

// The positions. PositionKeep is the zero value.
const (
	PositionKeep RetryPosition = iota // before all jobs that joined the lane later
	PositionBack                      // behind all waiting jobs
)

var retryPositions = enum.Names{"keep", "back"}

// String returns the position in lower case.
func (r RetryPosition) String() string { return retryPositions.Text(int(r)) }

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *RetryPosition) UnmarshalText(text []byte) error {
	return retryPositions.Unmarshal(text, (*int)(r))
}

// Growth is how the delays before retries grow. As text, in config files too, it is exponential,
// linear or constant.
type Growth int

// The growths. GrowthExponential is the zero value.
const (
	GrowthExponential Growth = iota // Base, 2·Base, 4·Base …
	GrowthLinear                    // Base, 2·Base, 3·Base …
	GrowthConstant                  // Base, Base …
)

var growths = enum.Names{"exponential", "linear", "constant"}

// String returns the growth in lower case.
func (g Growth) String() string { return growths.Text(int(g)) }

// UnmarshalText implements encoding.TextUnmarshaler.
func (g *Growth) UnmarshalText(text []byte) error { return growths.Unmarshal(text, (*int)(g)) }

// Jitter is how much of a delay is random, so that jobs that failed together do not come back
// together. As text, in config files too, it is full, equal or none. See "Exponential Backoff And
// Jitter" in the AWS Architecture Blog.
type Jitter int

// The jitters. JitterFull is the zero value.
const (
	JitterFull  Jitter = iota // anything from 0 to the delay
	JitterEqual               // half of the delay, and up to as much again
	JitterNone                // the delay itself
)

var jitters = enum.Names{"full", "equal", "none"}

// String returns the jitter in lower case.
func (j Jitter) String() string { return jitters.Text(int(j)) }

// UnmarshalText implements encoding.TextUnmarshaler.
func (j *Jitter) UnmarshalText(text []byte) error { return jitters.Unmarshal(text, (*int)(j)) }

// Backoff spaces attempts: how the delays grow, from which delay up to which, and how much of them is
// random. The zero value is 1 s, doubled each time up to an hour, with full jitter: on average half a
// second, 1 s, 2 s and so on.
type Backoff struct {
	// Growth is how the waits grow: base, 2·base, 4·base …; base, 2·base, 3·base …; or always base.
	// The zero value means `exponential`.
	Growth Growth `yaml:"backoff"`
	// Base is the wait after the first failure. The zero value means `1s`.
	Base time.Duration `yaml:"base"`
	// Cap is the longest wait. The zero value means `1h`.
	Cap time.Duration `yaml:"cap"`
	// Jitter is how much of a wait is random: all of it, half of it, or nothing. The zero value
	// means `full`.
	Jitter Jitter `yaml:"jitter"`
}

// Delay returns how long to wait after the n-th retry, counted from 0. It is never longer than Cap,
// jitter included, and can be 0 with full jitter. Each call draws anew.
func (b Backoff) Delay(n int) time.Duration {
	d := b.ceiling(n)
	switch b.Jitter {
	case JitterFull:
		return rand.N(d + 1)
	case JitterEqual:
		return d/2 + rand.N(d/2+1)
	}
	return d
}

// ceiling is the delay before jitter. It compares before it multiplies, because the product of a long
// Base and a large n would not fit into a Duration.
func (b Backoff) ceiling(n int) time.Duration {
	base, limit := b.Base, b.Cap
	if base <= 0 {
		base = time.Second
	}
	if limit <= 0 {
		limit = time.Hour
	}
	switch {
	case b.Growth == GrowthExponential && (n >= 62 || base > limit>>n), b.Growth == GrowthLinear && time.Duration(n+1) > limit/base:
		return limit
	case b.Growth == GrowthExponential:
		return base << n
	case b.Growth == GrowthLinear:
		return base * time.Duration(n+1)
	}
	return min(base, limit)
}

// RetryPolicy says how often and how far apart a failed job is retried. The zero value is the zero
// Backoff for every error, as often as the job itself says.
//
// Classes make exceptions for some errors. A policy that gives up at once if the upstream says that a
// page is gone, and otherwise backs off:
//
//	once := 0
//	policy := scheduler.RetryPolicy{Classes: []scheduler.ErrorClass{{
//		Is:       func(err error) bool { return errors.Is(err, ErrGone) },
//		MaxRetry: &once,
//	}}}
//
// A policy does not apply to denials, which are no failures, to errors that wrap asynq.SkipRetry or
// asynq.RevokeTask, or to crashed workers, whose jobs asynq's server itself retries.
type RetryPolicy struct {
	Backoff
	// Classes are tried in order; the first that matches the error decides instead of Backoff.
	Classes []ErrorClass
}

// ErrorClass is the policy for errors that Match and Is both accept.
type ErrorClass struct {
	// Match is a regular expression that finds the error's text. Nil means any.
	Match *regexp.Regexp   `yaml:"match"`
	Is    func(error) bool // reports whether an error is of the class; nil means any
	Backoff
	// MaxRetry is the most retries after such an error, if fewer than the job's own. Nil means
	// the job's own.
	MaxRetry *int `yaml:"max_retry"`
}

// class returns the first class that matches the error, or one of the policy's own Backoff.
func (p RetryPolicy) class(err error) ErrorClass {
	for _, c := range p.Classes {
		if (c.Match == nil || c.Match.MatchString(err.Error())) && (c.Is == nil || c.Is(err)) {
			return c
		}
	}
	return ErrorClass{Backoff: p.Backoff}
}
