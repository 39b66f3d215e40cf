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

// Retry says how long a failed job waits before it runs again.
type Retry struct {
	scheduler.Backoff
	// Errors are exceptions for some errors. The first one that matches applies.
	Errors []ErrorClass `yaml:"errors"`
}

// ErrorClass is the Backoff for errors of a Class whose text matches Match. Class or Match can be
// left out. Any other field that is left out has the value in Retry.
type ErrorClass struct {
	// Class is the kind of error: 3xx, 4xx or 5xx for the status of an answer, network, exit or
	// exit:N for the exit code of a command, or killed. The zero value means any.
	Class string `yaml:"class"`
	scheduler.ErrorClass
}

// Policy converts r for package scheduler.
func (r Retry) Policy() *scheduler.RetryPolicy {
	policy := &scheduler.RetryPolicy{Backoff: r.Backoff}
	for _, class := range r.Errors {
		policy.Classes = append(policy.Classes, class.ErrorClass)
	}
	return policy
}

// errorClasses are the values of Class except exit:N, which exitClass matches.
var (
	errorClasses = []string{tasks.Class3xx, tasks.Class4xx, tasks.Class5xx, tasks.ClassExit, tasks.ClassKilled, tasks.ClassNetwork}
	exitClass    = regexp.MustCompile(`^exit:(?:[1-9]|[1-9]\d|1\d\d|2[0-4]\d|25[0-5])$`)
)

// checkRetry fills in the fields that error classes leave out, and reports errors.
func (d *decoder) checkRetry(path string, r Retry) {
	r.Base, r.Cap = cmp.Or(r.Base, time.Second), cmp.Or(r.Cap, time.Hour)
	d.checkBackoff(path, r.Backoff)
	for i := range r.Errors {
		class, at := &r.Errors[i], indexed(path+".errors", i)
		switch {
		case exitClass.MatchString(class.Class):
		case d.has(at + ".class"):
			d.checkReference(at+".class", "class", class.Class, errorClasses)
		case !d.has(at + ".match"):
			d.errorf(at+".match", "missing: want a regular expression for the error's text, such as \"no such host\", or a class: %s", strings.Join(errorClasses, ", "))
		}
		if class.Class != "" {
			class.Is = func(err error) bool {
				is := tasks.Class(err)
				return is == class.Class || strings.HasPrefix(is, class.Class+":")
			}
		}
		if !d.has(at + ".backoff") {
			class.Growth = r.Growth
		}
		if !d.has(at + ".jitter") {
			class.Jitter = r.Jitter
		}
		class.Base, class.Cap = cmp.Or(class.Base, r.Base), cmp.Or(class.Cap, r.Cap)
		d.checkMaxRetry(at+".max_retry", class.MaxRetry)
		d.checkBackoff(at, class.Backoff)
	}
}

// checkBackoff reports invalid waits, but only of fields that the file has at this path.
func (d *decoder) checkBackoff(path string, b scheduler.Backoff) {
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
