package scheduler

import (
	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/shard"
)

// Shards divides a queue into shards, for a queue that needs more than one core of Redis. For
// example, the queue crawl with 16 shards consists of the asynq queues crawl.0 to crawl.15. In a
// Redis Cluster, each shard and the limits of its jobs can be on a different node.
//
// All jobs with the same shard key are in one shard. The key is the job's [ShardKey], or else the
// result of KeyOf. Without both, it is the key of the job's Unique lock, or else the job's ID.
//
// A program passes the same Shards to its servers, see [WithShards], and to its clients, see
// [NewClient]. The number of shards can change only while the queue has no jobs and no server runs.
type Shards struct {
	// Queue is the name of the queue, and Count is the number of its shards, 1 to 1000.
	Queue string
	Count int
	// ByKey has the names of limits whose key is always the job's shard key, for example its host.
	// All jobs with the same key are in one shard, so such a limit is exact.
	ByKey []string
	// Divided has the names of all other limits of the queue's jobs. Each shard has an equal part
	// of the rate and the capacity. If some shards have less to do than others, a part of the limit
	// is unused. Jobs of other queues cannot use the limits in ByKey and Divided, because each
	// scope counts a limit separately.
	Divided []string
	// KeyOf returns the shard key of a task that is enqueued without ShardKey. It may be nil.
	KeyOf func(task *asynq.Task) (string, error)
}

// WithShards divides queues of the server's configuration into shards. Each shard has its own scope
// in the Redis of the server's limiter, with the shard's name.
func WithShards(queues ...Shards) Option {
	return func(o *options) { o.shards = append(o.shards, queues...) }
}

// ShardKey returns an option that sets a job's shard key, see [Shards]. NewTask and a Client's
// Enqueue accept it. asynq's own functions ignore it. If it is given several times, the last one
// applies.
func ShardKey(key string) asynq.Option { return headerOption{headerShardKey, key} }

// newQueues returns the sharded queues by name, or an error if one of them is not valid.
func newQueues(list []Shards) (shard.Queues, error) {
	queues := make([]shard.Queue, len(list))
	for i, q := range list {
		queues[i] = shard.Queue{Name: q.Queue, Count: q.Count, ByKey: q.ByKey, Divided: q.Divided}
	}
	return shard.NewQueues(queues...)
}

// maxUnit is the maximum factor by which expandQueues multiplies weights, because asynq builds a
// list with as many entries as the sum of all weights for each fetch.
const maxUnit = 1000

// expandQueues returns the asynq queues with their weights. With strict priority each shard has the
// weight of its queue. Without strict priority the shards of a queue share its weight.
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
