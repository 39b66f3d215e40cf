package tasks

import (
	"cmp"
	"maps"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// longestWait is the longest wait that ReadUpstream returns. It shortens longer waits to this.
const longestWait = 365 * 24 * time.Hour

// ReadUpstream reads the rate limits in the header of a response that arrived at now: Retry-After,
// the IETF's RateLimit, and the X-RateLimit-… of many APIs. It ignores malformed values, and
// compares times with the Date header, not with the local clock. docs/limits.md lists all forms.
//
// until is the time from which the upstream accepts calls again, at most a year from now. The zero
// Time means that the response names no such time. With 429, 503 and 403, until is the time of
// Retry-After. With other statuses, or without Retry-After, it is the latest reset of the exhausted
// quotas. With 429 and 503, a quota with a reset but no remaining number counts as exhausted.
// retryAfter is the wait of Retry-After with any status, or 0.
func ReadUpstream(status int, h http.Header, now time.Time) (until time.Time, retryAfter time.Duration) {
	r := upstreamReader{now: now, date: now, quotas: map[string]*quota{}}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		r.date = date
	}
	limited := status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
	if retryAfter = r.retryAfter(h); retryAfter > 0 && (limited || status == http.StatusForbidden) {
		return now.Add(retryAfter), retryAfter
	}
	r.readStructured(strings.Join(h.Values("RateLimit"), ","))
	r.readNamed(h)
	for _, q := range r.quotas {
		reset := cmp.Or(q.resetAfter, q.reset)
		if exhausted := q.remaining == 0 || limited && q.remaining < 0; exhausted && reset.After(now) && reset.After(until) {
			until = reset
		}
	}
	return until, retryAfter
}

// quota is one limit of the upstream, of requests, tokens or bytes.
type quota struct {
	remaining  int64 // number of requests, tokens or bytes that are left; -1 if unknown
	reset      time.Time
	resetAfter time.Time // used instead of reset if not zero: reset may depend on the upstream's clock
}

// upstreamReader collects the parts of quotas, which can be in several fields.
type upstreamReader struct {
	now    time.Time
	date   time.Time         // the response's Date, or now
	quotas map[string]*quota // by the upstream's name in lower case, which can be empty
}

// readStructured reads the field of draft-ietf-httpapi-ratelimit-headers: a list of named items
// such as `"burst";r=50;t=30`, or "limit=100, remaining=50, reset=5" in older drafts.
func (r *upstreamReader) readStructured(field string) {
	for item := range strings.SplitSeq(field, ",") {
		name, parameters, _ := strings.Cut(strings.TrimSpace(item), ";")
		if part, value, ok := strings.Cut(name, "="); ok {
			r.set("", part, value)
			continue
		}
		for parameter := range strings.SplitSeq(parameters, ";") {
			key, value, _ := strings.Cut(strings.TrimSpace(parameter), "=")
			r.set(name, map[string]string{"r": "remaining", "t": "reset"}[key], value)
		}
	}
}

// namedField matches X-RateLimit-Remaining, RateLimit-Reset, X-RateLimit-Reset-After, and fields
// with a quota's name: after the part, as in X-RateLimit-Reset-Tokens (OpenAI), or before it, as in
// Anthropic-RateLimit-Tokens-Reset.
var namedField = regexp.MustCompile(`(?i)^(?:x-|anthropic-)?rate-?limit-(?:(.+)-)??(remaining|reset-after|reset)(?:-(.+))?$`)

// readNamed reads the fields with one number each. A field without X- overrides the same field with
// X-. Both override the structured field.
func (r *upstreamReader) readNamed(h http.Header) {
	fields := slices.Sorted(maps.Keys(h))
	slices.Reverse(fields) // fields without X- are read last
	for _, field := range fields {
		if m := namedField.FindStringSubmatch(field); m != nil {
			r.set(m[1]+m[3], strings.ToLower(m[2]), h[field]...)
		}
	}
}

// set sets a part of a quota: remaining, reset or reset-after. It ignores values that it cannot
// read. Some servers write "100, 100;w=60" as the remaining number: only the first number counts.
func (r *upstreamReader) set(name, part string, values ...string) {
	name = strings.ToLower(name)
	q := cmp.Or(r.quotas[name], &quota{remaining: -1})
	r.quotas[name] = q
	switch wait, ok := r.wait(values, time.Second); {
	case part == "remaining":
		first, _, _ := strings.Cut(strings.Join(values, ","), ",")
		if n, err := strconv.ParseInt(strings.TrimSpace(first), 10, 64); err == nil && n >= 0 {
			q.remaining = n
		}
	case part == "reset" && ok:
		q.reset = r.now.Add(wait)
	case part == "reset-after" && ok:
		q.resetAfter = r.now.Add(wait)
	}
}

// retryAfterField matches Retry-After, X-RateLimit-Retry-After and Retry-After-Ms.
var retryAfterField = regexp.MustCompile(`(?i)^(?:x-)?(?:rate-?limit-)?retry-after(-ms)?$`)

// retryAfter returns the longest wait of the Retry-After fields, rounded up to the field's unit,
// seconds or milliseconds. Without such a field it returns 0.
func (r *upstreamReader) retryAfter(h http.Header) (longest time.Duration) {
	for name, values := range h {
		if m := retryAfterField.FindStringSubmatch(name); m != nil {
			unit := time.Second
			if m[1] != "" {
				unit = time.Millisecond
			}
			wait, _ := r.wait(values, unit)
			longest = max(longest, roundUp(wait, unit))
		}
	}
	return longest
}

func roundUp(d, unit time.Duration) time.Duration { return (d + unit - 1).Truncate(unit) }

// listed matches one part of a list with commas. A date is one part, although it has a comma.
var listed = regexp.MustCompile(`(?i)\s*(?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*,)?[^,]+`)

// wait returns how long it is until the latest time in the values, in whole milliseconds. If all
// times are in the past, it returns 0. ok is false if no value is a time. unit is the unit of plain
// numbers.
func (r *upstreamReader) wait(values []string, unit time.Duration) (longest time.Duration, ok bool) {
	for _, text := range listed.FindAllString(strings.Join(values, ","), -1) {
		if wait, valid := r.parse(strings.TrimSpace(text), unit); valid {
			longest, ok = max(longest, roundUp(min(wait, longestWait), time.Millisecond)), true
		}
	}
	return longest, ok
}

// plainNumber matches the numbers that servers write, without an exponent or a sign.
var plainNumber = regexp.MustCompile(`^[0-9]+(?:\.[0-9]+)?$`)

// dateForms holds the forms of dates that servers write, in addition to those of http.ParseTime. A
// date without a zone is in UTC.
var dateForms = []string{
	"Mon, 2 Jan 2006 15:04:05 GMT", "Mon, 2 Jan 2006 15:04:05 UTC", "Mon, 2 Jan 2006 15:04:05 -0700",
	time.RFC3339, "2006-01-02T15:04:05Z0700", "2006-01-02T15:04:05", "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05",
}

// parse returns the wait until the time that a text names, which is negative for a time in the
// past. The text is a plain number, a duration such as "6m0s", or a date. A plain number is a wait
// in units, or a Unix time in seconds or milliseconds if it is as large as one. ok is false for any
// other text.
func (r *upstreamReader) parse(text string, unit time.Duration) (wait time.Duration, ok bool) {
	if plainNumber.MatchString(text) {
		const epoch = 1e9                    // a number of seconds from here on is a Unix time: as a wait it would be 32 years
		n, _ := strconv.ParseFloat(text, 64) // too many digits give infinity, which means a very long wait
		date := float64(r.date.UnixMicro()) / 1e6
		switch {
		case n >= 1000*epoch && n < 1e15: // up to the year 33658
			n = n/1000 - date
		case n >= epoch && n < 1000*epoch && unit == time.Second:
			n -= date
		default:
			n *= unit.Seconds()
		}
		return time.Duration(math.Round(min(n, longestWait.Seconds())*1e6)) * time.Microsecond, true
	}
	if wait, err := time.ParseDuration(text); err == nil && wait >= 0 {
		return wait, true
	}
	at, err := http.ParseTime(text)
	for i := 0; err != nil && i < len(dateForms); i++ {
		at, err = time.Parse(dateForms[i], text)
	}
	return at.Sub(r.date), err == nil
}
