package scheduler

import (
	"math/rand/v2"
	"regexp"
	"time"

	"github.com/headgate/headgate/internal/enum"
)

// Growth is how the delays before retries grow. As text, in config files too, it
// is one of exponential, linear and constant; MarshalText and UnmarshalText return
// an error for any other.
type Growth int

// The growths. Exponential is the zero value.
const (
	GrowthExponential Growth = iota // Base, 2·Base, 4·Base …
	GrowthLinear                    // Base, 2·Base, 3·Base …
	GrowthConstant                  // Base, Base …
)

var growths = enum.Names{"exponential", "linear", "constant"}

// String is the growth in lower case.
func (g Growth) String() string { return growths.Text(int(g)) }

// MarshalText implements encoding.TextMarshaler.
func (g Growth) MarshalText() ([]byte, error) { return growths.Marshal(int(g)) }

// UnmarshalText implements encoding.TextUnmarshaler.
func (g *Growth) UnmarshalText(text []byte) error { return growths.Unmarshal(text, (*int)(g)) }

// Jitter is how much of a delay is left to chance, so that jobs that failed
// together do not come back together. As text it is one of full, equal and none;
// MarshalText and UnmarshalText return an error for any other.
type Jitter int

// The jitters. Full is the zero value; for both see "Exponential Backoff And
// Jitter" in the AWS Architecture Blog.
const (
	JitterFull  Jitter = iota // anything from 0 to the delay
	JitterEqual               // half of the delay, and up to as much again
	JitterNone                // the delay itself
)

var jitters = enum.Names{"full", "equal", "none"}

// String is the jitter in lower case.
func (j Jitter) String() string { return jitters.Text(int(j)) }

// MarshalText implements encoding.TextMarshaler.
func (j Jitter) MarshalText() ([]byte, error) { return jitters.Marshal(int(j)) }

// UnmarshalText implements encoding.TextUnmarshaler.
func (j *Jitter) UnmarshalText(text []byte) error { return jitters.Unmarshal(text, (*int)(j)) }

// Backoff spaces attempts: how the delays grow, from which on and up to which,
// and how much of them is left to chance. The zero value is 1 s, doubled each time
// up to an hour, with full jitter: on the average half a second, 1 s, 2 s and so
// on.
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

// Delay is how long to wait after the n-th retry, counted from 0, which must not be
// below it. It is never longer than Cap, jitter included, and with full jitter can
// be 0. Each call draws anew.
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

// ceiling is the delay before jitter. It compares before it multiplies: the product
// of a long Base and a large n would not fit into a Duration.
func (b Backoff) ceiling(n int) time.Duration {
	base, limit := b.Base, b.Cap
	if base <= 0 {
		base = time.Second
	}
	if limit <= 0 {
		limit = time.Hour
	}
	switch b.Growth {
	case GrowthExponential:
		if n >= 62 || base > limit>>n {
			return limit
		}
		return base << n
	case GrowthLinear:
		if time.Duration(n+1) > limit/base {
			return limit
		}
		return base * time.Duration(n+1)
	}
	return min(base, limit)
}

// RetryPolicy says how often and how far apart a failed job is tried again. The
// zero value is the zero Backoff for every error, as often as the job itself says.
//
// Classes make exceptions for some errors. A policy that gives up at once where
// the other side says that a page is gone, and else backs off:
//
//	once := 0
//	policy := scheduler.RetryPolicy{Classes: []scheduler.ErrorClass{{
//		Is:       func(err error) bool { return errors.Is(err, ErrGone) },
//		MaxRetry: &once,
//	}}}
//
// Denials are no failures: no policy hears of them. Nor does it hear of errors that
// wrap asynq.SkipRetry or asynq.RevokeTask, or of crashed workers, which asynq's
// server itself retries.
type RetryPolicy struct {
	Backoff
	// Classes are tried in order; the first that the error is of decides instead
	// of Backoff.
	Classes []ErrorClass
}

// ErrorClass is the policy for some errors: those that have both marks, or the
// one that is not nil. With neither it is for every error.
type ErrorClass struct {
	// Match is a regular expression that finds the error's text. Nil means any.
	Match *regexp.Regexp   `yaml:"match"`
	Is    func(error) bool // reports whether an error is of the class; nil means any
	Backoff
	// MaxRetry is the most retries after such an error, if fewer than the job's own. Nil means
	// the job's own.
	MaxRetry *int `yaml:"max_retry"`
}

// Delay is how long to wait after the n-th retry, counted from 0, failed with err,
// which must not be nil.
func (p RetryPolicy) Delay(n int, err error) time.Duration {
	if c := p.class(err); c != nil {
		return c.Delay(n)
	}
	return p.Backoff.Delay(n)
}

// maxRetry is how many retries a job gets that failed with err: its own number, or
// that of the error's class. A larger one than its own has no effect, since asynq
// ends the job by that.
func (p RetryPolicy) maxRetry(own int, err error) int {
	if c := p.class(err); c != nil && c.MaxRetry != nil {
		return *c.MaxRetry
	}
	return own
}

// class is the first that the error is of, or nil.
func (p RetryPolicy) class(err error) *ErrorClass {
	for i, c := range p.Classes {
		if c.has(err) {
			return &p.Classes[i]
		}
	}
	return nil
}

// has reports whether the error is of the class.
func (c ErrorClass) has(err error) bool {
	return (c.Match == nil || c.Match.MatchString(err.Error())) && (c.Is == nil || c.Is(err))
}
