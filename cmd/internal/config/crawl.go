package config

import (
	"cmp"
	"maps"
	"slices"

	"github.com/headgate/headgate/tasks"
	"github.com/headgate/headgate/throttle"
)

// CrawlLimit is the name of the limit that a config of crawls has without writing it.
const CrawlLimit = "crawl-host"

// HasRules reports whether the config says which limits jobs of a type have, if only that they have
// none. A config without any task says nothing. If it has CrawlLimit, it says so of crawls alone.
func (c *Config) HasRules(typename string) bool {
	_, written := c.Sections["tasks"]
	_, named := c.Tasks[typename]
	return named || len(c.Tasks) > 0 && (written || c.Sections == nil)
}

// addCrawlLimit adds CrawlLimit and crawl:fetch's need of it if the file is about crawls and
// crawl:fetch has no limit with the host in its key, or if the file has crawl.rate. Without the
// limit, the handler of crawl:fetch keeps the same rate itself, and the jobs that wait for it cost
// more. That is the case if crawls are in a queue with shards by anything but the host, because a
// limit of the jobs of a shard must count by the shard key or be divided.
func (d *decoder) addCrawlLimit(c *Config) {
	const byHost = "host(payload.url)"
	task, named := c.Tasks[tasks.TypeCrawlFetch]
	isLimited := slices.ContainsFunc(task.Limits, func(n Need) bool { return n.Key.ByHost() })
	if !named && !d.has("crawl") || isLimited && !d.has("crawl.rate") {
		return
	}
	for _, q := range c.Queues {
		if q.Shards > 0 && q.ShardBy.String() != byHost {
			return
		}
	}
	if slices.Contains(namesOf(c.Limits), CrawlLimit) {
		d.errorf(join("limits", CrawlLimit), "this is the name of the limit that crawl.rate sets: want another name")
		return
	}
	need := Need{Limit: CrawlLimit}
	if err := need.Key.UnmarshalText([]byte(byHost)); err != nil {
		panic(err) // the expression is constant
	}
	task.Limits = append(slices.Clip(task.Limits), need)
	all := Tasks{}
	maps.Copy(all, c.Tasks)
	all[tasks.TypeCrawlFetch] = task
	c.Tasks = all
	c.Limits = append(c.Limits, throttle.Limit{Name: CrawlLimit, Kind: throttle.Funnel, Rate: cmp.Or(c.Crawl.Rate, tasks.DefaultCrawlRate)})
	slices.SortFunc(c.Limits, func(a, b throttle.Limit) int { return cmp.Compare(a.Name, b.Name) })
}
