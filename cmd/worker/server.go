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
	"github.com/headgate/headgate/scheduler/cron"
	"github.com/headgate/headgate/tasks"
	"github.com/headgate/headgate/throttle"
)

// worker runs jobs by a config that can change meanwhile.
type worker struct {
	globals   *cli.Globals
	text      []byte // of the config file, when it was last read
	config    atomic.Pointer[config.Config]
	store     *store
	log       *slog.Logger
	limiter   *throttle.Redis
	throttler *scheduler.Throttler
	cron      *cron.Runner
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
	if w.cron, err = newRunner(s, c, quiet); err != nil {
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
