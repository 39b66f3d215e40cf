package worker

import (
	"testing"

	"github.com/headgate/headgate/internal/config"
)

// A config under which a Crawl-delay would be dropped is told so at its start.
func TestConfigsThatKeepNoDelays(t *testing.T) {
	for crawls, keeps := range map[string]bool{
		`http:request: {limits: [{limit: host, key: host(payload.url)}]}`:                true, // no crawl
		`crawl:fetch: {limits: [{limit: host, key: host(payload.url)}]}`:                 true,
		`crawl:fetch: {limits: [{limit: log, key: host(payload.url)}, {limit: host}]}`:   false,
		`crawl:fetch: {limits: [{limit: log, key: host(payload.url)}]}`:                  false,
		`crawl:fetch: {limits: [{limit: host, key: payload.crawl}]}`:                     false,
		`crawl:fetch: {limits: [{limit: log}, {limit: bucket, key: host(payload.url)}]}`: true,
		`crawl:fetch: {}`: false,
	} {
		c, err := config.Parse("crawls", []byte(`
limits:
  host: {kind: funnel, rate: 1/s}
  bucket: {kind: token_bucket, rate: 1/s, capacity: 1}
  log: {kind: sliding_log, rate: 1/s}
tasks:
  `+crawls))
		if err != nil {
			t.Fatal(err)
		}
		if got := keepsDelays(c); got != keeps {
			t.Errorf("%s keeps delays: %t", crawls, got)
		}
	}
}
