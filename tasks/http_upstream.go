package tasks

import (
	"cmp"
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
type Response struct {
	// URL is the one that answered, without secrets.
	URL    string
	Status int
	// Latency is the time from the request to the end of the header.
	Latency time.Duration
	// Upstream is what the header says about limits.
	Upstream Upstream
}

// Upstream is what an answer says about the limits of its server: in Retry-After, in the IETF's
// RateLimit and RateLimit-Policy, and in the X-RateLimit-… of many APIs. Fields that cannot be read are
// ignored. The zero value says nothing.
type Upstream struct {
	// Until is when the upstream accepts calls again, from anybody: keys are blocked until then.
	// The zero value means that it does not say.
	Until time.Time
	// RetryAfter is how long from now the header's Retry-After says to wait, with any status. With
	// another status than 429, 503 and 403 it is about this call alone, as 202 says when to check
	// an operation, so Until ignores it.
	RetryAfter time.Duration
	// Quotas are sorted by name.
	Quotas []Quota
}

// Quota is one of the limits that an answer describes. Parts with the same name, from any fields,
// are one quota.
type Quota struct {
	// Name is the upstream's, such as "requests" or "tokens", in lower case. It is empty if the
	// upstream gave none.
	Name string
	// Limit is how much may be used in each window, and Remaining how much is left: -1 if the
	// answer does not say. The unit is the upstream's: requests, tokens, bytes.
	Limit, Remaining int64
	// Window is the period of Limit, or 0 if the answer does not say.
	Window time.Duration
	// Reset is when the quota is renewed, or the zero Time if the answer does not say.
	Reset time.Time
}

// ReadUpstream reads the header of an answer that arrived at now. Times of the upstream are measured
// from its own Date, if there is one, so the two clocks need not agree. None is further away than a
// year.
//
// Retry-After counts for Until only with 429, 503 and 403; an exhausted quota counts with every
// status. If a header gives a reset and not how much is left, the quota counts as exhausted with 429
// and 503. If several fields describe a quota, fields with one number each win over RateLimit and
// RateLimit-Policy.
func ReadUpstream(status int, h http.Header, now time.Time) Upstream {
	r := upstreamReader{headerTimes: headerTimes{h, now}, quotas: map[string]*Quota{}}
	r.readStructured()
	r.readNamed()
	u := Upstream{RetryAfter: r.retryAfter()}
	for _, q := range r.quotas {
		u.Quotas = append(u.Quotas, *q)
	}
	slices.SortFunc(u.Quotas, func(a, b Quota) int { return cmp.Compare(a.Name, b.Name) })
	u.Until = u.until(status, now)
	return u
}

// until returns the time of Retry-After if that counts, as the IETF's draft requires, or else the
// latest reset of the exhausted quotas. The zero Time means that nothing is exhausted, or that the
// answer gives no time.
func (u Upstream) until(status int, now time.Time) time.Time {
	limited := status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
	if u.RetryAfter > 0 && (limited || status == http.StatusForbidden) {
		return now.Add(u.RetryAfter)
	}
	var last time.Time
	for _, q := range u.Quotas {
		exhausted := q.Remaining == 0 || limited && q.Remaining < 0
		if exhausted && q.Reset.After(now) && q.Reset.After(last) {
			last = q.Reset
		}
	}
	return last
}

// upstreamReader collects quotas by name, because their parts come in several fields. Its times are
// by this process's clock.
type upstreamReader struct {
	headerTimes
	quotas map[string]*Quota
}

// quota returns the quota of a name in any case, and adds it if it is new.
func (r *upstreamReader) quota(name string) *Quota {
	name = strings.ToLower(name)
	if r.quotas[name] == nil {
		r.quotas[name] = &Quota{Name: name, Limit: -1, Remaining: -1}
	}
	return r.quotas[name]
}

// The parameters of an item that describe a quota: `"burst";q=100;w=60`, or `100;w=60` in an old
// draft, and `"burst";r=50;t=30`, where t is the seconds until the reset.
var (
	policyParts = map[string]string{"q": "limit", "w": "window"}
	limitParts  = map[string]string{"r": "remaining", "t": "reset"}
)

// readStructured reads the fields of draft-ietf-httpapi-ratelimit-headers: lists of named items, and
// "limit=100, remaining=50, reset=5", which the draft had up to its seventh version.
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
		if i < len(policies) {
			r.quota(name)
			r.setNumber(name, "limit", item.Value)
			parts = policyParts
		}
		for parameter, part := range parts {
			value, _ := item.Params.Get(parameter)
			r.setNumber(name, part, value)
		}
	}
	// The old form.
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

// setNumber sets a part of a quota to a whole number. It ignores other values, such as a name.
func (r *upstreamReader) setNumber(name, part string, value any) {
	if n, ok := value.(int64); ok {
		r.set(name, part, strconv.FormatInt(n, 10))
	}
}

// itemName returns the name of an item, a string or a token. The quota of an item without one has
// no name.
func itemName(item httpsfv.Item) string {
	switch name := item.Value.(type) {
	case string:
		return name
	case httpsfv.Token:
		return string(name)
	}
	return ""
}

// namedField matches X-RateLimit-Remaining, RateLimit-Reset, X-RateLimit-Reset-After, and fields with
// a quota's name: after the part, as in X-RateLimit-Limit-Tokens (OpenAI), or before it, as in
// Anthropic-RateLimit-Tokens-Limit.
var namedField = regexp.MustCompile(`(?i)^(?:x-|anthropic-)?rate-?limit-` +
	`(?:(limit|remaining|reset(?:-after)?)(?:-(.+))?|(.+)-(limit|remaining|reset(?:-after)?))$`)

// readNamed reads the fields with one number each. Of several fields for one part the one without X-
// counts, and of several values the first. A Reset-After wins over a Reset, which needs both clocks.
func (r *upstreamReader) readNamed() {
	fields := slices.Sorted(maps.Keys(r.header))
	slices.Reverse(fields) // so that the one without X- is the last
	for _, after := range []bool{false, true} {
		for _, field := range fields {
			m := namedField.FindStringSubmatch(field)
			if m == nil {
				continue
			}
			part, isAfter := strings.CutSuffix(strings.ToLower(m[1]+m[4]), "-after")
			if isAfter == after {
				r.set(m[2]+m[3], part, r.header[field]...)
			}
		}
	}
}

// set sets a part of a quota from the values of a field. Some servers write "100, 100;w=60" for a
// limit. It ignores values that are not numbers, or are negative.
func (r *upstreamReader) set(name, part string, values ...string) {
	if part == "reset" {
		if wait, ok := r.wait(values, time.Second); ok {
			r.quota(name).Reset = r.now.Add(wait)
		}
		return
	}
	first, _, _ := strings.Cut(strings.Join(values, ","), ",")
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
		r.quota(name).Window = time.Duration(min(n, int64(longestWait/time.Second))) * time.Second
	}
}
