package scheduler

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/shard"
	"github.com/headgate/headgate/throttle"
)

// clientShards finds the shards of the jobs that a client enqueues. It is safe for concurrent use.
type clientShards struct {
	rdb       redis.UniversalClient
	queues    shard.Queues
	keyOf     map[string]func(*asynq.Task) (string, error) // by queue
	queuesErr error                                        // from newQueues; returned by each choose
	dryRun    *asynq.Client

	mu      sync.Mutex
	checked map[string]bool // queues whose number of shards agrees with Redis
}

func newClientShards(rdb redis.UniversalClient, list []Shards) *clientShards {
	if len(list) == 0 {
		return nil
	}
	c := &clientShards{rdb: rdb, dryRun: newDryRun(), checked: map[string]bool{}, keyOf: map[string]func(*asynq.Task) (string, error){}}
	c.queues, c.queuesErr = newQueues(list)
	for _, q := range list {
		c.keyOf[q.Queue] = q.KeyOf
	}
	return c
}

// choose returns the options to enqueue a task to the right shard of its queue.
func (c *clientShards) choose(ctx context.Context, task *asynq.Task, opts []asynq.Option) ([]asynq.Option, error) {
	part, info, err := c.shardOf(task, opts)
	if err != nil || part.Count == 0 {
		return opts, err
	}
	if err := c.check(ctx, c.queues[part.Queue]); err != nil {
		return nil, err
	}
	return append(slices.Clip(opts), asynq.Queue(part.Name()), asynq.TaskID(info.ID)), nil
}

// shardOf returns the shard of a task, and what asynq would enqueue. It learns that from a dry run,
// because only asynq can read the options inside a task. If the queue has no shards, shardOf returns
// a Shard that has only the name of the queue.
func (c *clientShards) shardOf(task *asynq.Task, opts []asynq.Option) (shard.Shard, enqueued, error) {
	if c.queuesErr != nil {
		return shard.Shard{}, enqueued{}, c.queuesErr
	}
	var info enqueued
	var err error
	if info.TaskInfo, err = c.dryRun.EnqueueContext(context.WithValue(context.Background(), enqueuedKey{}, &info), task, opts...); err != nil {
		return shard.Shard{}, enqueued{}, err
	}
	q := c.queues[c.queues.QueueOf(info.Queue)]
	if q.Count == 0 {
		return shard.Shard{Queue: info.Queue}, info, nil
	}
	key, ok := headersIn(opts)[headerShardKey]
	if !ok {
		key, ok = task.Headers()[headerShardKey]
	}
	if keyOf := c.keyOf[q.Name]; !ok && keyOf != nil {
		if key, err = keyOf(task); err != nil {
			return shard.Shard{}, enqueued{}, fmt.Errorf("shard key of a job of queue %s: %w", q.Name, err)
		}
		ok = true
	}
	if !ok {
		key = cmp.Or(info.lock, info.ID)
	}
	return shard.ForKey(q.Name, key, q.Count), info, nil
}

// check returns an error if the queue's servers have another number of shards than this client.
func (c *clientShards) check(ctx context.Context, q shard.Queue) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.checked[q.Name] {
		return nil
	}
	n, err := storedShardCount(ctx, c.rdb, q.Name)
	if err != nil {
		return err
	}
	if n != 0 && n != q.Count {
		return &throttle.FieldError{Field: "count", Value: fmt.Sprint(q.Count), Want: fmt.Sprintf("queue %s has %s; want as many here", q.Name, formatShardCount(n))}
	}
	c.checked[q.Name] = true
	return nil
}

// enqueued is what asynq would enqueue.
type enqueued struct {
	*asynq.TaskInfo
	lock string // the task's Unique key, as asynq encodes it, or empty
	msg  []byte // the encoded message
}

type enqueuedKey struct{} // the context key of an *enqueued, whose lock and msg the dry run sets

func newDryRun() *asynq.Client { return asynq.NewClientFromRedisClient(dryRunRedis{}) }

// dryRunRedis is a Redis client that sends nothing and always reports that a task was enqueued.
type dryRunRedis struct{ redis.UniversalClient }

// SAdd implements redis.SetCmdable.
func (dryRunRedis) SAdd(context.Context, string, ...any) *redis.IntCmd {
	return redis.NewIntResult(1, nil)
}

// EvalSha implements redis.Scripter.
func (dryRunRedis) EvalSha(ctx context.Context, _ string, keys []string, args ...any) *redis.Cmd {
	e := ctx.Value(enqueuedKey{}).(*enqueued)
	for _, key := range keys {
		if _, lock, ok := strings.Cut(key, "}:unique:"); ok {
			e.lock = lock
		}
	}
	for _, arg := range args {
		if msg, ok := arg.([]byte); ok {
			e.msg = msg
		}
	}
	return redis.NewCmdResult(int64(1), nil)
}
