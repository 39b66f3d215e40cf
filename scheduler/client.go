package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/throttle"
)

// Client enqueues tasks as *asynq.Client does, and takes [Priority] as one more
// option:
//
//	client.Enqueue(task, asynq.Queue("mail"), scheduler.Priority(lanes.High))
//
// Limits do not need it: a Server holds the tasks of any producer to them. Where
// the program traces with OpenTelemetry it writes the span of the Enqueue into the
// task's headers, so that the job's run is found below it.
//
// It is safe for concurrent use.
type Client struct {
	*asynq.Client
	rdb redis.UniversalClient
}

// NewClient returns a client for the Redis of the asynq queues. It asks Redis
// nothing, and rdb is the caller's to close.
func NewClient(rdb redis.UniversalClient) *Client {
	return &Client{asynq.NewClientFromRedisClient(enqueuing{rdb}), rdb}
}

// Close does nothing: rdb is the caller's to close. asynq's own would return an
// error, since the connection is shared.
func (c *Client) Close() error { return nil }

// Enqueue is EnqueueContext without a context.
func (c *Client) Enqueue(task *asynq.Task, opts ...asynq.Option) (*asynq.TaskInfo, error) {
	return c.EnqueueContext(context.Background(), task, opts...)
}

// EnqueueContext enqueues a task as asynq's Client does, with the same errors, such
// as asynq.ErrDuplicateTask. Options given here win over those of the task, a
// Priority too. The task is left as it is, and can be enqueued again. A queue whose name
// has a line break, which no Server would serve, is a [*throttle.FieldError].
func (c *Client) EnqueueContext(ctx context.Context, task *asynq.Task, opts ...asynq.Option) (*asynq.TaskInfo, error) {
	if task == nil {
		return c.Client.EnqueueContext(ctx, task, opts...)
	}
	ctx, end := traceEnqueue(ctx, task)
	headers := traceHeaders(ctx)
	if p, ok := priorityIn(opts); ok {
		headers[headerPriority] = formatPriority(p)
	}
	info, err := c.Client.EnqueueContext(context.WithValue(ctx, headersKey{}, headers), task, opts...)
	if wrong := (*throttle.FieldError)(nil); errors.As(err, &wrong) {
		err = wrong // without asynq's words around it
	}
	end(info, err)
	return info, err
}

// Enqueued is what became of one task of EnqueueAll: what Enqueue would have returned.
type EnqueueResult struct {
	Info *asynq.TaskInfo
	Err  error
}

// mostEnqueued is how many tasks go in one round trip at most.
const mostEnqueued = 64

// EnqueueAll is EnqueueContext for each of some tasks, in their order, in a round trip for up
// to 64 of them. There is an answer for each. Where the context ends or Redis is lost, some may
// be in their queues all the same.
func (c *Client) EnqueueAll(ctx context.Context, tasks ...*asynq.Task) []EnqueueResult {
	answers := make([]EnqueueResult, 0, len(tasks))
	for some := range slices.Chunk(tasks, mostEnqueued) {
		answers = append(answers, c.enqueueSome(ctx, some)...)
	}
	return answers
}

// enqueueSome has asynq enqueue each task, which sends one script for it, and those scripts
// wait for one another.
func (c *Client) enqueueSome(ctx context.Context, tasks []*asynq.Task) []EnqueueResult {
	answers := make([]EnqueueResult, len(tasks))
	b := &pipeline{underway: len(tasks), waiting: make([]*pipelined, len(tasks)), pipelined: func(fill func(redis.Pipeliner) error) {
		_, _ = c.rdb.Pipelined(ctx, fill) // each command has its error
	}}
	var group sync.WaitGroup
	for i, task := range tasks {
		group.Go(func() {
			defer b.end()
			answers[i].Info, answers[i].Err = c.EnqueueContext(context.WithValue(ctx, pipelineKey{}, pipelineSlot{b, i}), task)
		})
	}
	group.Wait()
	return answers
}

// headersKey is the context key of headers that Enqueue adds. A task's options
// are asynq's secret, so the task cannot be made anew with more headers; the
// message that asynq makes of it gets them instead.
type headersKey struct{}

// enqueuing is the Redis client of a Client's asynq. All of its calls pass as they
// are, but that scripts get the headers which their context has, that a server is
// woken where a job becomes pending, and that a queue has a name of one line.
type enqueuing struct{ redis.UniversalClient }

// SAdd implements redis.SetCmdable. It is how asynq makes a queue known, before the first
// job of it.
func (e enqueuing) SAdd(ctx context.Context, key string, members ...any) *redis.IntCmd {
	for _, queue := range members {
		if err := validQueue(fmt.Sprint(queue)); err != nil {
			cmd := redis.NewIntCmd(ctx)
			cmd.SetErr(err)
			return cmd
		}
	}
	return e.UniversalClient.SAdd(ctx, key, members...)
}

// validQueue refuses a queue whose lanes would be another's by their names.
func validQueue(queue string) error {
	if strings.Contains(queue, "\n") {
		return &throttle.FieldError{Field: "queue", Value: strconv.Quote(queue), Want: "want a name without line breaks"}
	}
	return nil
}

// EvalSha implements redis.Scripter.
func (e enqueuing) EvalSha(ctx context.Context, sha1 string, keys []string, args ...any) *redis.Cmd {
	return e.ringing(ctx, keys, args, func(c redis.Cmdable, args []any) *redis.Cmd { return c.EvalSha(ctx, sha1, keys, args...) })
}

// Eval implements redis.Scripter.
func (e enqueuing) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return e.ringing(ctx, keys, args, func(c redis.Cmdable, args []any) *redis.Cmd { return c.Eval(ctx, script, keys, args...) })
}

// ringing makes a call with the headers, and rings in the same round trip if it makes a job
// pending. A call of EnqueueAll goes with the others.
func (e enqueuing) ringing(ctx context.Context, keys []string, args []any, call func(redis.Cmdable, []any) *redis.Cmd) (cmd *redis.Cmd) {
	headers, _ := ctx.Value(headersKey{}).(map[string]string)
	args = asynqdb.WithHeaders(args, headers)
	queue, ok := asynqdb.Fills(keys)
	if in, some := ctx.Value(pipelineKey{}).(pipelineSlot); some {
		return in.run(queue, func(p redis.Cmdable) *redis.Cmd { return call(p, args) })
	}
	if !ok {
		return call(e.UniversalClient, args)
	}
	_, _ = e.UniversalClient.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its error
		cmd = call(p, args)
		setMarker(ctx, p, markerKey(queue))
		return nil
	})
	return cmd
}
