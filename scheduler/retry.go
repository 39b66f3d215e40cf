package scheduler

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"time"
)

// RetryPosition is where a job waits in its lane after an attempt that failed, or that put the job
// back with [RetryAfter].
type RetryPosition string

// The positions. The zero value means PositionKeep.
const (
	PositionKeep RetryPosition = "keep" // before all jobs that joined the lane later
	PositionBack RetryPosition = "back" // behind all waiting jobs
)

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *RetryPosition) UnmarshalText(text []byte) error {
	return choose(r, text, PositionKeep, PositionBack)
}

// choose sets value to text if text is one of values. If not, choose returns an error.
func choose[T ~string](value *T, text []byte, values ...T) error {
	if !slices.Contains(values, T(text)) {
		return fmt.Errorf("%q: want one of %s", text, strings.Trim(strings.ReplaceAll(fmt.Sprint(values), " ", ", "), "[]"))
	}
	*value = T(text)
	return nil
}

// Growth is how the delays before retries grow.
type Growth string

// The growths. The zero value means GrowthExponential.
const (
	GrowthExponential Growth = "exponential" // Base, 2·Base, 4·Base …
	GrowthLinear      Growth = "linear"      // Base, 2·Base, 3·Base …
	GrowthConstant    Growth = "constant"    // Base, Base …
)

// UnmarshalText implements encoding.TextUnmarshaler.
func (g *Growth) UnmarshalText(text []byte) error {
	return choose(g, text, GrowthExponential, GrowthLinear, GrowthConstant)
}

// Jitter is how much of a delay is random, so that jobs that failed together do not come back
// together. See "Exponential Backoff And Jitter" in the AWS Architecture Blog.
type Jitter string

// The jitters. The zero value means JitterFull.
const (
	JitterFull  Jitter = "full"  // anything from 0 to the delay
	JitterEqual Jitter = "equal" // half of the delay, plus a random part of the other half
	JitterNone  Jitter = "none"  // the delay itself
)

// UnmarshalText implements encoding.TextUnmarshaler.
func (j *Jitter) UnmarshalText(text []byte) error {
	return choose(j, text, JitterFull, JitterEqual, JitterNone)
}

// Backoff spaces attempts. The zero value is 1 s, doubled each time up to an hour, with full
// jitter: on average half a second, 1 s, 2 s and so on.
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

// Delay returns how long to wait before the n-th retry, counted from 0. The delay is never longer
// than Cap, jitter included, and can be 0 with full jitter. Each call draws a new random delay.
func (b Backoff) Delay(n int) time.Duration {
	d := b.ceiling(n)
	switch b.Jitter {
	case JitterNone:
		return d
	case JitterEqual:
		return d/2 + rand.N(d/2+1)
	}
	return rand.N(d + 1)
}

// ceiling returns the delay before jitter. Its comparisons prevent an overflow.
func (b Backoff) ceiling(n int) time.Duration {
	base, limit := b.Base, b.Cap
	if base <= 0 {
		base = time.Second
	}
	if limit <= 0 {
		limit = time.Hour
	}
	switch {
	case b.Growth == GrowthConstant:
		return min(base, limit)
	case b.Growth == GrowthLinear && time.Duration(n+1) <= limit/base:
		return base * time.Duration(n+1)
	case b.Growth != GrowthLinear && n < 62 && base <= limit>>n:
		return base << n
	}
	return limit
}

// RetryPolicy is how often a failed job is retried, and with which delays. The zero value is the
// zero Backoff for every error, and the job's own MaxRetry. Classes make exceptions for some
// errors:
//
//	none := 0
//	policy := scheduler.RetryPolicy{Classes: []scheduler.ErrorClass{{
//		Is:       func(err error) bool { return errors.Is(err, ErrGone) },
//		MaxRetry: &none,
//	}}}
//
// A policy does not apply to denials, because a denial is no failure. It also does not apply to
// errors that wrap asynq.SkipRetry or asynq.RevokeTask, or to crashes of workers.
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
	// MaxRetry is the maximum number of retries of a job that fails with such an error. It cannot
	// raise the job's own maximum. Retries after other errors count, too. Nil means the job's own.
	MaxRetry *int `yaml:"max_retry"`
}

// class returns the first class that matches the error, or a class with the policy's own Backoff.
func (p RetryPolicy) class(err error) ErrorClass {
	for _, c := range p.Classes {
		if (c.Match == nil || c.Match.MatchString(err.Error())) && (c.Is == nil || c.Is(err)) {
			return c
		}
	}
	return ErrorClass{Backoff: p.Backoff}
}
