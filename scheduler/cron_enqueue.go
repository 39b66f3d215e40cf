package scheduler

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/hibiken/asynq"
)

const (
	// freshFor is how old a state may be when a job is enqueued because of it.
	freshFor = 5 * time.Second
	// retainFor is how long a finished job keeps its id at least. It has to be
	// far longer than freshFor.
	retainFor = 5 * time.Minute
)

// carryOut enqueues the tick that the state intends, and moves the state past
// it. It leaves the intent if the enqueuer fails, to be tried again.
func (c *Cron) carryOut(ctx context.Context, it *cronItem, v *cronView) (bool, error) {
	tick := v.intent
	payload, payloadErr := it.payload(tick)
	if time.Since(v.seen) > freshFor { // the payload took its time
		err := c.refresh(ctx, it.entry.Name, v)
		if err != nil || !v.intent.Equal(tick) {
			return true, err
		}
	}
	to := v.cronState
	to.last, to.tick = tick, tick
	to.intent, to.intentAt = time.Time{}, time.Time{}
	if payloadErr != nil {
		return c.fail(ctx, it, v, to, fmt.Errorf("payload: %w", payloadErr))
	}
	id := it.entry.Name + "@" + unixText(tick)
	queue, err := c.enqueue(ctx, it.entry, id, payload, it.delay(tick))
	if err != nil {
		if it.hopeless(v) {
			return c.fail(ctx, it, v, to, err)
		}
		return false, fmt.Errorf("schedule %s: enqueueing %s: %w", it.entry.Name, id, err)
	}
	to.outcome, to.job, to.jobQueue = "enqueued", id, queue
	to.enqueued++
	return c.moveView(ctx, it, v, to)
}

// hopeless is whether to give up a tick that the enqueuer refuses: once it
// would count as missed and the next is due, unless missed ticks all run.
func (it *cronItem) hopeless(v *cronView) bool {
	late := v.now.Sub(v.intent) > missedAfter
	return late && it.entry.Missed != MissedAll && !it.rule.next(v.intent).After(v.now)
}

// fail moves the state past a tick that has no job.
func (c *Cron) fail(ctx context.Context, it *cronItem, v *cronView, to cronState, err error) (bool, error) {
	to.outcome = "failed: " + err.Error()
	to.failed++
	moved, moveErr := c.moveView(ctx, it, v, to)
	if moved {
		c.log.Error("schedule has no job for a tick", "entry", it.entry.Name,
			"tick", to.tick.In(it.rule.zone), "err", err)
	}
	return moved, moveErr
}

func (it *cronItem) payload(tick time.Time) ([]byte, error) {
	if it.entry.Payload == nil {
		return nil, nil
	}
	return it.entry.Payload(tick.In(it.rule.zone))
}

// delay is the tick's share of the entry's jitter: random looking, but the
// same for every replica.
func (it *cronItem) delay(tick time.Time) time.Duration {
	steps := uint64(it.entry.Jitter/time.Second) + 1
	hash := fnv.New64a()
	fmt.Fprint(hash, it.entry.Name, "@", tick.Unix())
	return time.Duration(hash.Sum64()%steps) * time.Second
}

// enqueue adds a job under an id and gives its queue. A job that is there
// already is as good as a new one.
func (c *Cron) enqueue(ctx context.Context, e Entry, id string, payload []byte, delay time.Duration) (string, error) {
	queue := e.Queue
	if queue == "" {
		queue = "default"
	}
	retain := retainFor
	var opts []asynq.Option
	for _, option := range e.Options {
		if option.Type() == asynq.RetentionOpt {
			retain = max(retain, option.Value().(time.Duration))
			continue
		}
		opts = append(opts, option)
	}
	opts = append(opts, asynq.TaskID(id), asynq.Queue(queue), asynq.Retention(retain))
	if delay > 0 {
		opts = append(opts, asynq.ProcessIn(delay))
	}
	_, err := c.enqueuer.EnqueueContext(ctx, asynq.NewTask(e.Type, payload), opts...)
	if errors.Is(err, asynq.ErrTaskIDConflict) {
		return queue, nil
	}
	return queue, err
}

// unfinished is whether a job still waits or runs.
func (c *Cron) unfinished(id, queue string) (bool, error) {
	if id == "" {
		return false, nil
	}
	info, err := c.inspector.GetTaskInfo(queue, id)
	if errors.Is(err, asynq.ErrTaskNotFound) || errors.Is(err, asynq.ErrQueueNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking for job %s in queue %s: %w", id, queue, err)
	}
	return info.State != asynq.TaskStateCompleted && info.State != asynq.TaskStateArchived, nil
}
