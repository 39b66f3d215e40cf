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
	"github.com/headgate/headgate/tasks/frontier"
	"github.com/headgate/headgate/throttle"
)

// worker runs jobs by a config that can change meanwhile.
type worker struct {
	globals *cli.Globals
	text    []byte // of the config file, when it was last read
	config  atomic.Pointer[config.Config]
	store   *store
	log     *slog.Logger
	limiter *throttle.Lanes
	cron    *cron.Runner
	server  *scheduler.Server
	status  *status
	// delayDropped is when a Crawl-delay is first heard of that no limit can keep.
	delayDropped sync.Once
	handlers
}

// startWorker starts to run jobs.
func startWorker(g *cli.Globals, c *config.Config, s *store, log *slog.Logger, logJobs bool) (*worker, error) {
	w := &worker{globals: g, store: s, log: log, status: newStatus()}
	w.config.Store(c)
	outage := &outage{next: log.Handler()}
	quiet := slog.New(outage)

	w.limiter = throttle.NewLanes(throttle.New(s, throttle.RedisOptions{Scope: c.Scope, App: c.App, Logger: quiet}))
	var err error
	if w.cron, err = newRunner(s, c, quiet); err != nil {
		return nil, err
	}
	rules := scheduler.Rules{Limits: c.Limits, For: config.RuleIn(w.config.Load)}
	w.server, err = scheduler.NewServer(s, rules, asynq.Config{
		Concurrency: c.Concurrency, Queues: c.Queues, StrictPriority: c.StrictPriority,
		ShutdownTimeout: c.ShutdownTimeout,
		RetryDelayFunc:  func(n int, err error, _ *asynq.Task) time.Duration { return scheduler.RetryPolicy{}.Delay(n, err) },
		ErrorHandler:    asynq.ErrorHandlerFunc(w.logFailure),
		Logger:          asynqLog{quiet},
		HealthCheckFunc: outage.check, HealthCheckInterval: time.Second,
	}, scheduler.WithLimiter(w.limiter), scheduler.WithLogger(quiet))
	if err != nil {
		return nil, err
	}
	outage.ready = w.server.Ready
	if w.handlers, err = newHandlers(c); err != nil {
		return nil, err
	}
	if err := w.handlers.tidy(); err != nil {
		log.Warn("what a killed worker has left could not be finished", "error", err)
	}
	w.crawls.Frontier, w.crawls.Client = frontier.New(s, c.Scope), scheduler.NewClient(s)
	w.crawls.Delay = w.keepDelay
	w.checkDelays(c)
	mux := asynq.NewServeMux()
	w.calls.Observe = w.observe
	if logJobs {
		mux.Use(w.logJob)
	}
	mux.Use(w.obeyUpstream, w.settle, w.goOn)
	mux.Handle(tasks.TypeHTTPRequest, w.calls)
	mux.Handle(tasks.TypeCrawlFetch, w.crawls)
	mux.Handle(tasks.PrefixExec, w.commands)
	return w, w.server.Start(mux)
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
	if err := w.handlers.close(); err != nil {
		w.log.Error("could not finish an archive", "error", err)
	}
	others.Wait()
	w.log.Info("stopped")
	return nil
}

// logFailure says what becomes of a job that failed.
func (w *worker) logFailure(ctx context.Context, task *asynq.Task, err error) {
	id, _ := asynq.GetTaskID(ctx)
	queue, _ := asynq.GetQueueName(ctx)
	retried, _ := asynq.GetRetryCount(ctx)
	maxRetry, _ := asynq.GetMaxRetry(ctx)
	message := "job failed and will be retried"
	switch {
	case errors.Is(err, asynq.RevokeTask):
		message = "job dropped"
	case retried >= maxRetry || errors.Is(err, asynq.SkipRetry):
		message = "job archived"
	}
	w.log.Warn(message, "type", task.Type(), "id", id, "queue", queue, "failures", retried+1, "error", err)
	if lost := w.crawls.Failed(ctx, task, err); lost != nil {
		w.log.Warn("a crawl does not know that a page failed", "id", id, "error", lost)
	}
}
