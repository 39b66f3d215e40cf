package worker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/tasks"
	"github.com/headgate/headgate/throttle"
)

// delayLife is how long a Crawl-delay holds, as robots.txt does.
const delayLife = 24 * time.Hour

// keepDelay holds the limits of which the job's host is the key to the host's
// Crawl-delay. It is told before each request, and asks the limiter what the host
// counts by: somebody may have changed that, or Redis have lost it. The key is shut for
// the delay, since the permit of the request that brought it came at the rate before.
func (w *Worker) keepDelay(ctx context.Context, host string, delay time.Duration) error {
	rule, _ := scheduler.GetRule(ctx)
	kept := false
	for _, n := range rule.Needs {
		if n.Key != host {
			continue
		}
		l, state, err := w.limiter.Key(ctx, n.Limit, host)
		if errors.Is(err, throttle.ErrNoLimit) { // deleted since
			continue
		}
		if err != nil {
			return err
		}
		kept = kept || spaces(l.Kind)
		o, ok := delayed(l, state.Override, delay)
		if !ok {
			continue
		}
		if err := w.limiter.SetKey(ctx, n.Limit, host, o); err != nil {
			return err
		}
		if err := w.limiter.BlockFor(ctx, delay, n); err != nil {
			return err
		}
		w.log.Info("keeping a Crawl-delay", "limit", n.Limit, "host", host, "delay", delay)
	}
	if !kept {
		w.delayDropped.Do(func() { w.log.Warn(delayNotKept, "host", host, "delay", delay) })
	}
	return nil
}

// delayNotKept is said once, when the first host asks for what no limit can keep.
const delayNotKept = "a Crawl-delay of robots.txt is not kept: crawl:fetch wants a limit of kind funnel or token_bucket with key: host(payload.url)"

// checkDelays says of a config that it cannot keep what crawled hosts ask for.
func (w *Worker) checkDelays(c *config.Config) {
	if !keepsDelays(c) {
		w.log.Warn(delayNotKept)
	}
}

// keepsDelays reports whether a config's crawl jobs have a limit that can keep a host's
// Crawl-delay. One without crawl jobs has none to keep.
func keepsDelays(c *config.Config) bool {
	task, crawls := c.Tasks[tasks.TypeCrawlFetch]
	if !crawls {
		return true
	}
	kinds := map[string]throttle.Kind{}
	for _, l := range c.Limits {
		kinds[l.Name] = l.Kind
	}
	return slices.ContainsFunc(task.Limits, func(n config.Need) bool { return n.Key.ByHost() && spaces(kinds[n.Limit]) })
}

// spaces reports whether limits of a kind keep calls apart.
func spaces(k throttle.Kind) bool { return k == throttle.Funnel || k == throttle.TokenBucket }

// delayed is what a host is to count by that asks for a Crawl-delay, under a limit and
// what is its own there now. ok is false where that is slow enough, or the limit of a
// kind that knows no intervals. What somebody said slower stays, and what was said
// without an end gets none; what was told before is told again when half of its time
// is over.
func delayed(l throttle.Limit, own throttle.Override, delay time.Duration) (o throttle.Override, ok bool) {
	if !spaces(l.Kind) {
		return o, false
	}
	now, told := l.With(own), throttle.Every(delay)
	fast := now.Rate.Per/time.Duration(now.Rate.N) < delay
	before := own.For > 0 && own.Rate == told
	o = throttle.Override{Rate: own.Rate, Capacity: 1, For: own.For}
	if fast {
		o.Rate = told
	}
	if own == (throttle.Override{}) || own.For > 0 && fast || before {
		o.For = delayLife
	}
	return o, fast || now.Capacity > 1 || before && own.For < delayLife/2
}
