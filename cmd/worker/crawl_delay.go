package main

import (
	"context"
	"time"

	"github.com/headgate/headgate/scheduler"
)

// keepDelay holds a host's limits to a Crawl-delay: those of the job's that have
// the host as their key give no other permit until then.
func (w *worker) keepDelay(ctx context.Context, host string, delay time.Duration) error {
	rule, _ := scheduler.GetRule(ctx)
	for _, n := range rule.Needs {
		if n.Key != host {
			continue
		}
		now, err := w.store.Time(ctx).Result() // the limiter goes by Redis's clock
		if err != nil {
			return err
		}
		if err := w.limiter.Block(ctx, n.Limit, n.Key, now.Add(delay)); err != nil {
			return err
		}
	}
	return nil
}
