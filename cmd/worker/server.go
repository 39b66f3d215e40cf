package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/tasks"
	"github.com/headgate/headgate/throttle"
)

// worker runs jobs by a config that can change meanwhile.
type worker struct {
	globals   *cli.Globals
	config    atomic.Pointer[config.Config]
	store     *store
	log       *slog.Logger
	limiter   *throttle.Redis
	throttler *scheduler.Throttler
	cron      *scheduler.Cron
	server    *asynq.Server
	abort     context.CancelFunc // ends the context of all jobs
}

// startWorker starts to run jobs.
func startWorker(ctx context.Context, g *cli.Globals, c *config.Config, s *store, log *slog.Logger) (*worker, error) {
	w := &worker{globals: g, store: s, log: log}
	w.config.Store(c)
	outage := &outage{redis: s, next: log.Handler()}
	quiet := slog.New(outage)

	w.limiter = throttle.New(s, throttle.RedisOptions{Scope: c.Scope, App: c.App, Logger: quiet})
	if err := w.limiter.Define(ctx, c.Limits...); err != nil {
		return nil, err
	}
	var err error
	if w.cron, err = cron(s, c, quiet); err != nil {
		return nil, err
	}
	if err := w.takeSpool(ctx); err != nil {
		return nil, err
	}
	w.throttler = scheduler.New(s, w.limiter, cli.Rules(w.config.Load), scheduler.Options{Logger: quiet})
	jobs, abort := context.WithCancel(context.Background())
	w.abort = abort
	w.server = asynq.NewServerFromRedisClient(s, w.throttler.Config(asynq.Config{
		Concurrency: c.Concurrency, Queues: c.Queues, StrictPriority: c.StrictPriority,
		ShutdownTimeout: c.ShutdownTimeout,
		BaseContext:     func() context.Context { return jobs },
		ErrorHandler:    asynq.ErrorHandlerFunc(w.logFailure),
		Logger:          asynqLog{quiet},
		HealthCheckFunc: outage.check, HealthCheckInterval: time.Second,
	}))
	mux := asynq.NewServeMux()
	mux.Use(w.throttler.Middleware, w.blockOnRetryAfter)
	tasks.Register(mux)
	if err := w.server.Start(mux); err != nil {
		abort()
		return nil, errors.Join(err, w.throttler.Close())
	}
	return w, nil
}

// serve waits for ctx to end, and then for the running jobs: as long as
// shutdown_timeout, after which asynq puts them back into their queues.
func (w *worker) serve(ctx context.Context) error {
	w.log.Info("running jobs")
	var others sync.WaitGroup
	others.Go(func() { _ = w.cron.Run(ctx) }) // it always returns nil
	others.Go(func() { w.watch(ctx) })
	<-ctx.Done()
	w.log.Info("stopping: running jobs may finish", "within", w.config.Load().ShutdownTimeout)
	w.server.Shutdown()
	w.abort() // the jobs that went back must not run on
	others.Wait()
	err := w.throttler.Close()
	w.log.Info("stopped")
	if errors.Is(err, throttle.ErrUnavailable) {
		return nil // another process takes over all the same, a little later
	}
	return err
}

// logFailure says what becomes of a job that failed.
func (w *worker) logFailure(ctx context.Context, task *asynq.Task, err error) {
	id, _ := asynq.GetTaskID(ctx)
	queue, _ := asynq.GetQueueName(ctx)
	retried, _ := asynq.GetRetryCount(ctx)
	message := "job failed and will be retried"
	if errors.Is(err, asynq.SkipRetry) {
		message = "job archived"
	}
	w.log.Warn(message, "type", task.Type(), "id", id, "queue", queue, "failures", retried+1, "error", err)
}

// takeSpool enqueues the jobs that were added while no worker was running.
func (w *worker) takeSpool(ctx context.Context) error {
	if w.store.own == nil {
		return nil
	}
	lines, done, err := w.store.own.TakeSpool()
	if err != nil {
		return err
	}
	client := asynq.NewClientFromRedisClient(w.store)
	added := 0
	for _, line := range lines {
		job, err := cli.ParseJob(line)
		if err == nil {
			_, err = client.EnqueueContext(ctx, job.Fill(cli.JobOptions{}, w.config.Load()).Task())
		}
		if err != nil {
			w.log.Warn("a job that was enqueued while no worker was running is dropped", "job", string(line), "error", err)
			continue
		}
		added++
	}
	if len(lines) > 0 {
		w.log.Info("took the jobs that were enqueued while no worker was running", "jobs", added)
	}
	return done()
}

// blockOnRetryAfter blocks the limits of a job whose call was answered with a
// Retry-After. It blocks only the keys that the call counts under; the limits
// without a key are shared with calls to others, unless all are like that.
func (w *worker) blockOnRetryAfter(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		err := next.ProcessTask(ctx, task)
		status, ok := errors.AsType[*tasks.StatusError](err)
		if !ok || status.RetryAfter == 0 {
			return err
		}
		if failed := w.block(ctx, task, status.RetryAfter); failed != nil {
			w.log.Warn("could not block a limit as Retry-After asks", "error", failed)
		}
		return err
	})
}

func (w *worker) block(ctx context.Context, task *asynq.Task, wait time.Duration) error {
	rule, err := cli.Rules(w.config.Load)(ctx, task)
	if err != nil || len(rule.Needs) == 0 {
		return err
	}
	now, err := w.store.Time(ctx).Result() // the limiter goes by Redis's clock
	if err != nil {
		return err
	}
	for _, n := range mostSpecific(rule.Needs) {
		if err := w.limiter.Block(ctx, n.Limit, n.Key, now.Add(wait)); err != nil {
			return err
		}
		w.log.Info("blocked as Retry-After asks", "limit", n.Limit, "key", n.Key, "for", wait)
	}
	return nil
}

// mostSpecific is the needs with a key, or all where none has one.
func mostSpecific(needs []throttle.Need) []throttle.Need {
	var keyed []throttle.Need
	for _, n := range needs {
		if n.Key != "" {
			keyed = append(keyed, n)
		}
	}
	if len(keyed) > 0 {
		return keyed
	}
	return needs
}
