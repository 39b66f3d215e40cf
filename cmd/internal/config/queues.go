package config

import (
	"maps"
	"slices"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/cmd/internal/expression"
	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/internal/shard"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/throttle"
)

// Queue is a queue that a worker serves.
type Queue struct {
	// Weight is the queue's part of the worker. A queue of weight 6 is served six times as often as
	// a queue of weight 1, also at limits that both need. It is at most 10000. It can replace the
	// mapping if it is alone. The zero value means `1`.
	Weight int `yaml:"weight" short:""`
	// Shards is the number of shards of a queue that is too busy for one core of Redis. Each shard
	// is an asynq queue with limits of its own, such as `crawl.7`, and a Redis Cluster can keep
	// each on another node. The zero value means none.
	Shards int `yaml:"shards"`
	// ShardBy is the shard key. All jobs of a key are in one shard. Limits that count by this key
	// are exact. The zero value means the job's ID.
	ShardBy expression.Key `yaml:"shard_by"`
	// Divide are all other limits that the jobs of the queue need. Each shard has an equal part of
	// such a limit's rate and capacity. Jobs of other queues cannot use these limits.
	Divide []string `yaml:"divide"`
}

// Queues are the queues of a worker, by name.
type Queues map[string]Queue

// Weights returns the queues as asynq configures them.
func (q Queues) Weights() map[string]int {
	weights := map[string]int{}
	for name, queue := range q {
		weights[name] = queue.Weight
	}
	return weights
}

func (d *decoder) checkQueues(queues Queues) {
	for _, name := range slices.Sorted(maps.Keys(queues)) {
		path, q := join("queues", name), queues[name]
		d.checkName(path, name)
		if !d.has(path + ".weight") {
			q.Weight = 1
		}
		d.want(q.Weight >= 1, path+".weight", "%d: want a weight of at least 1; leave the queue out to not serve it", q.Weight)
		d.want(q.Weight <= fairqueue.MaxQueueWeight, path+".weight", "%d: want a weight of at most %d", q.Weight, fairqueue.MaxQueueWeight)
		d.want(q.Shards >= 1 && q.Shards <= shard.MaxCount, path+".shards", "%d: want 1 to %d; leave it out for a queue without shards", q.Shards, shard.MaxCount)
		for _, field := range []string{".shard_by", ".divide"} {
			d.want(q.Shards > 0, path+field, "the queue has no shards: want shards as well")
		}
		queues[name] = q
	}
}

// checkShards finds the limits of sharded queues: those that tasks use with the shard key, and
// those to divide. It reports a limit that would count in two places.
func (d *decoder) checkShards(c *Config) {
	homes := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(c.Queues)) {
		q, path := c.Queues[name], join("queues", name)
		if q.Shards == 0 {
			continue
		}
		home := shard.Queue{Name: name, Count: min(q.Shards, shard.MaxCount)}
		for _, l := range c.Limits {
			keys := c.Tasks.KeysOf(l.Name)
			if q.ShardBy.IsZero() || !slices.Contains(keys, q.ShardBy.String()) || slices.Contains(q.Divide, l.Name) {
				continue
			}
			if slices.ContainsFunc(keys, func(key string) bool { return key != q.ShardBy.String() }) {
				d.errorf(path+".shard_by", "limit %s has this key in some tasks, and another one in others: want one key, or divide: [%s]", l.Name, l.Name)
			}
			home.ByKey = append(home.ByKey, l.Name)
		}
		for i, limit := range q.Divide {
			at := indexed(path+".divide", i)
			n := slices.IndexFunc(c.Limits, func(l throttle.Limit) bool { return l.Name == limit })
			if n < 0 {
				d.checkReference(at, "limit", limit, namesOf(c.Limits))
				continue
			}
			if _, err := (shard.Shard{Queue: name, Count: home.Count}).Divide(c.Limits[n]); err != nil && c.Limits[n].Validate() == nil {
				for _, e := range joined[*throttle.FieldError](err) {
					d.errorf(join("limits", limit)+"."+e.Field, "%s: %s", e.Value, e.Want)
				}
			}
			for _, need := range c.Tasks.needsOf(limit) {
				if cost, constant := need.Cost.Constant(); constant && c.Limits[n].MaxCost() >= home.Count && cost > c.Limits[n].MaxCost()/home.Count {
					d.errorf(at, "a task takes %d permits of limit %s at once, and a shard has %d: no job could ever run", cost, limit, c.Limits[n].MaxCost()/home.Count)
				}
			}
			home.Divided = append(home.Divided, limit)
		}
		for _, limit := range slices.Concat(home.ByKey, home.Divided) {
			if other := homes[limit]; other != "" {
				d.errorf(path, "limit %s would count twice, here and in queue %s: want a limit of another name for one of them", limit, other)
			}
			homes[limit] = name
		}
		if c.Sharded == nil {
			c.Sharded = shard.Queues{}
		}
		c.Sharded[name] = home
	}
	d.checkHomes(c.Tasks, homes)
	for _, name := range slices.Sorted(maps.Keys(c.Queues)) {
		if queue := c.Sharded.QueueOf(name); queue != name {
			d.errorf(join("queues", name), "it is a shard of queue %s: want another name", queue)
		}
	}
}

// checkHomes reports a task that needs limits of two sharded queues, or both limits of a sharded
// queue and limits outside of its shards: no job could use all of them. homes has the sharded queue
// of a limit.
func (d *decoder) checkHomes(tasks Tasks, homes map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(tasks)) {
		for i, n := range tasks[name].Limits {
			first := tasks[name].Limits[0].Limit
			queue, other := homes[first], homes[n.Limit]
			if queue == other || n.Limit == "" {
				continue
			}
			sharded, missing := first, n.Limit
			if queue == "" {
				queue, sharded, missing = other, n.Limit, first
			}
			d.errorf(indexed(join("tasks", name)+".limits", i), "limit %s counts in the shards of queue %s, and limit %s does not: want divide: [%s] in queues.%s", sharded, queue, missing, missing, queue)
		}
	}
}

func namesOf(limits []throttle.Limit) (names []string) {
	for _, l := range limits {
		names = append(names, l.Name)
	}
	return names
}

// Shards returns the sharded queues for servers and clients.
func (c *Config) Shards() (all []scheduler.Shards) {
	for _, name := range slices.Sorted(maps.Keys(c.Sharded)) {
		home, by := c.Sharded[name], c.Queues[name].ShardBy
		s := scheduler.Shards{Queue: name, Count: home.Count, ByKey: home.ByKey, Divided: home.Divided}
		if !by.IsZero() {
			s.KeyOf = func(task *asynq.Task) (string, error) {
				return by.Of(&expression.Job{Type: task.Type(), Queue: name, Payload: task.Payload()})
			}
		}
		all = append(all, s)
	}
	return all
}

// ShardOf returns the shard to which a job would be enqueued. It is zero for a queue without
// shards.
func (c *Config) ShardOf(queue, id string, task *asynq.Task) (shard.Shard, error) {
	for _, s := range c.Shards() {
		if s.Queue != queue {
			continue
		}
		key := id
		if s.KeyOf != nil {
			var err error
			if key, err = s.KeyOf(task); err != nil {
				return shard.Shard{}, err
			}
		}
		return shard.Of(queue, key, s.Count), nil
	}
	return shard.Shard{}, nil
}

// NewClient returns the client that all producers of this config use, because it knows in which
// shard a job belongs.
func (c *Config) NewClient(rdb redis.UniversalClient) *scheduler.Client {
	return scheduler.NewClient(rdb, c.Shards()...)
}
