package scheduler

import (
	"context"
	"slices"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// Client enqueues tasks as *asynq.Client does, and takes [Priority] as one more
// option:
//
//	client.Enqueue(task, asynq.Queue("mail"), scheduler.Priority(throttle.High))
//
// Limits do not need it: a Server holds the tasks of any producer to them.
type Client struct{ *asynq.Client }

// NewClient returns a client for the Redis of the asynq queues.
func NewClient(rdb redis.UniversalClient) *Client {
	return &Client{asynq.NewClientFromRedisClient(enqueuing{rdb})}
}

// Close does nothing: rdb is the caller's to close.
func (c *Client) Close() error { return nil }

// Enqueue is EnqueueContext without a context.
func (c *Client) Enqueue(task *asynq.Task, opts ...asynq.Option) (*asynq.TaskInfo, error) {
	return c.EnqueueContext(context.Background(), task, opts...)
}

// EnqueueContext enqueues a task as asynq's Client does. Options given here
// win over those of the task.
func (c *Client) EnqueueContext(ctx context.Context, task *asynq.Task, opts ...asynq.Option) (*asynq.TaskInfo, error) {
	if p, ok := priorityIn(opts); ok {
		ctx = context.WithValue(ctx, priorityKey{}, formatPriority(p))
	}
	return c.Client.EnqueueContext(ctx, task, opts...)
}

// priorityKey is the context key of the priority that Enqueue was given. A
// task's options are asynq's secret, so the task cannot be made anew with one
// more header; the message that asynq makes of it gets the header instead.
type priorityKey struct{}

// enqueuing is the Redis client of a Client's asynq.
type enqueuing struct{ redis.UniversalClient }

// EvalSha implements redis.Scripter.
func (e enqueuing) EvalSha(ctx context.Context, sha1 string, keys []string, args ...any) *redis.Cmd {
	return e.UniversalClient.EvalSha(ctx, sha1, keys, prioritized(ctx, args)...)
}

// Eval implements redis.Scripter.
func (e enqueuing) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return e.UniversalClient.Eval(ctx, script, keys, prioritized(ctx, args)...)
}

// prioritized puts the priority into the message among a script's arguments:
// in all of asynq's scripts that enqueue the only one of bytes.
func prioritized(ctx context.Context, args []any) []any {
	p, ok := ctx.Value(priorityKey{}).(string)
	if !ok {
		return args
	}
	args = slices.Clone(args)
	for i, arg := range args {
		if msg, is := arg.([]byte); is {
			args[i] = withHeader(msg, headerPriority, p)
		}
	}
	return args
}
