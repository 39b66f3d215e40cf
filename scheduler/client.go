package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/throttle"
)

// Client enqueues tasks as *asynq.Client does, and takes [Priority] as one more option:
//
//	client.Enqueue(task, asynq.Queue("mail"), scheduler.Priority(scheduler.PriorityHigh))
//
// Limits do not need it: a Server applies them to the tasks of any producer. If the program traces
// with OpenTelemetry, Client writes the span of the Enqueue into the task's headers, so that the
// job's run is found below it.
//
// It is safe for concurrent use.
type Client struct {
	*asynq.Client
	rdb    redis.UniversalClient
	shards *clientShards // nil if no queue has shards
}

// NewClient returns a client for the Redis of the asynq queues. It must know all queues with shards
// that it enqueues to. It sends nothing to Redis, and rdb is the caller's to close.
func NewClient(rdb redis.UniversalClient, shards ...Shards) *Client {
	return &Client{asynq.NewClientFromRedisClient(enqueueRedis{rdb}), rdb, newClientShards(rdb, shards)}
}

// Close does nothing: rdb is the caller's to close. asynq's own would return an error, because the
// connection is shared.
func (c *Client) Close() error { return nil }

// Enqueue is EnqueueContext without a context.
func (c *Client) Enqueue(task *asynq.Task, opts ...asynq.Option) (*asynq.TaskInfo, error) {
	return c.EnqueueContext(context.Background(), task, opts...)
}

// EnqueueContext enqueues a task as asynq's Client does, with the same errors, for example
// asynq.ErrDuplicateTask. Options given here win over those of the task, a Priority too. The task
// is not changed, and can be enqueued again. A queue name with a line break, which no Server would
// serve, is a [*throttle.FieldError]. The Queue of the result is the asynq queue that has the job, so
// for a queue with shards it is a shard, such as crawl.7.
func (c *Client) EnqueueContext(ctx context.Context, task *asynq.Task, opts ...asynq.Option) (*asynq.TaskInfo, error) {
	if task == nil {
		return c.Client.EnqueueContext(ctx, task, opts...)
	}
	ctx, end := traceEnqueue(ctx, task)
	headers := traceHeaders(ctx)
	if p, ok := priorityIn(opts); ok {
		headers[headerPriority] = formatPriority(p)
	}
	opts, err := c.shards.choose(ctx, task, opts)
	if err != nil {
		end(nil, err)
		return nil, err
	}
	info, err := c.Client.EnqueueContext(context.WithValue(ctx, headersKey{}, headers), task, opts...)
	if wrong := (*throttle.FieldError)(nil); errors.As(err, &wrong) {
		err = wrong // without asynq's words around it
	}
	end(info, err)
	return info, err
}

// EnqueueResult is what Enqueue would have returned for one task of EnqueueAll.
type EnqueueResult struct {
	Info *asynq.TaskInfo
	Err  error
}

// maxEnqueued is how many tasks go in one round trip at most.
const maxEnqueued = 64

// EnqueueAll is EnqueueContext for each of some tasks, in their order, in a round trip for up to 64
// of them. It returns a result for each. If the context ends or Redis is lost, some tasks may be in
// their queues all the same.
func (c *Client) EnqueueAll(ctx context.Context, tasks ...*asynq.Task) []EnqueueResult {
	results := make([]EnqueueResult, len(tasks))
	for first := 0; first < len(tasks); first += maxEnqueued {
		some := results[first:min(first+maxEnqueued, len(tasks))]
		c.enqueue(ctx, tasks[first:first+len(some)], some)
	}
	return results
}

// enqueue lets asynq enqueue each task in a goroutine of its own. asynq sends one script for each:
// once all goroutines that have not ended wait with a script, the scripts go in one pipeline.
func (c *Client) enqueue(ctx context.Context, tasks []*asynq.Task, results []EnqueueResult) {
	scripts := make(chan *pendingScript) // nil when a goroutine has ended
	for i, task := range tasks {
		go func() {
			results[i].Info, results[i].Err = c.EnqueueContext(context.WithValue(ctx, pipelineKey{}, pipelineIndex{i, scripts}), task)
			scripts <- nil
		}()
	}
	var waiting []*pendingScript
	for running := len(tasks); running > 0; {
		if s := <-scripts; s != nil {
			waiting = append(waiting, s)
		} else {
			running--
		}
		if len(waiting) > 0 && len(waiting) == running {
			slices.SortFunc(waiting, func(a, b *pendingScript) int { return cmp.Compare(a.index, b.index) })
			c.send(ctx, waiting)
			waiting = nil
		}
	}
}

// send sends scripts in one pipeline, and sets a marker for each queue that may have jobs by them.
func (c *Client) send(ctx context.Context, scripts []*pendingScript) {
	_, _ = c.rdb.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its error
		queues := map[string]bool{}
		for _, s := range scripts {
			if s.cmd = s.send(p); s.queue != "" {
				queues[s.queue] = true
			}
		}
		for queue := range queues {
			setMarker(ctx, p, markerKey(queue))
		}
		return nil
	})
	for _, s := range scripts {
		close(s.sent)
	}
}

type (
	headersKey    struct{} // the context key of headers that asynq's message of a task gets
	pipelineKey   struct{} // the context key of a pipelineSlot
	pipelineIndex struct {
		index   int // of the task among the others
		scripts chan<- *pendingScript
	}
	// pipelined is a script that waits to be sent.
	pendingScript struct {
		index int
		send  func(redis.Cmdable) *redis.Cmd
		queue string // of which the script may make jobs pending, or empty
		cmd   *redis.Cmd
		sent  chan struct{}
	}
)

// enqueuing is the Redis client of asynq's client. It adds the headers of Enqueue to the message
// that asynq makes of a task, because a task's options are asynq's secret and the task cannot be
// made anew, and sets the marker of the queue.
type enqueueRedis struct{ redis.UniversalClient }

// SAdd implements redis.SetCmdable. asynq makes a queue known by it, before the queue's first job.
func (e enqueueRedis) SAdd(ctx context.Context, key string, members ...any) *redis.IntCmd {
	for _, queue := range members {
		if err := validQueue(fmt.Sprint(queue)); err != nil {
			return intCmd(ctx, 0, err)
		}
	}
	return e.UniversalClient.SAdd(ctx, key, members...)
}

// validQueue refuses a queue whose lanes could not be told from another's by their names.
func validQueue(queue string) error {
	if strings.Contains(queue, "\n") {
		return &throttle.FieldError{Field: "queue", Value: strconv.Quote(queue), Want: "want a name without line breaks"}
	}
	return nil
}

// EvalSha implements redis.Scripter.
func (e enqueueRedis) EvalSha(ctx context.Context, sha1 string, keys []string, args ...any) *redis.Cmd {
	return e.run(ctx, keys, args, func(c redis.Cmdable, args []any) *redis.Cmd { return c.EvalSha(ctx, sha1, keys, args...) })
}

// Eval implements redis.Scripter.
func (e enqueueRedis) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return e.run(ctx, keys, args, func(c redis.Cmdable, args []any) *redis.Cmd { return c.Eval(ctx, script, keys, args...) })
}

// run runs a script with the headers. A script that may make a job pending sets the marker in the
// same round trip. A script of EnqueueAll goes with the others.
func (e enqueueRedis) run(ctx context.Context, keys []string, args []any, call func(redis.Cmdable, []any) *redis.Cmd) (cmd *redis.Cmd) {
	headers, _ := ctx.Value(headersKey{}).(map[string]string)
	args = asynqdb.WithHeaders(args, headers)
	queue := ""
	if c := asynqdb.Recognize(keys, args); c.MayAddPending {
		queue = c.Queue
	}
	if p, ok := ctx.Value(pipelineKey{}).(pipelineIndex); ok {
		s := &pendingScript{p.index, func(c redis.Cmdable) *redis.Cmd { return call(c, args) }, queue, nil, make(chan struct{})}
		p.scripts <- s
		<-s.sent
		return s.cmd
	}
	if queue == "" {
		return call(e.UniversalClient, args)
	}
	_, _ = e.UniversalClient.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its error
		cmd = call(p, args)
		setMarker(ctx, p, markerKey(queue))
		return nil
	})
	return cmd
}
