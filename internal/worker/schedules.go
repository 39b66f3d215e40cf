package worker

import (
	"log/slog"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/scheduler/cron"
)

// Schedules runs those of a config, or changes them.
func Schedules(rdb redis.UniversalClient, c *config.Config, log *slog.Logger) (*cron.Runner, error) {
	runner := cron.New(rdb, scheduler.NewClient(rdb), cron.Options{Scope: c.Scope, Log: log})
	return runner, runner.Set(c.Entries())
}
