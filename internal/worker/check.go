package worker

import (
	"context"
	"fmt"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/dial"
)

// Check finds what keeps a worker from running, and what it would warn of.
func Check(ctx context.Context, conf *config.Config) (warning string, err error) {
	if conf.Absent != "" {
		return "", fmt.Errorf("nothing to check: %s: write one, or name it with --config FILE", conf.Absent)
	}
	if _, err := newHandlers(conf); err != nil || conf.Redis.IsZero() {
		return "", err
	}
	rdb, err := dial.Redis(ctx, conf.Redis)
	if err != nil {
		return "", err
	}
	defer rdb.Close()
	return evictionWarning(ctx, rdb, conf.Redis), nil
}
