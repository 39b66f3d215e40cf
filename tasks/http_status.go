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
	// RetryAfter is how long the other side asked to wait, in whole seconds
	// and at most a year: 0 if it did not ask. A limit can be told with Block.
	RetryAfter time.Duration
	// URL is the one that answered, after redirects, without a password.
	URL string
}

// Error says who answered what, and what was wanted.
func (e *StatusError) Error() string {
	want := "any 2xx"
	if len(e.Expect) > 0 {
		want = strings.Trim(strings.ReplaceAll(fmt.Sprint(e.Expect), " ", " or "), "[]")
	}
	answer := strings.TrimSpace(fmt.Sprintf("%d %s", e.Status, http.StatusText(e.Status)))
	text := fmt.Sprintf("%s answered %s, want %s", e.URL, answer, want)
	if e.RetryAfter > 0 {
		text += fmt.Sprintf(", and asked to wait %s", e.RetryAfter)
	}
	return text
}

// permanent is whether the same call would only be refused again: any 4xx but
// the three that speak of the moment, and but one that says when to come back.
func (e *StatusError) permanent() bool {
	switch e.Status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	}
	return e.Status >= 400 && e.Status < 500 && e.RetryAfter == 0
}

// checkStatus is nil if the status is one of expect, or any 2xx if that is
// empty, and else a StatusError.
func checkStatus(resp *http.Response, expect []int) *StatusError {
	ok := resp.StatusCode >= 200 && resp.StatusCode < 300
	if len(expect) > 0 {
		ok = slices.Contains(expect, resp.StatusCode)
	}
	if ok {
		return nil
	}
	return &StatusError{
		Status:     resp.StatusCode,
		Expect:     expect,
		RetryAfter: retryAfter(resp.Header, time.Now()),
		URL:        resp.Request.URL.Redacted(),
	}
}
