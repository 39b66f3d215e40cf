package worker

import (
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/tasks"
)

// TestCrawlClient_UsesTimesOfType: pages of a crawl have the retention and the timeout of the config.
func TestCrawlClient_UsesTimesOfType(t *testing.T) {
	_, rdb := redistest.Mini(t)
	conf := &config.Config{Tasks: config.Tasks{tasks.TypeCrawlFetch: {Retention: 24 * time.Hour, Timeout: 45 * time.Second}}}
	client := crawlClient{scheduler.NewClient(rdb), func() *config.Config { return conf }}
	info, err := client.EnqueueContext(t.Context(), asynq.NewTask(tasks.TypeCrawlFetch, nil), asynq.MaxRetry(2))
	if err != nil {
		t.Fatal(err)
	}
	if info.Retention != 24*time.Hour || info.Timeout != 45*time.Second || info.MaxRetry != 2 {
		t.Errorf("retention %s, timeout %s, retries %d", info.Retention, info.Timeout, info.MaxRetry)
	}
}

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
