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
type Answer struct {
	// URL is the one that answered, with references in place of its secrets.
	URL    string
	Status int
	// Latency is the time from the request to the end of the answer's header.
	Latency time.Duration
	// Upstream is what the header says about limits.
	Upstream Upstream
}

// Upstream is what an answer says about the limits of the server that gave it:
// in Retry-After, in the IETF's RateLimit and RateLimit-Policy, and in the
// X-RateLimit-… of many APIs. What cannot be read counts as not said, because the
// fields are advice. The zero value says nothing.
type Upstream struct {
	// Until is when the upstream wants to be called again, by anybody: keys are
	// blocked until then. The zero value means that it does not say.
	Until time.Time
	// RetryAfter is how long from now the header's Retry-After says to wait, with
	// whatever status. With a status other than 429, 503 and 403 it speaks of this call
	// alone, as 202 says when to look at an operation, and so says nothing in Until.
	RetryAfter time.Duration
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
// Retry-After counts for Until only with 429, 503 and 403, and a used-up quota with every
// status. If a header gives a reset and does not say how much is left, the quota counts as
// used up with 429 and 503. If several fields name a quota, those with one number
// each win over RateLimit and RateLimit-Policy.
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

// until goes by Retry-After alone if it counts, as the IETF's draft asks. Else it is
// when the last of the used-up quotas is there again; a 429 or 503 tells of a used-up
// one even if it does not say how much is left. The zero Time means that the answer
// leaves something, or says no time.
func (u Upstream) until(status int, now time.Time) time.Time {
	refused := status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
	if u.RetryAfter > 0 && (refused || status == http.StatusForbidden) {
		return now.Add(u.RetryAfter)
	}
	var last time.Time
	for _, q := range u.Quotas {
		usedUp := q.Remaining == 0 || refused && q.Remaining < 0
		if usedUp && q.Reset.After(now) && q.Reset.After(last) {
			last = q.Reset
		}
	}
	return last
}

// upstreamReader collects quotas by name: their parts come in several fields. All
// moments that it makes are by this process's clock.
type upstreamReader struct {
	headerTimes
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

// namedField matches X-RateLimit-Remaining, RateLimit-Reset, X-RateLimit-Reset-After, and
// fields with a quota's name: behind the part, as in OpenAI's X-RateLimit-Limit-Tokens, or before
// it, as in Anthropic-RateLimit-Tokens-Limit.
var namedField = regexp.MustCompile(`(?i)^(?:x-|anthropic-)?rate-?limit-` +
	`(?:(limit|remaining|reset(?:-after)?)(?:-(.+))?|(.+)-(limit|remaining|reset(?:-after)?))$`)

// readNamed reads the fields that have one number each. Of a remaining or limit that is
// there twice the first counts, and of several fields for one part that without X-. A
// Reset-After wins over a Reset, which needs the clocks of both sides.
func (r *upstreamReader) readNamed() {
	fields := slices.Sorted(maps.Keys(r.header))
	slices.Reverse(fields) // the last counts
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

// set takes one part of a quota from the values of a field. Some write "100, 100;w=60"
// for a limit. What is no number, or is below zero, is passed over.
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
