package main

import (
	"context"
	"time"

	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/throttle"
)

// delayLife is how long a Crawl-delay holds, as robots.txt does.
const delayLife = 24 * time.Hour

// keepDelay holds the limits of which the job's host is the key to the host's
// Crawl-delay. It is told before each request, and tells the limiter when half
// of what it told last is over. The key is shut for the delay, since the permit of
// the request that brought it came at the rate before.
func (w *worker) keepDelay(ctx context.Context, host string, delay time.Duration) error {
	rule, _ := scheduler.GetRule(ctx)
	for _, n := range rule.Needs {
		if n.Key != host {
			continue
		}
		kept := keptDelay{n.Limit, host, delay}
		if at, ok := w.delays.Load(kept); ok && time.Since(at.(time.Time)) < delayLife/2 {
			continue
		}
		o, ok := delayed(w.config.Load().Limits, n.Limit, host, delay)
		if ok {
			if err := w.limiter.SetKey(ctx, n.Limit, host, o); err != nil {
				return err
			}
			if err := w.limiter.BlockFor(ctx, delay, n); err != nil {
				return err
			}
			w.log.Info("keeping a Crawl-delay", "limit", n.Limit, "host", host, "delay", delay)
		}
		w.delays.Store(kept, time.Now())
	}
	return nil
}

// keptDelay is one that the limiter was told.
type keptDelay struct {
	limit, host string
	delay       time.Duration
}

// delayed is what a host counts by that asks for a Crawl-delay, unless its limit
// is slower by itself, or of a kind that knows no intervals.
func delayed(limits []throttle.Limit, name, host string, delay time.Duration) (o throttle.Override, ok bool) {
	for _, l := range limits {
		if l.Name != name || l.Kind != throttle.Funnel && l.Kind != throttle.TokenBucket {
			continue
		}
		rate, capacity := l.Rate, max(1, l.Capacity)
		if own, is := l.Overrides[host]; is {
			if own.Rate != (throttle.Rate{}) {
				rate = own.Rate
			}
			if own.Capacity > 0 {
				capacity = own.Capacity
			}
		}
		slower := rate.Per/time.Duration(rate.N) >= delay && capacity == 1
		return throttle.Override{Rate: throttle.Every(delay), Capacity: 1, For: delayLife}, !slower
	}
	return o, false
}
