package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/safelog"
	"github.com/headgate/headgate/internal/usercode"
	"github.com/headgate/headgate/throttle"
)

// Client enqueues tasks as *asynq.Client does, and also takes the options [Priority],
// [ShardKey] and [InBatch]:
//
//	client.Enqueue(task, asynq.Queue("mail"), scheduler.Priority(scheduler.PriorityHigh))
//
// A Server applies limits to the tasks of any producer, so asynq's own client works too. If the
// program uses OpenTelemetry, Client writes the trace context into the task's headers, so that the
// job's run becomes part of the trace.
//
// It is safe for concurrent use.
type Client struct {
	*asynq.Client
	rdb    redis.UniversalClient
	db     asynqdb.DB
	shards *clientShards // nil if no queue has shards
	joined joinedBatches
	log    *slog.Logger
}

// NewClient returns a client for the asynq queues in rdb. The argument shards must describe each
// queue with shards to which the client enqueues. NewClient sends nothing to Redis. The caller
// closes rdb.
func NewClient(rdb redis.UniversalClient, shards ...Shards) *Client {
	return &Client{
		Client: asynq.NewClientFromRedisClient(enqueueRedis{rdb}), rdb: rdb, db: asynqdb.New(rdb),
		shards: newClientShards(rdb, shards), log: safelog.New(slog.Default()),
	}
}

// Close does nothing, because the caller closes rdb. (asynq's Close returns an error in this case.)
func (c *Client) Close() error { return nil }

// Enqueue is EnqueueContext without a context.
func (c *Client) Enqueue(task *asynq.Task, opts ...asynq.Option) (*asynq.TaskInfo, error) {
	return c.EnqueueContext(context.Background(), task, opts...)
}

// EnqueueContext enqueues a task as asynq's Client does, with the same errors. The options override
// those of the task. The task does not change and can be enqueued again. For a queue name with a
// line break or with "}:", the error is a [*throttle.FieldError], because no Server accepts such a
// queue. If the
// queue has shards, the Queue of the result is the name of a shard, for example crawl.7.
func (c *Client) EnqueueContext(ctx context.Context, task *asynq.Task, opts ...asynq.Option) (*asynq.TaskInfo, error) {
	if task == nil {
		return c.Client.EnqueueContext(ctx, task, opts...)
	}
	ctx, end := traceEnqueue(ctx, task)
	headers := headersIn(opts)
	otel.GetTextMapPropagator().Inject(ctx, propagation.MapCarrier(headers))
	ctx, opts, err := c.placeJob(ctx, task, opts, headers)
	if err != nil {
		end(nil, err)
		return nil, err
	}
	info, err := c.Client.EnqueueContext(context.WithValue(ctx, headersKey{}, headers), task, opts...)
	if wrong := (*throttle.FieldError)(nil); errors.As(err, &wrong) {
		err = wrong // without asynq's prefix
	}
	end(info, err)
	return info, err
}

// placeJob returns the options with the job's shard, if its queue has shards, and a context with the
// job's batch, if it has one. It adds the batch to the headers.
func (c *Client) placeJob(ctx context.Context, task *asynq.Task, opts []asynq.Option, headers map[string]string) (_ context.Context, _ []asynq.Option, err error) {
	if name, inside := batchOf(ctx, task, opts); name != "" {
		ctx, opts, err = c.joinBatch(ctx, name, inside, task, opts, headers)
	}
	if err == nil && c.shards != nil {
		opts, err = c.shards.choose(ctx, task, opts)
	}
	return ctx, opts, err
}

// QueueOf returns the asynq queue into which EnqueueContext puts a task: the task's own queue, or one
// of its shards, for example crawl.7. It enqueues nothing, and sends nothing to Redis.
func (c *Client) QueueOf(task *asynq.Task, opts ...asynq.Option) (string, error) {
	queue, _, err := c.dryRun(task, opts)
	return queue, err
}

// dryRun returns the asynq queue of a task, and what asynq would enqueue. It sends nothing to Redis.
func (c *Client) dryRun(task *asynq.Task, opts []asynq.Option) (queue string, _ enqueued, _ error) {
	shards := c.shards
	if shards == nil {
		shards = &clientShards{dryRun: newDryRun()}
	}
	part, info, err := shards.shardOf(task, opts)
	if err != nil || part.Count == 0 {
		return part.Queue, info, err
	}
	return part.Name(), info, nil
}

// EnqueueResult is the result of EnqueueAll for one task, as Enqueue would return it.
type EnqueueResult struct {
	Info *asynq.TaskInfo
	Err  error
}

// maxEnqueued is the maximum number of tasks in one round trip.
const maxEnqueued = 64

// EnqueueAll enqueues the tasks in order, like EnqueueContext, with one round trip for each 64
// tasks. It returns one result for each task. If the context ends or the connection is lost, a task
// can be in its queue although its result is an error. If a function of the program panics or ends
// its goroutine, such as KeyOf of the queue's [Shards], that is the error of its task.
func (c *Client) EnqueueAll(ctx context.Context, tasks ...*asynq.Task) []EnqueueResult {
	results := make([]EnqueueResult, len(tasks))
	for first := 0; first < len(tasks); first += maxEnqueued {
		some := results[first:min(first+maxEnqueued, len(tasks))]
		c.enqueue(ctx, tasks[first:first+len(some)], some)
	}
	return results
}

// enqueue calls EnqueueContext in one goroutine for each task, and intercepts the script that asynq
// sends for the task. When all running goroutines wait, enqueue sends their scripts and the queues'
// markers in one pipeline. If the context ends first, enqueue leaves the goroutines that still run,
// because a function of the program may never return.
func (c *Client) enqueue(ctx context.Context, tasks []*asynq.Task, results []EnqueueResult) {
	scripts, left := make(chan *pendingScript), make(chan struct{}) // a nil script means that a goroutine has ended
	defer close(left)
	offer := func(s *pendingScript) {
		select {
		case scripts <- s:
		case <-left:
		}
	}
	intercept := func(index int) func(*pendingScript) bool {
		return func(s *pendingScript) bool {
			s.index, s.sent = index, make(chan struct{})
			offer(s)
			select {
			case <-s.sent:
				return true
			case <-left:
				return false
			}
		}
	}
	returned := make([]<-chan usercode.Result[*asynq.TaskInfo], len(tasks))
	for i, task := range tasks {
		returned[i] = usercode.Go(c.log, "the client", func() (*asynq.TaskInfo, error) {
			defer offer(nil)
			return c.EnqueueContext(context.WithValue(ctx, interceptKey{}, intercept(i)), task)
		})
	}
	c.sendInBatches(ctx, scripts, len(tasks))
	for i := range results {
		r, ok := usercode.Receive(ctx, returned[i])
		if results[i] = (EnqueueResult{r.Value, r.Err}); !ok {
			results[i].Err = ctx.Err()
		}
	}
}

// sendInBatches sends the scripts of several goroutines until all have ended, or until the context
// ends.
func (c *Client) sendInBatches(ctx context.Context, scripts <-chan *pendingScript, running int) {
	var waiting []*pendingScript
	for running > 0 {
		s, ok := usercode.Receive(ctx, scripts)
		switch {
		case !ok:
			return
		case s != nil:
			waiting = append(waiting, s)
		default:
			running--
		}
		if len(waiting) == 0 || len(waiting) < running {
			continue
		}
		slices.SortFunc(waiting, func(a, b *pendingScript) int { return cmp.Compare(a.index, b.index) })
		_, _ = c.rdb.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its error
			queues := map[string]bool{}
			for _, s := range waiting {
				s.send(p)
				queues[s.queue] = true
			}
			delete(queues, "")
			for queue := range queues {
				setMarker(ctx, p, markerKey(queue))
			}
			return nil
		})
		for _, s := range waiting {
			close(s.sent)
		}
		waiting = nil
	}
}

type (
	headersKey   struct{} // the context key of headers to add to asynq's task message
	interceptKey struct{} // the context key of a func(*pendingScript) bool, which returns true when the script was sent
)

// pendingScript is a script that waits to be sent.
type pendingScript struct {
	index int // index of the task in its batch of EnqueueAll
	send  func(redis.Cmdable)
	queue string // the queue to which the script may add a pending job, or empty
	sent  chan struct{}
}

// enqueueRedis is the Redis client of asynq's client. It adds headers to asynq's encoded message,
// because a copy of a task would lose the task's options. It also sets the queue's marker.
type enqueueRedis struct{ redis.UniversalClient }

// SAdd implements redis.SetCmdable. asynq registers a queue with it, so SAdd validates the name.
func (e enqueueRedis) SAdd(ctx context.Context, key string, members ...any) *redis.IntCmd {
	for _, queue := range members {
		if err := asynqdb.ValidateQueue(fmt.Sprint(queue)); err != nil {
			return redis.NewIntResult(0, err)
		}
	}
	return e.UniversalClient.SAdd(ctx, key, members...)
}

// EvalSha implements redis.Scripter. For a job of a batch it returns a NOSCRIPT error, so that asynq
// sends the text with Eval.
func (e enqueueRedis) EvalSha(ctx context.Context, sha1 string, keys []string, args ...any) *redis.Cmd {
	if _, ok := ctx.Value(memberKey{}).(batchMember); ok {
		return redis.NewCmdResult(nil, redis.ErrNoScript)
	}
	return e.run(ctx, keys, args, func(c redis.Cmdable, args []any) *redis.Cmd { return c.EvalSha(ctx, sha1, keys, args...) })
}

// Eval implements redis.Scripter.
func (e enqueueRedis) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	if m, ok := ctx.Value(memberKey{}).(batchMember); ok {
		script, args = asynqdb.AddToBatch(m.batch, m.state, script, keys, args)
	}
	return e.run(ctx, keys, args, func(c redis.Cmdable, args []any) *redis.Cmd { return c.Eval(ctx, script, keys, args...) })
}

// run runs a script of asynq with the headers. If the script may add a pending job, run sets the
// queue's marker in the same round trip. A script of EnqueueAll goes to Client.enqueue, which sends
// it in a pipeline.
func (e enqueueRedis) run(ctx context.Context, keys []string, args []any, call func(redis.Cmdable, []any) *redis.Cmd) (cmd *redis.Cmd) {
	headers, _ := ctx.Value(headersKey{}).(map[string]string)
	args = asynqdb.WithHeaders(args, headers)
	queue := ""
	if c := asynqdb.Recognize(keys, args); c.MayAddPending {
		queue = c.Queue
	}
	if intercept, ok := ctx.Value(interceptKey{}).(func(*pendingScript) bool); ok {
		if !intercept(&pendingScript{send: func(c redis.Cmdable) { cmd = call(c, args) }, queue: queue}) {
			return redis.NewCmdResult(nil, ctx.Err())
		}
		return cmd
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
