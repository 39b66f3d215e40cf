package tasks

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/internal/testutil/fuzzseed"
)

// header is an answer's, of lines "Name: value".
func header(lines ...string) http.Header {
	h := http.Header{}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		h.Add(name, value)
	}
	return h
}

func TestReadUpstream(t *testing.T) {
	now := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	in := func(d time.Duration) time.Time { return now.Add(d) }
	const (
		slow      = "Date: Sun, 01 Mar 2026 11:00:00 GMT" // its clock is an hour behind
		noonEpoch = "1772366400"
	)
	tests := []struct {
		name   string
		status int
		header http.Header
		want   Upstream
	}{
		{"nothing", 429, nil, Upstream{}},
		{"Retry-After", 503, header("Retry-After: 7"), Upstream{Until: in(7 * time.Second), RetryAfter: 7 * time.Second}},
		{"Retry-After of one call", 202, header("Retry-After: 7"), Upstream{RetryAfter: 7 * time.Second}},
		{
			"the draft's example", 200, header(`RateLimit-Policy: "burst";q=100;w=60,"daily";q=1000;w=86400`, `RateLimit: "burst";r=50;t=30`),
			Upstream{Quotas: []Quota{
				{Name: "burst", Limit: 100, Remaining: 50, Window: time.Minute, Reset: in(30 * time.Second)},
				{Name: "daily", Limit: 1000, Remaining: -1, Window: 24 * time.Hour},
			}},
		},
		{
			"parameters of the other field", 429, header(`RateLimit-Policy: "a";q=9;r=0;t=30`, `RateLimit: "a";q=2;w=5;r=3, 100`),
			Upstream{Quotas: []Quota{{Name: "a", Limit: 9, Remaining: 3}}},
		},
		{
			"nothing left, on a success", 200, header(`RateLimit: "day";r=0;t=30, minute;r=1;t=3`),
			Upstream{Until: in(30 * time.Second), Quotas: []Quota{
				{Name: "day", Limit: -1, Remaining: 0, Reset: in(30 * time.Second)},
				{Name: "minute", Limit: -1, Remaining: 1, Reset: in(3 * time.Second)},
			}},
		},
		{
			"Retry-After goes before a reset", 429, header("Retry-After: 7", `RateLimit: "a";r=0;t=30`),
			Upstream{Until: in(7 * time.Second), RetryAfter: 7 * time.Second, Quotas: []Quota{{Name: "a", Limit: -1, Reset: in(30 * time.Second)}}},
		},
		{
			"the seventh draft", 200, header("RateLimit: limit=100, remaining=0, reset=5", "RateLimit-Policy: 100;w=10"),
			Upstream{Until: in(5 * time.Second), Quotas: []Quota{
				{Limit: 100, Remaining: 0, Window: 10 * time.Second, Reset: in(5 * time.Second)},
			}},
		},
		{
			"three fields", 429, header("RateLimit-Limit: 100, 100;w=60", "RateLimit-Remaining: 0", "RateLimit-Reset: 2.5"),
			Upstream{Until: in(2500 * time.Millisecond), Quotas: []Quota{
				{Limit: 100, Remaining: 0, Reset: in(2500 * time.Millisecond)},
			}},
		},
		{
			"with and without X-", 200, header("X-RateLimit-Remaining: 1", "RateLimit-Remaining: 2", "X-Rate-Limit-Remaining: 3"),
			Upstream{Quotas: []Quota{{Limit: -1, Remaining: 2}}},
		},
		{
			"GitHub", 403, header(slow, "X-RateLimit-Limit: 60", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: "+noonEpoch),
			Upstream{Until: in(time.Hour), Quotas: []Quota{{Limit: 60, Remaining: 0, Reset: in(time.Hour)}}},
		},
		{
			"OpenAI", 200, header("x-ratelimit-limit-requests: 60", "x-ratelimit-remaining-requests: 59", "x-ratelimit-reset-requests: 1s",
				"x-ratelimit-limit-tokens: 150000", "x-ratelimit-remaining-tokens: 0", "x-ratelimit-reset-tokens: 6m0s"),
			Upstream{Until: in(6 * time.Minute), Quotas: []Quota{
				{Name: "requests", Limit: 60, Remaining: 59, Reset: in(time.Second)},
				{Name: "tokens", Limit: 150000, Remaining: 0, Reset: in(6 * time.Minute)},
			}},
		},
		{
			"Anthropic", 200, header("anthropic-ratelimit-requests-limit: 50", "anthropic-ratelimit-requests-remaining: 49", "anthropic-ratelimit-requests-reset: 2026-03-01T12:00:01Z",
				"anthropic-ratelimit-input-tokens-remaining: 0", "anthropic-ratelimit-input-tokens-reset: 2026-03-01T12:00:20Z"),
			Upstream{Until: in(20 * time.Second), Quotas: []Quota{
				{Name: "input-tokens", Limit: -1, Remaining: 0, Reset: in(20 * time.Second)},
				{Name: "requests", Limit: 50, Remaining: 49, Reset: in(time.Second)},
			}},
		},
		{
			"a 429 that does not say what is left", 429, header("X-Rate-Limit-Reset: 4"),
			Upstream{Until: in(4 * time.Second), Quotas: []Quota{{Limit: -1, Remaining: -1, Reset: in(4 * time.Second)}}},
		},
		{
			"the same on a success", 200, header("X-Rate-Limit-Reset: 4"),
			Upstream{Quotas: []Quota{{Limit: -1, Remaining: -1, Reset: in(4 * time.Second)}}},
		},
		{
			"a 429 for another reason", 429, header("X-RateLimit-Remaining: 9", "X-RateLimit-Reset: 4"),
			Upstream{Quotas: []Quota{{Limit: -1, Remaining: 9, Reset: in(4 * time.Second)}}},
		},
		{
			"milliseconds since 1970", 429, header(slow, "X-RateLimit-Reset: "+noonEpoch+"500"),
			Upstream{Until: in(time.Hour + 500*time.Millisecond), Quotas: []Quota{
				{Limit: -1, Remaining: -1, Reset: in(time.Hour + 500*time.Millisecond)},
			}},
		},
		{
			"RFC 3339", 429, header("X-RateLimit-Reset: 2026-03-01T12:00:09Z"),
			Upstream{Until: in(9 * time.Second), Quotas: []Quota{{Limit: -1, Remaining: -1, Reset: in(9 * time.Second)}}},
		},
		{
			"a date", 429, header(slow, "X-RateLimit-Reset: Sun, 01 Mar 2026 11:00:09 GMT"),
			Upstream{Until: in(9 * time.Second), Quotas: []Quota{{Limit: -1, Remaining: -1, Reset: in(9 * time.Second)}}},
		},
		{
			"a reset that is over", 429, header("X-RateLimit-Reset: 2020-03-01T12:00:09Z"),
			Upstream{Quotas: []Quota{{Limit: -1, Remaining: -1, Reset: now}}},
		},
		{
			"a reset in a thousand years", 429, header("X-RateLimit-Reset: 31556952000000000"),
			Upstream{Until: in(longestWait), Quotas: []Quota{{Limit: -1, Remaining: -1, Reset: in(longestWait)}}},
		},
		{
			"garbage", 429, header("Retry-After: soon", "X-RateLimit-Reset: NaN, 1e3", "X-RateLimit-Limit: -3", "X-RateLimit-Remaining: all",
				`RateLimit: "a";r=-1;t=?1, (1 2);r=5, "`, "RateLimit-Policy: (1 2), \xff"),
			Upstream{},
		},
		{
			"garbage in the list", 429, header(`RateLimit: "a";r=-1;t=?1, (1 2);r=5`, `RateLimit-Policy: (1 2);q=1, "a";q="9"`),
			Upstream{Quotas: []Quota{{Name: "a", Limit: -1, Remaining: -1}}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, ReadUpstream(tt.status, tt.header, now)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// Whatever a server writes is read without a panic, and never as a moment that
// is over or further off than a year.
func FuzzReadUpstream(target *testing.F) {
	f := fuzzseed.More(target)
	f.Add(`"burst";r=0;t=30`, "100;w=60", "1772366400", "6m0s")
	f.Add("limit=100, remaining=0, reset=5", `"a";q=1`, "1e300", "-1")
	now := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	f.Add("limit=100, remaining=0, reset=5", "100;w=10", "1772366400.5, 12.5", "Sun, 01 Mar 2026 12:00:07 +0000, 2026-03-01 12:00:07")
	f.Fuzz(func(t *testing.T, limits, policy, reset, after string) {
		h := http.Header{"Ratelimit": {limits}, "Ratelimit-Policy": {policy}, "X-Ratelimit-Reset": {reset}, "Retry-After": {after}}
		until := ReadUpstream(429, h, now).Until
		if !until.IsZero() && (!until.After(now) || until.After(now.Add(longestWait))) {
			t.Errorf("until %s, want between %s and a year later", until, now)
		}
	})
}
