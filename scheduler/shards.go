package scheduler

import (
	"fmt"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/shard"
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

// newQueues returns the sharded queues by name, or what is wrong with one of them.
func newQueues(list []Shards) (shard.Queues, error) {
	queues := make([]shard.Queue, len(list))
	for i, q := range list {
		queues[i] = shard.Queue{Name: q.Queue, Count: q.Count, ByKey: q.ByKey, Divided: q.Divided}
	}
	return shard.NewQueues(queues...)
}

// maxUnit bounds the weights of shards, because asynq makes a list of all weights for each fetch.
const maxUnit = 1000

// expand returns the queues that asynq serves, with their weights: the shards of a queue have its
// weight together. With strict priority each shard has the weight of its queue.
func expandQueues(sharded shard.Queues, queues map[string]int, strict bool) map[string]int {
	if len(sharded) == 0 {
		return queues
	}
	all, unit := map[string]int{}, 1
	for _, q := range sharded {
		unit = min(unit/gcd(unit, q.Count)*q.Count, maxUnit)
	}
	common := 0
	for queue, weight := range queues {
		names, weight := sharded.Names(queue), max(1, weight)
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

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
