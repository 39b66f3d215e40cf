package config

import (
	"cmp"
	"regexp"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/duration"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/tasks"
)

// Retry is a scheduler.RetryPolicy as the file writes it: a Backoff for every
// error, but for those that a class matches.
type Retry struct {
	Backoff
	// Errors are exceptions for some errors. They are tried in their order; the first that
	// matches counts.
	Errors []ErrorClass `yaml:"errors"`
}

// ErrorClass is the Backoff for errors of a class, or whose text matches, or
// for which both hold. What it leaves out is as in the policy that it belongs to.
type ErrorClass struct {
	// Class is the kind of error: 3xx, 4xx or 5xx for an answer's status, network, exit or exit:N
	// for a command's exit code, killed. The zero value means any.
	Class string `yaml:"class"`
	// Match is a regular expression that finds the error's text. Nil means any.
	Match *regexp.Regexp `yaml:"match"`
	Backoff
	// MaxRetry is the most retries after such an error, if fewer than the job's own. Nil means
	// the job's own.
	MaxRetry *int `yaml:"max_retry"`
}

// Backoff says how long a failed job waits before it runs again: after the
// n-th failure Base·2ⁿ⁻¹ (exponential), Base·n (linear) or Base (constant), at
// most Cap, and of that a random part. What the file leaves out is nil or zero.
type Backoff struct {
	// Growth is how the waits grow: base, 2·base, 4·base …; base, 2·base, 3·base …; or always base.
	Growth *scheduler.Growth `yaml:"backoff"`
	// Base is the wait after the first failure.
	Base time.Duration `yaml:"base"`
	// Cap is the longest wait.
	Cap time.Duration `yaml:"cap"`
	// Jitter is how much of a wait is left to chance: all of it, half of it, or nothing.
	Jitter *scheduler.Jitter `yaml:"jitter"`
}

var defaultBackoff = Backoff{Growth: new(scheduler.GrowthExponential), Base: time.Second, Cap: time.Hour, Jitter: new(scheduler.JitterFull)}

// Policy is the policy as the scheduler takes it.
func (r Retry) Policy() scheduler.RetryPolicy {
	own := r.Backoff.or(defaultBackoff)
	policy := scheduler.RetryPolicy{Backoff: own.policy()}
	for _, class := range r.Errors {
		policy.Classes = append(policy.Classes, scheduler.ErrorClass{
			Match: class.Match, Is: class.is(), Backoff: class.Backoff.or(own).policy(), MaxRetry: class.MaxRetry,
		})
	}
	return policy
}

// is reports whether an error is of the class. It is nil where that is left out.
func (c ErrorClass) is() func(error) bool {
	if c.Class == "" {
		return nil
	}
	return func(err error) bool {
		class := tasks.Class(err)
		return class == c.Class || strings.HasPrefix(class, c.Class+":")
	}
}

func (b Backoff) policy() scheduler.Backoff {
	return scheduler.Backoff{Growth: *b.Growth, Base: b.Base, Cap: b.Cap, Jitter: *b.Jitter}
}

// or is b with what it leaves out taken from other.
func (b Backoff) or(other Backoff) Backoff {
	return Backoff{
		Growth: cmp.Or(b.Growth, other.Growth),
		Base:   cmp.Or(b.Base, other.Base),
		Cap:    cmp.Or(b.Cap, other.Cap),
		Jitter: cmp.Or(b.Jitter, other.Jitter),
	}
}

// errorClasses are those of tasks.Class, and exitClass one exit code's.
var (
	errorClasses = []string{tasks.Class3xx, tasks.Class4xx, tasks.Class5xx, tasks.ClassExit, tasks.ClassKilled, tasks.ClassNetwork}
	exitClass    = regexp.MustCompile(`^exit:(?:[1-9]|[1-9]\d|1\d\d|2[0-4]\d|25[0-5])$`)
)

func (d *decoder) checkRetry(path string, r Retry) {
	own := r.Backoff.or(defaultBackoff)
	d.checkBackoff(path, own)
	for i, class := range r.Errors {
		at := indexed(path+".errors", i)
		switch {
		case exitClass.MatchString(class.Class):
		case d.has(at + ".class"):
			d.checkReference(at+".class", "class", class.Class, errorClasses)
		case !d.has(at + ".match"):
			d.errorf(at+".match", "missing: want a regular expression for the error's text, such as \"no such host\", or a class: %s", strings.Join(errorClasses, ", "))
		}
		d.checkMaxRetry(at+".max_retry", class.MaxRetry)
		d.checkBackoff(at, class.Backoff.or(own))
	}
}

// checkBackoff reports waits that make no sense, as far as the path sets them.
func (d *decoder) checkBackoff(path string, b Backoff) {
	base, limit := path+".base", path+".cap"
	switch {
	case d.has(base) && b.Base < time.Millisecond:
		d.errorf(base, "%s: want at least 1ms", duration.Exact(b.Base))
	case d.has(limit) && b.Cap < b.Base:
		d.errorf(limit, "%s is less than the base, %s: want at least as much", duration.Exact(b.Cap), duration.Exact(b.Base))
	case d.has(base) && b.Cap < b.Base:
		d.errorf(base, "%s is more than the cap, %s: want at most as much", duration.Exact(b.Base), duration.Exact(b.Cap))
	}
}
