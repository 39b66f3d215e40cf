package worker

import (
	"context"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/scheduler"
)

// crawlClient enqueues the pages of a crawl with the config's timeout and retention, as the command
// enqueue does.
type crawlClient struct {
	*scheduler.Client
	config func() *config.Config
}

// EnqueueContext implements the Client of a tasks.CrawlHandler.
func (c crawlClient) EnqueueContext(ctx context.Context, task *asynq.Task, opts ...asynq.Option) (*asynq.TaskInfo, error) {
	t := c.config().Tasks[task.Type()]
	if t.Retention > 0 {
		opts = append(opts, asynq.Retention(t.Retention))
	}
	if t.Timeout > 0 {
		opts = append(opts, asynq.Timeout(t.Timeout))
	}
	return c.Client.EnqueueContext(ctx, task, opts...)
}
