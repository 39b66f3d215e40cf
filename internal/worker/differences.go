package worker

import (
	"context"
	"log/slog"
	"slices"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/scheduler/lanes"
	"github.com/headgate/headgate/throttle"
)

// logDifferences says which limits are not as the config file has them, because
// somebody changed or paused them at run time. That outlives a restart, and who
// restarts a worker to have the file's limits should hear of it.
func logDifferences(ctx context.Context, log *slog.Logger, limiter *lanes.Lanes, c *config.Config) error {
	limits, err := limiter.Limits(ctx)
	if err != nil {
		return err
	}
	now := map[string]throttle.Limit{}
	for _, l := range limits {
		now[l.Name] = l
	}
	for _, file := range c.Limits {
		l := now[file.Name]
		if l.Paused {
			log.Warn("a limit is paused", "limit", l.Name, "end it with", "worker limits resume "+l.Name)
			l.Paused = false
		}
		if l.String() != file.String() {
			log.Warn(`a limit differs from the config file, by "worker limits set": it stays until the file changes`,
				"limit", l.Name, "now", l.String(), "file", file.String())
		}
	}
	return nil
}

// logLeft says which of the limits that left the config file are still in Redis.
func logLeft(ctx context.Context, log *slog.Logger, limiter *lanes.Lanes, left []string) error {
	if len(left) == 0 {
		return nil
	}
	limits, err := limiter.Limits(ctx)
	for _, l := range limits {
		if slices.Contains(left, l.Name) {
			log.Warn("a limit left the file but is still in Redis", "remove it with", "worker limits delete "+l.Name)
		}
	}
	return err
}
