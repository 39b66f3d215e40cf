package scheduler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/throttle"
)

// Headers of the jobs that NewTask makes.
const (
	headerMaxRetry = "headgate-max-retry"
	headerPriority = "headgate-priority"
)

// NewTask returns a task that may fail maxRetry times before it is archived.
// asynq archives a job that is put back on its last attempt, even though that
// is no failure; so the task carries one spare retry, which only denials and
// crashes of a worker may use, and its own maximum in a header. Middleware
// holds it to that.
func NewTask(typename string, payload []byte, maxRetry int, opts ...asynq.Option) *asynq.Task {
	headers := map[string]string{headerMaxRetry: strconv.Itoa(maxRetry)}
	return asynq.NewTaskWithHeaders(typename, payload, headers, append(opts, asynq.MaxRetry(maxRetry+1))...)
}

// NewPriorityTask is NewTask for a job that goes before or after others that
// wait in its lane, whatever its rule says.
func NewPriorityTask(p throttle.Priority, typename string, payload []byte, maxRetry int, opts ...asynq.Option) *asynq.Task {
	headers := map[string]string{headerMaxRetry: strconv.Itoa(maxRetry), headerPriority: strconv.Itoa(int(p))}
	return asynq.NewTaskWithHeaders(typename, payload, headers, append(opts, asynq.MaxRetry(maxRetry+1))...)
}

// attempt is what asynq tells a handler about the job it runs.
type attempt struct {
	id, queue string
	headers   map[string]string
	retried   int  // failures so far
	maxRetry  int  // failures the program allows
	spare     bool // whether asynq allows one more, which is not for failures
}

func attemptFrom(ctx context.Context, task *asynq.Task) attempt {
	a := attempt{headers: task.Headers()}
	a.id, _ = asynq.GetTaskID(ctx)
	a.queue, _ = asynq.GetQueueName(ctx)
	a.retried, _ = asynq.GetRetryCount(ctx)
	a.maxRetry, _ = asynq.GetMaxRetry(ctx)
	if n, err := strconv.Atoi(a.headers[headerMaxRetry]); err == nil && n < a.maxRetry {
		a.maxRetry, a.spare = n, true
	}
	return a
}

// lastForAsynq is whether asynq would archive the job if it were put back.
func (a attempt) lastForAsynq() bool { return !a.spare && a.retried >= a.maxRetry }

// exhausted is whether the job has failed once more than it may: its last
// failure was one that Middleware could not see, such as a timeout.
func (a attempt) exhausted() bool { return a.retried > a.maxRetry }

func (a attempt) priority(rule Rule) throttle.Priority {
	if p, err := strconv.Atoi(a.headers[headerPriority]); err == nil {
		return throttle.Priority(p)
	}
	return rule.Priority
}

// judge turns a handler's error into what asynq should make of it.
func (a attempt) judge(err error, policy RetryPolicy) error {
	if err == nil || errors.Is(err, asynq.SkipRetry) || errors.Is(err, asynq.RevokeTask) {
		return err
	}
	if a.retried >= min(a.maxRetry, policy.maxRetry(a.maxRetry, err)) {
		return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
	}
	return &failedError{err, policy.Delay(a.retried, err)}
}

// spared returns the headers of the job's twin, which is on its last attempt.
func (a attempt) spared() map[string]string {
	headers := maps.Clone(a.headers)
	if headers == nil {
		headers = map[string]string{}
	}
	headers[headerMaxRetry] = "0"
	return headers
}
