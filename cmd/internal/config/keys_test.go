package config

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestKeysOfHosts: a key of a limit that counts by host(…) is the normalized host.
func TestKeysOfHosts(t *testing.T) {
	const rules = `
limits:
  host: {kind: funnel, rate: 1/s, overrides: {LocalHost: 1/2s, "münchen.example.": 1/3s, "[2001:DB8::A]:8080": 1/4s}}
  tenant: {kind: funnel, rate: 1/s, overrides: {LocalHost: 1/2s}}
  mixed: {kind: funnel, rate: 1/s, overrides: {LocalHost: 1/2s}}
  unused: {kind: funnel, rate: 1/s, overrides: {LocalHost: 1/2s}}
tasks:
  http:request: {limits: [{limit: host, key: host(payload.url)}, {limit: tenant, key: payload.tenant}, {limit: mixed, key: host(payload.url)}]}
  crawl:fetch: {limits: [{limit: host, key: host(payload.url)}, {limit: mixed, key: payload.host}]}
`
	c, err := Parse("headgate.yaml", []byte(rules))
	if err != nil {
		t.Fatal(err)
	}
	overrides := map[string][]string{}
	for _, l := range c.Limits {
		overrides[l.Name] = slices.Sorted(maps.Keys(l.Overrides))
	}
	for limit, want := range map[string][]string{
		"host": {"2001:db8::a", "localhost", "xn--mnchen-3ya.example"}, "tenant": {"LocalHost"}, "mixed": {"LocalHost"}, "unused": {"LocalHost"},
	} {
		if !slices.Equal(overrides[limit], want) {
			t.Errorf("limit %s has overrides of %q, want %q", limit, overrides[limit], want)
		}
	}
	for typed, want := range map[string]string{
		"localhost": "localhost", "LocalHost": "localhost", "localhost.": "localhost", "localhost:8080": "localhost",
		"HTTPS://LocalHost:8080/path": "localhost", "127.1": "127.0.0.1", "::1": "::1", "[::1]:80": "::1", "::FFFF:127.0.0.1": "127.0.0.1",
		"MÜNCHEN.example": "xn--mnchen-3ya.example",
	} {
		if got, err := c.Tasks.Key("host", typed); got != want || err != nil {
			t.Errorf("key %s is %q (%v), want %q", typed, got, err, want)
		}
		if got, err := c.Tasks.Key("tenant", typed); got != typed || err != nil {
			t.Errorf("key %s of a limit without hosts is %q (%v)", typed, got, err)
		}
	}
}

// TestKey_NoHost: an override that can never count is an error, and so are two of one host.
func TestKey_NoHost(t *testing.T) {
	for overrides, want := range map[string]string{
		`{"a b": 1/s}`:                     `limits.host.overrides.a b: key of limit host: "a b" is not the name of a host: want one such as example.com`,
		`{"/path": 1/s}`:                   `"/path" is not the name of a host`,
		`{LocalHost: 1/s, localhost: 2/s}`: `limits.host.overrides.localhost: the same key as LocalHost: keep one of them`,
	} {
		_, err := Parse("headgate.yaml", []byte("limits: {host: {kind: funnel, rate: 1/s, overrides: "+overrides+"}}\n"+
			"tasks:\n  http:request: {limits: [{limit: host, key: host(payload.url)}]}\n"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("overrides %s: %v, want %q", overrides, err, want)
		}
	}
}
