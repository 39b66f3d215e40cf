package config

import (
	"cmp"
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
	// Weight is the queue's share of jobs, at most 10000. A queue of weight 6 is served six times as
	// often as a queue of weight 1, also at a limit that both need. NAME: WEIGHT is short for a
	// queue with only a weight. The zero value means `1`.
	Weight int `yaml:"weight" short:""`
	// Shards is the number of shards of a queue that is too busy for one core of Redis. Each shard
	// is an asynq queue, such as `crawl.7`, and has its own limits. A Redis Cluster can keep each
	// shard on another node. The zero value means none.
	Shards int `yaml:"shards"`
	// ShardBy is the shard key. All jobs with the same shard key are in the same shard, so limits
	// that count by the shard key are exact. The zero value means the job's ID.
	ShardBy expression.Key `yaml:"shard_by"`
	// Divide are the limits of the queue's jobs that do not count by the shard key. Each shard has an
	// equal part of their rates and capacities. Jobs of other queues cannot use these limits.
	Divide []string `yaml:"divide"`
}

// Queues are the queues of a worker, by name.
type Queues map[string]Queue

// Weights returns the weight of each queue, by name, as asynq.Config takes them.
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

// checkShards sets c.Sharded. It reports a limit that belongs to two queues, and a task that needs
// limits of two queues. It also reports a task that uses a limit by shard key with another key.
func (d *decoder) checkShards(c *Config) {
	var homes []shard.Queue
	for _, name := range slices.Sorted(maps.Keys(c.Queues)) {
		q := c.Queues[name]
		if q.Shards == 0 {
			continue
		}
		home := shard.Queue{Name: name, Count: min(q.Shards, shard.MaxCount)}
		for _, l := range c.Limits {
			if !q.ShardBy.IsZero() && slices.Contains(c.Tasks.KeysOf(l.Name), q.ShardBy.String()) && !slices.Contains(q.Divide, l.Name) {
				home.ByKey = append(home.ByKey, l.Name)
			}
		}
		for i, limit := range q.Divide {
			if d.checkDivided(indexed(join("queues", name)+".divide", i), limit, home, c) {
				home.Divided = append(home.Divided, limit)
			}
		}
		homes = append(homes, home)
	}
	if homes == nil {
		return
	}
	var err error
	if c.Sharded, err = shard.NewQueues(homes...); err != nil {
		d.errorf("queues", "%v", err)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Queues)) {
		if queue := c.Sharded.QueueOf(name); queue != name {
			d.errorf(join("queues", name), "it is a shard of queue %s: want another name", queue)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Tasks)) {
		queue := ""
		for _, n := range c.Tasks[name].Limits {
			home, _ := c.Sharded.Home(n.Limit)
			queue = cmp.Or(queue, home.Name)
		}
		for i, n := range c.Tasks[name].Limits {
			at := indexed(join("tasks", name)+".limits", i)
			home, divided := c.Sharded.Home(n.Limit)
			if by := c.Queues[home.Name].ShardBy.String(); home.Name != "" && !divided && n.Key.String() != by {
				d.errorf(at, "limit %s counts by the shard key of queue %s in other tasks: want key: %s, or divide: [%s] in queues.%s", n.Limit, home.Name, by, n.Limit, home.Name)
			} else if err := c.Sharded.Check(queue, shard.Shard{}, []throttle.Need{{Limit: n.Limit, Key: by}}); err != nil {
				d.errorf(at, "%v", err)
			}
		}
	}
}

// checkDivided reports a limit that cannot be divided among the shards of a queue. It returns false
// if there is no limit of that name.
func (d *decoder) checkDivided(at, name string, home shard.Queue, c *Config) bool {
	i := slices.IndexFunc(c.Limits, func(l throttle.Limit) bool { return l.Name == name })
	if i < 0 {
		d.checkReference(at, "limit", name, namesOf(c.Limits))
		return false
	}
	limit := c.Limits[i]
	if _, err := (shard.Shard{Queue: home.Name, Count: home.Count}).Divide(limit); err != nil && limit.Validate() == nil {
		for _, e := range errorsOf[*throttle.FieldError](err) {
			d.errorf(join("limits", name)+"."+e.Field, "%s: %s", e.Value, e.Want)
		}
	}
	part := limit.MaxCost() / home.Count
	for _, need := range c.Tasks.needsOf(name) {
		if cost, constant := need.Cost.Constant(); constant && part > 0 && cost > part {
			d.errorf(at, "a task takes %d permits of limit %s at once, and a shard has %d: no job could ever run", cost, name, part)
		}
	}
	return true
}

func namesOf(limits []throttle.Limit) (names []string) {
	for _, l := range limits {
		names = append(names, l.Name)
	}
	return names
}

// Shards converts the sharded queues for package scheduler, sorted by name.
func (c *Config) Shards() (all []scheduler.Shards) {
	for _, name := range slices.Sorted(maps.Keys(c.Sharded)) {
		home := c.Sharded[name]
		s := scheduler.Shards{Queue: name, Count: home.Count, ByKey: home.ByKey, Divided: home.Divided}
		if by := c.Queues[name].ShardBy; !by.IsZero() {
			s.KeyOf = func(task *asynq.Task) (string, error) {
				return by.Value(&expression.Job{Type: task.Type(), Queue: name, Payload: task.Payload()})
			}
		}
		all = append(all, s)
	}
	return all
}

// ShardOf returns the shard of a job. The zero Shard means that the queue has no shards.
func (c *Config) ShardOf(task *asynq.Task) (shard.Shard, error) {
	if len(c.Sharded) == 0 {
		return shard.Shard{}, nil
	}
	queue, err := c.NewClient(nil).QueueOf(task)
	return c.Sharded.ShardNamed(queue), err
}

// NewClient returns a client that enqueues each job to its shard.
func (c *Config) NewClient(rdb redis.UniversalClient) *scheduler.Client {
	return scheduler.NewClient(rdb, c.Shards()...)
}
