package tasks

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// StatusError is the error of an HTTP call whose answer had another status
// than expected. It comes wrapped with asynq.SkipRetry if the same call would
// only be refused again; see HTTPHandler.
type StatusError struct {
	Status int
	// Expect lists the statuses that were wanted; none means any 2xx.
	Expect []int
	// RetryAfter is how long the other side asked to wait, by Retry-After or
	// by a quota that is used up, and at most a year: 0 if it did not ask. A
	// limit can be told with Block.
	RetryAfter time.Duration
	// Until is when that is over, by this process's clock, and zero without a
	// RetryAfter. It counts from when the header was there: to read and to keep the
	// body takes time.
	Until time.Time
	// URL is the one that answered, after redirects, with its secrets hidden.
	URL string
	// Redirect is why a redirect was not followed, and where it leads to.
	// Nil means that the answer was none.
	Redirect error
}

// Error says who answered what, what was wanted, where a redirect leads to, and how
// long the other side asked to wait.
func (e *StatusError) Error() string {
	want := "any 2xx"
	if len(e.Expect) > 0 {
		want = strings.Trim(strings.ReplaceAll(fmt.Sprint(e.Expect), " ", " or "), "[]")
	}
	text := fmt.Sprintf("%s answered %s, want %s", e.URL, statusText(e.Status), want)
	if e.Redirect != nil {
		text += "; " + e.Redirect.Error()
	}
	if e.RetryAfter > 0 {
		text += fmt.Sprintf(", and asked to wait %s", e.RetryAfter)
	}
	return text
}

// statusText is a status with its name, such as "404 Not Found".
func statusText(status int) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", status, http.StatusText(status)))
}

// permanent reports whether the same call would only be refused again. That is so
// for a redirect that was not followed, and for any 4xx, except:
//
//   - 408, 425 and 429, which speak of the moment;
//   - one with a Retry-After, which says when to come back;
//   - a 403 with a quota that is used up, which is how GitHub says 429. With another
//     status such a quota does not count: a 404 has nothing to do with it.
func (e *StatusError) permanent(h http.Header) bool {
	switch {
	case e.Redirect != nil:
		return true
	case e.Status < 400 || e.Status >= 500:
		return false
	}
	switch e.Status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	case http.StatusForbidden:
		return e.RetryAfter == 0
	}
	return retryAfter(h, time.Now()) == 0
}

// checkStatus is nil if the status is one of those that the call expects, or
// any 2xx if it lists none, and else a StatusError. Its wait counts from when the
// header was there, so reading the body does not make it shorter. redirect is why a
// redirect was not followed, or nil.
func (a *answer) checkStatus(redirect error) *StatusError {
	status := a.resp.StatusCode
	ok := status >= 200 && status < 300
	if len(a.call.Expect) > 0 {
		ok = slices.Contains(a.call.Expect, status)
	}
	if ok {
		return nil
	}
	wrong := &StatusError{Status: status, Expect: a.call.Expect, URL: a.call.URL, Redirect: redirect}
	if until := a.upstream.Until; !until.IsZero() {
		wrong.RetryAfter, wrong.Until = until.Sub(a.at), until
	}
	return wrong
}
