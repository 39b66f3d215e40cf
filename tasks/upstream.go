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

// rateLimitStatuses are the statuses of a rate limit. Servers use 418, 420, 430 and 529 as others use
// 429: Binance while it bans a caller, Twitter, Shopify, and Anthropic while it is overloaded.
var rateLimitStatuses = []int{http.StatusTeapot, 420, http.StatusTooManyRequests, 430, 529}

func isRateLimit(status int) bool { return slices.Contains(rateLimitStatuses, status) }

// longestWait is the longest wait that ReadUpstream returns. It shortens longer waits to this.
const longestWait = 365 * 24 * time.Hour

// ReadUpstream reads the rate limits in the header of a response that arrived at now: Retry-After,
// the IETF's RateLimit, and the X-RateLimit-… of many APIs. It ignores malformed values, and
// compares times with the Date header, not with the local clock. docs/limits.md lists all forms.
//
// until is the time from which the upstream accepts calls again, at most a year from now. The zero
// Time means that the response names no such time. With 429, the other statuses of a rate limit (418,
// 420, 430, 529), 503 and 403, until is the time of Retry-After. With other statuses, or without
// Retry-After, it is the latest reset of the exhausted quotas. With the statuses of a rate limit and
// 503, a quota with a reset but no remaining number counts as exhausted.
// retryAfter is the wait of Retry-After with any status, or 0.
func ReadUpstream(status int, h http.Header, now time.Time) (until time.Time, retryAfter time.Duration) {
	r := upstreamReader{now: now, date: now, quotas: map[string]*quota{}}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		r.date = date
	}
	limited := isRateLimit(status) || status == http.StatusServiceUnavailable
	if retryAfter = r.retryAfter(h); retryAfter > 0 && (limited || status == http.StatusForbidden) {
		return now.Add(retryAfter), retryAfter
	}
	r.readStructured(strings.Join(h.Values("RateLimit"), ","))
	r.readNamed(h)
	for _, q := range r.quotas {
		if at := q.exhaustedUntil(limited); at.After(now) && at.After(until) {
			until = at
		}
	}
	return until, retryAfter
}

// quota is one limit of the upstream, of requests, tokens or bytes. If the upstream writes lists, a
// quota is one limit for each number: the nth remaining number belongs to the nth reset.
type quota struct {
	remaining  []float64 // numbers of requests, tokens or bytes that are left; NaN if unknown
	reset      []time.Time
	resetAfter []time.Time // used instead of reset if not zero: reset may depend on the upstream's clock
}

// exhaustedUntil returns the latest reset of an exhausted limit, or the zero Time. If a list is too
// short, its last value counts for the rest. limited says whether a limit without a remaining number
// counts as exhausted.
func (q *quota) exhaustedUntil(limited bool) (until time.Time) {
	for i := range max(len(q.remaining), len(q.reset), len(q.resetAfter)) {
		remaining := nth(q.remaining, i, math.NaN())
		at := cmp.Or(nth(q.resetAfter, i, time.Time{}), nth(q.reset, i, time.Time{}))
		if exhausted := remaining < 1 || limited && math.IsNaN(remaining); exhausted && at.After(until) {
			until = at
		}
	}
	return until
}

// nth returns the element i of a list, its last element if the list is shorter, or none if the list
// is empty.
func nth[T any](list []T, i int, none T) T {
	if len(list) == 0 {
		return none
	}
	return list[min(i, len(list)-1)]
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
	lists := map[[2]string][]string{} // by the quota's name and the part
	for item := range strings.SplitSeq(field, ",") {
		name, parameters, _ := strings.Cut(strings.TrimSpace(item), ";")
		if part, value, ok := strings.Cut(name, "="); ok {
			lists[[2]string{"", part}] = append(lists[[2]string{"", part}], value)
			continue
		}
		for parameter := range strings.SplitSeq(parameters, ";") {
			key, value, _ := strings.Cut(strings.TrimSpace(parameter), "=")
			part := [2]string{name, map[string]string{"r": "remaining", "t": "reset"}[key]}
			lists[part] = append(lists[part], value)
		}
	}
	for part, values := range lists {
		r.set(part[0], part[1], values...)
	}
}

// namedField matches X-RateLimit-Remaining, RateLimit-Reset, X-RateLimit-Reset-After, and fields
// with a quota's name: after the part, as in X-RateLimit-Reset-Tokens (OpenAI), or before it, as in
// Anthropic-RateLimit-Tokens-Reset.
var namedField = regexp.MustCompile(`(?i)^(?:x-|anthropic-)?rate-?limit-(?:(.+)-)??(remaining|reset-after|reset)(?:-(.+))?$`)

// readNamed reads the fields with a number or a list of numbers. A field without X- overrides the same
// field with X-. Both override the structured field.
func (r *upstreamReader) readNamed(h http.Header) {
	fields := slices.Sorted(maps.Keys(h))
	slices.Reverse(fields) // fields without X- are read last
	for _, field := range fields {
		if m := namedField.FindStringSubmatch(field); m != nil {
			r.set(m[1]+m[3], strings.ToLower(m[2]), h[field]...)
		}
	}
}

// remainingNumber matches a remaining number. Some servers write "0.0", a negative number for calls
// beyond the quota, or "100;w=60".
var remainingNumber = regexp.MustCompile(`^\s*(-?[0-9]+(?:\.[0-9]+)?)\s*(?:;.*)?$`)

// set sets a part of a quota: remaining, reset or reset-after. It ignores a list without a value
// that it can read.
func (r *upstreamReader) set(name, part string, values ...string) {
	name = strings.ToLower(name)
	q := cmp.Or(r.quotas[name], &quota{})
	r.quotas[name] = q
	if part == "remaining" {
		list, ok := []float64{}, false
		for text := range strings.SplitSeq(strings.Join(values, ","), ",") {
			n := math.NaN()
			if m := remainingNumber.FindStringSubmatch(text); m != nil {
				n, _ = strconv.ParseFloat(m[1], 64)
				ok = true
			}
			list = append(list, n)
		}
		if ok {
			q.remaining = list
		}
		return
	}
	resets, ok := r.times(values)
	switch {
	case part == "reset" && ok:
		q.reset = resets
	case part == "reset-after" && ok:
		q.resetAfter = resets
	}
}

// times returns the time that each value of a list names, or the zero Time for a value that is no
// time. ok is false if no value is a time.
func (r *upstreamReader) times(values []string) (list []time.Time, ok bool) {
	for _, text := range split(values) {
		at := time.Time{}
		if wait, valid := r.wait([]string{text}, time.Second); valid {
			at, ok = r.now.Add(wait), true
		}
		list = append(list, at)
	}
	return list, ok
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

func split(values []string) []string { return listed.FindAllString(strings.Join(values, ","), -1) }

// wait returns how long it is until the latest time in the values, in whole milliseconds. If all
// times are in the past, it returns 0. ok is false if no value is a time. unit is the unit of plain
// numbers.
func (r *upstreamReader) wait(values []string, unit time.Duration) (longest time.Duration, ok bool) {
	for _, text := range split(values) {
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
