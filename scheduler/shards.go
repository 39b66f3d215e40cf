package scheduler

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/shard"
	"github.com/headgate/headgate/throttle"
)

// Shards describes a queue that is divided into shards, because one core of Redis is too slow for
// it. The queue crawl with 16 shards is the asynq queues crawl.0 to crawl.15. A Redis Cluster can
// keep each of them on another node, with the limits of its jobs.
//
// All jobs with the same shard key are in one shard. The key is the job's [ShardKey], or what KeyOf
// returns. A job with neither has its ID as its key, or the type and the payload that its Unique
// lock has.
//
// A program gives the same Shards to its servers, see [WithShards], and to its clients, see
// [NewClient]. The number of shards can be changed while the queue has no jobs and no server runs.
type Shards struct {
	// Queue is the name of the queue, and Count is the number of its shards, 1 to 1000.
	Queue string
	Count int
	// ByKey are the limits whose key is always the shard key of the job, for example its host. All
	// jobs of such a key are in one shard, so the limit is exact.
	ByKey []string
	// Divided are all other limits of the queue's jobs. Each shard has an equal part of the rate and
	// of the capacity, so all shards together stay within the limit. If some shards have less to do
	// than others, a part of the limit stays unused.
	//
	// Jobs of other queues cannot use the limits of ByKey and Divided, because a limit in two places
	// would count twice.
	Divided []string
	// KeyOf returns the shard key of a job that is enqueued without ShardKey. The zero value means
	// that such jobs have none.
	KeyOf func(task *asynq.Task) (string, error)
}

// WithShards divides queues of the server into shards. They must be among the queues of its
// configuration. Each shard has a scope of its own in the Redis of the server's limiter, with the
// name of the shard.
func WithShards(queues ...Shards) Option {
	return func(o *options) { o.shards = append(o.shards, queues...) }
}

// ShardKey returns an option that puts a job of a sharded queue into the shard of a key. NewTask and
// a Client's Enqueue take it; asynq's own functions ignore it. The last of several counts.
func ShardKey(key string) asynq.Option { return shardKeyOption(key) }

// shardKeyOption implements asynq.Option.
type shardKeyOption string

func (k shardKeyOption) String() string         { return fmt.Sprintf("ShardKey(%q)", string(k)) }
func (k shardKeyOption) Type() asynq.OptionType { return -1 } // none of asynq's
func (k shardKeyOption) Value() any             { return string(k) }

// headerShardKey is the header of a task that NewTask has given a shard key.
const headerShardKey = "headgate-shard-key"

// shardKeyIn finds the last ShardKey among options.
func shardKeyIn(opts []asynq.Option) (key string, ok bool) {
	for _, opt := range opts {
		if own, is := opt.(shardKeyOption); is {
			key, ok = string(own), true
		}
	}
	return key, ok
}

// shardedQueues are sharded queues by name.
type shardedQueues map[string]Shards

// newShardedQueues returns the queues, or what is wrong with them.
func newShardedQueues(list []Shards) (shardedQueues, error) {
	queues, homes := shardedQueues{}, map[string]string{}
	for _, q := range list {
		wrong := func(field string, value any, want string) error {
			return fmt.Errorf("shards of queue %s: %w", q.Queue, &throttle.FieldError{Field: field, Value: fmt.Sprint(value), Want: want})
		}
		if _, twice := queues[q.Queue]; twice || q.Queue == "" || validQueue(q.Queue) != nil {
			return nil, wrong("queue", strconv.Quote(q.Queue), "want the name of a queue, once")
		}
		if q.Count < 1 || q.Count > shard.MaxCount {
			return nil, wrong("count", q.Count, fmt.Sprintf("want 1 to %d", shard.MaxCount))
		}
		for _, limit := range slices.Concat(q.ByKey, q.Divided) {
			if other, used := homes[limit]; used {
				return nil, wrong("limit", limit, fmt.Sprintf("it is there already, for queue %s, and would count twice; want a limit of another name", other))
			}
			homes[limit] = q.Queue
		}
		queues[q.Queue] = q
	}
	return queues, nil
}

// count returns the number of shards of a queue, 0 for a queue that is not sharded.
func (s shardedQueues) count(queue string) int { return s[queue].Count }

// queueOf returns the queue of a shard's name. Any other name is that of the queue itself.
func (s shardedQueues) queueOf(name string) string {
	if part, ok := shard.Parse(name, s.count); ok {
		return part.Queue
	}
	return name
}

// home returns the sharded queue whose limit it is. Its name is empty for a limit of all other queues.
func (s shardedQueues) home(limit string) (home Shards, divided bool) {
	for _, q := range s {
		if slices.Contains(q.ByKey, limit) {
			return q, false
		}
		if slices.Contains(q.Divided, limit) {
			return q, true
		}
	}
	return Shards{}, false
}

// limitsIn returns the parts of limits that a shard has, or the limits that no shard has for the zero
// shard.
func (s shardedQueues) limitsIn(part shard.Shard, limits []throttle.Limit) ([]throttle.Limit, error) {
	var own []throttle.Limit
	for _, l := range limits {
		home, divided := s.home(l.Name)
		if home.Queue != part.Queue {
			continue
		}
		if divided {
			var err error
			if l, err = part.Divide(l); err != nil {
				return nil, fmt.Errorf("limit %s: %w", l.Name, err)
			}
		} else if part.Count > 0 {
			l.Overrides = maps.Clone(l.Overrides)
			maps.DeleteFunc(l.Overrides, func(key string, _ throttle.Override) bool { return shard.Of(part.Queue, key, part.Count) != part })
		}
		own = append(own, l)
	}
	return own, nil
}

// check refuses needs of a job that would count in another place, too.
func (s shardedQueues) check(part shard.Shard, needs []throttle.Need) error {
	if len(s) == 0 {
		return nil
	}
	for _, n := range needs {
		switch home, divided := s.home(n.Limit); {
		case home.Queue == part.Queue && (part.Count == 0 || divided):
		case home.Queue == part.Queue && n.Key == "":
			return fmt.Errorf("limit %s without a key: it is one of ByKey, and counts by the shard key of queue %s", n.Limit, part.Queue)
		case home.Queue == part.Queue:
			if right := shard.Of(part.Queue, n.Key, part.Count); right != part {
				return fmt.Errorf("limit %s counts key %s in shard %s, and this job is in %s: enqueue it with that shard key", n.Limit, n.Key, right.Name(), part.Name())
			}
		case home.Queue == "":
			return fmt.Errorf("limit %s is not one of queue %s: a sharded queue needs it among its divided limits", n.Limit, part.Queue)
		default:
			return fmt.Errorf("limit %s belongs to the sharded queue %s: jobs of other queues cannot use it", n.Limit, home.Queue)
		}
	}
	return nil
}

// maxUnit bounds the weights of shards, because asynq makes a list of all weights for each fetch.
const maxUnit = 1000

// expand returns the queues that asynq serves, with their weights: the shards of a queue have its
// weight together. With strict priority each shard has the weight of its queue.
func (s shardedQueues) expand(queues map[string]int, strict bool) map[string]int {
	if len(s) == 0 {
		return queues
	}
	all, unit := map[string]int{}, 1
	for _, q := range s {
		unit = min(unit/gcd(unit, q.Count)*q.Count, maxUnit)
	}
	common := 0
	for queue, weight := range queues {
		names, weight := s.names(queue), max(1, weight)
		if !strict {
			weight = max(1, weight*unit/len(names))
		}
		for _, name := range names {
			all[name] = weight
		}
		common = gcd(common, weight)
	}
	for name := range all {
		all[name] /= common
	}
	return all
}

// names returns the asynq queues of a queue: its shards, or itself.
func (s shardedQueues) names(queue string) []string {
	if s.count(queue) == 0 {
		return []string{queue}
	}
	return shardNames(queue, s.count(queue))
}

func shardNames(queue string, count int) (names []string) {
	for _, part := range shard.All(queue, count) {
		names = append(names, part.Name())
	}
	return names
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
