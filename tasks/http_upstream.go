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

// Response holds the parts of a response that matter to limits.
type Response struct {
	// URL is the URL of the response, without secrets.
	URL    string
	Status int
	// Latency is the time from the request to the end of the header.
	Latency  time.Duration
	Upstream Upstream
}

// Upstream holds the rate limits in a response's header: Retry-After, the IETF's RateLimit and
// RateLimit-Policy, and the X-RateLimit-… of many APIs. Malformed fields are ignored.
type Upstream struct {
	// Until is the time from which the upstream accepts calls again, or the zero Time.
	Until time.Time
	// RetryAfter is the wait of Retry-After, with any status. Until uses it only with 429, 503 and
	// 403: with 202, for example, it is the time until an operation should be polled.
	RetryAfter time.Duration
	// Quotas are sorted by name.
	Quotas []Quota
}

// Quota is one limit of the upstream. Its unit is the upstream's, such as requests, tokens or bytes.
type Quota struct {
	// Name is the upstream's name, such as "requests", in lower case. It can be empty.
	Name string
	// Limit is the quota for each Window, or -1 if it is unknown.
	Limit int64
	// Remaining is the unused part of Limit, or -1 if it is unknown.
	Remaining int64
	// Window is the period of Limit, or 0 if it is unknown.
	Window time.Duration
	// Reset is the time at which the quota is renewed, or the zero Time if it is unknown.
	Reset time.Time
}

// ReadUpstream reads the header of a response that arrived at now. It compares times in the header
// with the Date header, so that differences of clocks do not matter. Times are capped at a year from
// now.
//
// Until is the time of Retry-After with 429, 503 and 403, or else the latest reset of the exhausted
// quotas. A quota with a reset and an unknown Remaining counts as exhausted with 429 and 503. Fields
// with one number each, such as X-RateLimit-Remaining, override RateLimit and RateLimit-Policy.
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

// until returns Upstream.Until. The IETF's draft requires that Retry-After overrides the quotas.
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

// upstreamReader collects the parts of quotas, which can be in several fields.
type upstreamReader struct {
	headerTimes
	quotas map[string]*Quota
}

// quota returns the quota of a name, in upper or lower case. If there is none, it adds one.
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
	// The old form: "limit=100, remaining=50, reset=5".
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

// setNumber sets a part of a quota to a whole number, and ignores any other value.
func (r *upstreamReader) setNumber(name, part string, value any) {
	if n, ok := value.(int64); ok {
		r.set(name, part, strconv.FormatInt(n, 10))
	}
}

// itemName returns the name of an item, which is a string or a token, or "".
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

// readNamed reads the fields with one number each. A field without X- overrides the same field with
// X-. A Reset-After overrides a Reset, which depends on the upstream's clock.
func (r *upstreamReader) readNamed() {
	fields := slices.Sorted(maps.Keys(r.header))
	slices.Reverse(fields) // fields without X- are read last
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

// set sets a part of a quota to the first number of a field, because some servers write
// "100, 100;w=60" for a limit. It ignores a field that does not begin with a number.
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
