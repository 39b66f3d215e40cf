package scheduler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// A handler, or a goroutine that the handler has started, calls the functions of this file with the
// handler's context. Reports also reach the limiter after that context has ended, for example because
// the server stops: they have reportTimeout from then on.

type (
	attemptKey struct{} // the context key of a running attempt
	jobKey     struct{} // the context key of the job for which RuleFor is called
	queueKey   struct{} // the context key of that job's queue, without the shard
)

// attemptOf returns the attempt whose handler has this context.
func attemptOf(ctx context.Context) (a *attempt, ok bool) {
	a, ok = ctx.Value(attemptKey{}).(*attempt)
	return a, ok
}

// GetJob returns the queue and the ID of the current job, from the context of RuleFor or of a
// handler. asynq's GetQueueName and GetTaskID do not work in RuleFor. For any other context ok is
// false.
func GetJob(ctx context.Context) (queue, id string, ok bool) {
	if j, ok := ctx.Value(jobKey{}).(job); ok {
		return j.Queue, j.ID, true
	}
	queue, ok = asynq.GetQueueName(ctx)
	id, _ = asynq.GetTaskID(ctx)
	return queue, id, ok
}

// GetQueue returns the queue of the current job, as GetJob does. But if the job is in a shard, such
// as crawl.7, GetQueue returns crawl, the queue that is divided into shards.
func GetQueue(ctx context.Context) string {
	if queue, ok := ctx.Value(queueKey{}).(string); ok {
		return queue
	}
	queue, _, _ := GetJob(ctx)
	if a, ok := attemptOf(ctx); ok {
		return a.scope.shards.QueueOf(queue)
	}
	return queue
}

// GetLimiter returns the limiter of the running job's permits. For a job in a shard it is the
// shard's limiter. Outside of handlers of a Server ok is false.
func GetLimiter(ctx context.Context) (l *throttle.Limiter, ok bool) {
	if a, ok := attemptOf(ctx); ok {
		return a.scope.limiter.Limiter, true
	}
	return nil, false
}

// GetRule returns the rule of the running job. Outside of handlers of a Server ok is false.
func GetRule(ctx context.Context) (rule Rule, ok bool) {
	if a, ok := attemptOf(ctx); ok {
		return a.rule, true
	}
	return Rule{}, false
}

// GetDecision returns the limiter's decision to run the job, with how often the job was denied
// before and how long it waited. The decision is zero for a job without needs. Outside of handlers
// of a Server ok is false.
func GetDecision(ctx context.Context) (d throttle.Decision, ok bool) {
	if a, ok := attemptOf(ctx); ok {
		return a.decision.Decision, true
	}
	return d, false
}

// ReportLatency reports the latency of the running job's call, for limits that adapt to latency.
// The last report counts. Without a report, the run time of the handler counts. ReportLatency does
// nothing outside of handlers of a Server.
func ReportLatency(ctx context.Context, d time.Duration) {
	if a, ok := attemptOf(ctx); ok {
		a.reports.Lock()
		defer a.reports.Unlock()
		a.latency = d
	}
}

// ReportRateLimit blocks the keys of the running job's rule until the given time, as RateLimited
// does, but the job continues. It is for a successful response whose headers say that the quota is
// used up. It does nothing outside of handlers of a Server, for a job without permits, and for a
// time that has passed. It takes a round trip. If the call fails, the Server logs the error, and
// the keys may stay open.
func ReportRateLimit(ctx context.Context, until time.Time) {
	if a, ok := attemptOf(ctx); ok && time.Until(until) > 0 && len(a.decision.Taken) > 0 {
		d, needs := time.Until(until), a.rule.blockedNeeds()
		go a.scope.blockOtherShards(d, needs)
		ctx, cancel := reportContext(ctx)
		defer cancel()
		a.logFailedReport(a.scope.limiter.Internals().BlockFor(ctx, d, needs...))
	}
}

// ReportOverload slows down adaptive limits because the upstream was too busy for the running job's
// call and named no time, as with 503 Service Unavailable. It applies to the keys that RateLimited
// would block, but it does not block them. It does nothing outside of handlers of a Server and for
// a job without permits. It takes a round trip. If the call fails, the Server logs the error.
func ReportOverload(ctx context.Context) {
	if a, ok := attemptOf(ctx); ok && len(a.decision.Taken) > 0 {
		ctx, cancel := reportContext(ctx)
		defer cancel()
		a.logFailedReport(a.scope.limiter.Accepted(ctx, a.decision.At, waitdb.Overload, a.rule.blockedNeeds()...))
	}
}

// reportContext returns a context for a report to the limiter. It outlives ctx.
func reportContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), reportTimeout)
}

func (a *attempt) logFailedReport(err error) {
	if err != nil {
		a.scope.log.Warn("could not tell the limiter what the upstream said", "job", a.ID, "error", err)
	}
}

// Settle replaces the running job's estimated cost at a limit with the actual cost, for example the
// number of tokens. If the job needs several keys of the limit, each gets that cost: see
// [throttle.Limiter.Settle]. The last call counts. Settle does nothing if the job has no permits of
// the limit. It takes one round trip for each key. It returns the limiter's error, or an error if
// ctx is not the context of a Server's handler.
//
// A handler that is canceled, for example in a shutdown, can still settle what its call has cost. Its
// next attempt takes the estimate again, so what the canceled attempt does not settle is paid twice. After
// Shutdown has canceled a handler, it waits up to a second for the handler to return.
func Settle(ctx context.Context, limit string, cost int) error {
	a, ok := attemptOf(ctx)
	if !ok {
		return errors.New("settle: want the context of a handler of a scheduler.Server")
	}
	ctx, cancel := reportContext(ctx)
	defer cancel()
	a.reports.Lock()
	defer a.reports.Unlock()
	for _, t := range a.decision.Taken {
		if t.Limit != limit {
			continue
		}
		if err := a.scope.limiter.Settle(ctx, a.decision.Decision, limit, t.Key, cost); err != nil {
			return err
		}
		a.scope.stats.CountReturned(t, t.Cost-cost)
	}
	return nil
}

// IdempotencyKey returns a text that identifies the running job to others: for the IDs of jobs that
// this job enqueues, and for APIs that accept an idempotency key. It is the same in all attempts of
// the job, even if a worker died before asynq stored the result. No other job has it, not even a
// later job with the same ID.
//
// The key is a random UUID, stored with the job in asynq's Redis. The call takes a round trip. It
// returns Redis's error, or an error if the job is gone or ctx is not a handler's context.
func IdempotencyKey(ctx context.Context) (string, error) {
	a, ok := attemptOf(ctx)
	if !ok {
		return "", errors.New("idempotency key: want the context of a handler of a scheduler.Server")
	}
	key, err := a.scope.db.IdempotencyKey(ctx, a.Queue, a.ID, uuid.NewString())
	if err != nil {
		return "", fmt.Errorf("idempotency key of job %s: %w", a.ID, err)
	}
	return key, nil
}
