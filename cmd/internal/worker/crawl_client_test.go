package worker

import (
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/tasks"
)

// TestCrawlClient_UsesTimesOfType: a page that a crawl finds keeps its result for as long as
// the config says, and runs for as long.
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
