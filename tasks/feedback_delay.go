package tasks

import (
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/throttle"
)

// delayLife is how long a Crawl-delay holds, as robots.txt does.
const delayLife = 24 * time.Hour

// CrawlDelay is for CrawlHandler.Delay: it has a host be called no more often than its
// robots.txt asks, by all workers. Funnels and token buckets of which the job's host is the
// key count so for the host, for a day at a time; what somebody set slower stays.
//
// It is told before each request, and asks the limiter what the host counts by: somebody may
// have changed that, or Redis have lost it. The key is shut for the delay when it is set,
// since the permit of the request that brought it came at the rate before.
func (f *Feedback) CrawlDelay(ctx context.Context, host string, delay time.Duration) error {
	rule, _ := scheduler.GetRule(ctx)
	kept := false
	for _, n := range rule.Needs {
		if n.Key != host {
			continue
		}
		l, state, err := f.Limiter.Key(ctx, n.Limit, host)
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
		if err := f.Limiter.SetKey(ctx, n.Limit, host, o); err != nil {
			return err
		}
		if err := f.Limiter.BlockFor(ctx, delay, n); err != nil {
			return err
		}
		f.log().Info("keeping a Crawl-delay", "limit", n.Limit, "host", host, "delay", delay)
	}
	if !kept {
		f.delayDropped.Do(func() { f.log().Warn(delayNotKept, "host", host, "delay", delay) })
	}
	return nil
}

// delayNotKept is said once, when the first host asks for what no limit can keep.
const delayNotKept = "a Crawl-delay of robots.txt is not kept: crawl:fetch wants a limit of kind funnel or token_bucket with key: host(payload.url)"

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
