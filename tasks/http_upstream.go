package tasks

import (
	"cmp"
	"errors"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"
)

// Answer is what a limiter may learn from one answer.
type Answer struct {
	// URL is the one that answered, with references in place of its secrets.
	URL    string
	Status int
	// Latency is the time from the request to the end of the answer's header.
	Latency time.Duration
	// Upstream is what the header says about limits.
	Upstream Upstream
}

// Upstream is what an answer says about the limits of the side that gave it:
// in Retry-After, in the IETF's RateLimit and RateLimit-Policy, and in the
// X-RateLimit-… of many APIs. What cannot be read counts as not said, for the
// fields are advice. The zero value says nothing.
type Upstream struct {
	// Until is when the other side wants to be called again. The zero value
	// means that it does not say.
	Until time.Time
	// Quotas are in the order of their names.
	Quotas []Quota
}

// Quota is one of the limits that an answer speaks of. Parts of the same name, from
// whatever fields, are one quota.
type Quota struct {
	// Name is the other side's, such as "requests" or "tokens", in lower case;
	// empty if it gave none.
	Name string
	// Limit is what may be used in each window, and Remaining what is left of
	// it: -1 if not said. Their unit is the other side's: requests, tokens, bytes.
	Limit, Remaining int64
	// Window is how long Limit is for. The zero value means not said.
	Window time.Duration
	// Reset is when there will be more. The zero value means not said.
	Reset time.Time
}

// ReadUpstream reads an answer's header, of which now is the moment. All times
// of the other side are taken as distances from its own Date, where it gives
// one, so that the two clocks need not agree; none is further off than a year.
//
// The status matters where a header gives a reset and does not say how much is left:
// with 429 and 503 the quota counts as used up. Where a quota is named by several
// fields, those with one number each win over RateLimit and RateLimit-Policy.
func ReadUpstream(status int, h http.Header, now time.Time) Upstream {
	r := upstreamReader{header: h, now: now, quotas: map[string]*Quota{}}
	r.readStructured()
	r.readNamed()
	var u Upstream
	for _, q := range r.quotas {
		u.Quotas = append(u.Quotas, *q)
	}
	slices.SortFunc(u.Quotas, func(a, b Quota) int { return cmp.Compare(a.Name, b.Name) })
	u.Until = r.until(status, u.Quotas)
	return u
}

// until goes by Retry-After alone where there is one, as the IETF's draft asks.
// Else it is when the last of the used-up quotas is there again; an answer that
// refuses tells of a used-up one, even if it does not say how much is left. The zero
// Time is for none of these: a success that leaves something, or says no moment.
func (r *upstreamReader) until(status int, quotas []Quota) time.Time {
	if wait := retryAfter(r.header, r.now); wait > 0 {
		return r.now.Add(wait)
	}
	refused := status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
	var last time.Time
	for _, q := range quotas {
		usedUp := q.Remaining == 0 || refused && q.Remaining < 0
		if usedUp && q.Reset.After(r.now) && q.Reset.After(last) {
			last = q.Reset
		}
	}
	return last
}

// upstreamReader collects quotas by name: their parts come in several fields. All
// moments that it makes are by this process's clock.
type upstreamReader struct {
	header http.Header
	now    time.Time
	quotas map[string]*Quota
}

// quota is the quota of a name, made where there is none yet. Case does not matter,
// since some names come as a part of a header's.
func (r *upstreamReader) quota(name string) *Quota {
	name = strings.ToLower(name)
	if r.quotas[name] == nil {
		r.quotas[name] = &Quota{Name: name, Limit: -1, Remaining: -1}
	}
	return r.quotas[name]
}

// What the parameters of an item say of a quota: `"burst";q=100;w=60`, or `100;w=60` of an old
// draft, of what may be used in which window, and `"burst";r=50;t=30` of what is left, and the
// seconds until there is more.
var (
	policyParts = map[string]string{"q": "limit", "w": "window"}
	limitParts  = map[string]string{"r": "remaining", "t": "reset"}
)

// readStructured reads the fields of draft-ietf-httpapi-ratelimit-headers, both
// as lists of named items and as the draft had them up to its seventh version:
// "limit=100, remaining=50, reset=5".
func (r *upstreamReader) readStructured() {
	policies, _ := httpsfv.UnmarshalList(r.header.Values("RateLimit-Policy"))
	fields := r.header.Values("RateLimit")
	items, _ := httpsfv.UnmarshalList(fields)
	for i, member := range slices.Concat(policies, items) {
		item, ok := member.(httpsfv.Item)
		if !ok {
			continue
		}
		name, parts := itemName(item), limitParts
		if i < len(policies) { // which is of a quota, whatever it says
			r.quota(name)
			r.setNumber(name, "limit", item.Value)
			parts = policyParts
		}
		for parameter, part := range parts {
			value, _ := item.Params.Get(parameter)
			r.setNumber(name, part, value)
		}
	}
	// The old form is no list.
	dict, err := httpsfv.UnmarshalDictionary(fields)
	if err != nil || len(items) > 0 {
		return
	}
	for _, key := range dict.Names() {
		member, _ := dict.Get(key)
		if item, ok := member.(httpsfv.Item); ok {
			r.setNumber("", key, item.Value)
		}
	}
}

// setNumber takes a part of a quota that is a whole number. What is none, such as a name or a
// list of windows, is passed over.
func (r *upstreamReader) setNumber(name, part string, value any) {
	if n, ok := value.(int64); ok {
		r.set(name, part, strconv.FormatInt(n, 10))
	}
}

// itemName is the name of an item: a string or a token. Without one the quota has no
// name, as that of the fields with one number.
func itemName(item httpsfv.Item) string {
	switch name := item.Value.(type) {
	case string:
		return name
	case httpsfv.Token:
		return string(name)
	}
	return ""
}

// namedField matches X-RateLimit-Remaining, RateLimit-Reset, and OpenAI's
// X-RateLimit-Limit-Tokens. What follows the part is the quota's name.
var namedField = regexp.MustCompile(`(?i)^(?:x-)?rate-?limit-(limit|remaining|reset)(?:-(.+))?$`)

// readNamed reads the fields that have one number each. Of a field that is there
// twice the first counts, and of several fields for one part that without X-.
func (r *upstreamReader) readNamed() {
	fields := slices.Sorted(maps.Keys(r.header))
	slices.Reverse(fields) // the last counts
	for _, field := range fields {
		if m := namedField.FindStringSubmatch(field); m != nil {
			r.set(m[2], strings.ToLower(m[1]), strings.TrimSpace(r.header.Get(field)))
		}
	}
}

// set takes one part of a quota: its text, whatever field it is from. Some write
// "100, 100;w=60" for a limit. What is no number, or is below zero, is passed over.
func (r *upstreamReader) set(name, part, text string) {
	if part == "reset" {
		if at, ok := r.moment(text); ok {
			r.quota(name).Reset = at
		}
		return
	}
	first, _, _ := strings.Cut(text, ",")
	n, err := strconv.ParseInt(strings.TrimSpace(first), 10, 64)
	if err != nil || n < 0 {
		return
	}
	switch part {
	case "limit":
		r.quota(name).Limit = n
	case "remaining":
		r.quota(name).Remaining = n
	case "window":
		r.quota(name).Window = upTo(float64(n))
	}
}

// moment reads the ways to write a reset: seconds from now, seconds or
// milliseconds since 1970, "6m0s", RFC 3339 and HTTP's own. Which number it is its
// size tells. A moment that is over is now.
func (r *upstreamReader) moment(text string) (time.Time, bool) {
	const anEpoch = 1e9 // as seconds from now it would be thirty years
	if n, err := strconv.ParseFloat(text, 64); err == nil && n >= 0 {
		switch {
		case n >= 1000*anEpoch: // milliseconds since 1970
			n = n/1000 - r.date()
		case n >= anEpoch:
			n -= r.date()
		}
		return r.now.Add(upTo(n)), true
	}
	if wait, err := time.ParseDuration(text); err == nil && wait >= 0 {
		return r.now.Add(upTo(wait.Seconds())), true
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		at, err = http.ParseTime(text)
	}
	if err != nil {
		return time.Time{}, false
	}
	return r.now.Add(upTo(float64(at.UnixMilli())/1000 - r.date())), true
}

// date is what the other side's clock showed, in seconds since 1970.
func (r *upstreamReader) date() float64 {
	return float64(sentAt(r.header, r.now).UnixMilli()) / 1000
}

// sentAt is the moment of an answer by the other side's clock, its Date, or by this
// process's where it gives none.
func sentAt(h http.Header, now time.Time) time.Time {
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		return date
	}
	return now
}

// maxRetryAfter keeps a nonsensical Retry-After from overflowing a Duration,
// and the sum of it and now from leaving the times that a limiter can hold: those
// end in 2255.
const maxRetryAfter = 365 * 24 * time.Hour

// upTo is so many seconds: at least none, at most maxRetryAfter, to the
// millisecond, which is finer than anybody means it. The bounds are applied before
// it is a Duration, which a large number would overflow.
func upTo(seconds float64) time.Duration {
	seconds = min(max(0, seconds), maxRetryAfter.Seconds())
	return time.Duration(seconds * float64(time.Second)).Round(time.Millisecond)
}

// retryAfter reads Retry-After, a number of seconds or a date, as whole
// seconds from now, rounded up: 0 if there is none, or none that can be read,
// or one that is over. A date is compared with the answer's own Date where it
// has one, so that the two clocks need not agree.
func retryAfter(h http.Header, now time.Time) time.Duration {
	text := strings.TrimSpace(h.Get("Retry-After"))
	seconds, err := strconv.ParseUint(text, 10, 64)
	if err == nil || errors.Is(err, strconv.ErrRange) { // too many digits: very long
		return time.Duration(min(seconds, uint64(maxRetryAfter/time.Second))) * time.Second
	}
	until, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	wait := min(max(0, until.Sub(sentAt(h, now))), maxRetryAfter)
	return (wait + time.Second - 1).Truncate(time.Second)
}
