package worker

import (
	"slices"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/tasks"
	"github.com/headgate/headgate/throttle"
)

// delayNotKept is said where the config cannot keep what hosts may ask for.
const delayNotKept = "a Crawl-delay of robots.txt is not kept: crawl:fetch wants a limit of kind funnel or token_bucket with key: host(payload.url)"

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
	return slices.ContainsFunc(task.Limits, func(n config.Need) bool {
		return n.Key.ByHost() && (kinds[n.Limit] == throttle.Funnel || kinds[n.Limit] == throttle.TokenBucket)
	})
}
