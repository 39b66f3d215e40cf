package worker

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/cmd/internal/config"
)

// Crawls that no limit by host slows down are a warning, at the start and by --check.
func TestCheck_WarnsOfImpoliteCrawls(t *testing.T) {
	for crawls, polite := range map[string]bool{
		`http:request: {limits: [{limit: host, key: host(payload.url)}]}`:              true, // no crawl
		`crawl:fetch: {limits: [{limit: host, key: host(payload.url)}]}`:               true,
		`crawl:fetch: {limits: [{limit: log, key: host(payload.url)}, {limit: host}]}`: true,
		`crawl:fetch: {limits: [{limit: host, key: payload.crawl}, {limit: log}]}`:     false,
		`crawl:fetch: {}`: false,
	} {
		c, err := config.Parse("crawls", []byte(`
limits:
  host: {kind: funnel, rate: 1/s}
  log: {kind: sliding_log, rate: 1/s}
tasks:
  `+crawls))
		if err != nil {
			t.Fatal(err)
		}
		warnings, err := Check(t.Context(), c)
		if err != nil || polite != (len(warnings) == 0) || !polite && !strings.Contains(warnings[0], "key: host(payload.url)") {
			t.Errorf("%s: %q, %v", crawls, warnings, err)
		}
	}
}
