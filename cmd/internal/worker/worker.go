// Package worker runs the jobs of a config.
package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/cmd/internal/reaper"
	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/internal/redishealth"
	"github.com/headgate/headgate/internal/script"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/scheduler/cron"
	"github.com/headgate/headgate/tasks"
	"github.com/headgate/headgate/throttle"
)

// Options are settings of a worker besides its config.
type Options struct {
	// File is the config file. If it is empty, the config never changes.
	File string
	// Text is the content of File.
	Text []byte
	// Load reads the config from File after a change, and on SIGHUP. Required if there is a File.
	Load func() (*config.Config, error)
	// Log is the worker's log. Nil means none.
	Log *slog.Logger
	// LogJobs logs a line for each finished attempt.
	LogJobs bool
	// Notes gets lines about the embedded Redis. Nil means nowhere.
	Notes io.Writer
	// Redis is used instead of the config's Redis. Run does not close it. Nil means the config's.
	Redis redis.UniversalClient
	// Transport makes the calls of http:request and crawl:fetch. Nil means the config's http.
	Transport http.RoundTripper
}

// Worker runs jobs by a config that can be reloaded.
type Worker struct {
	options        Options
	config         atomic.Pointer[config.Config]
	startConfig    *config.Config
	redis          redis.UniversalClient
	log            *slog.Logger
	waitDB         *waitdb.DB
	cron           *cron.Runner
	server         *scheduler.Server
	fileNotApplied atomic.Bool  // whether the last reload of the config failed
	evictionText   atomic.Value // string: the last evictionWarning
	restartChecked bool         // whether restartWarning had an answer
	outages        *redishealth.OutageFilter
	filteredLog    *slog.Logger // writes to log through outages
	hangup         chan os.Signal
	warnKeptOnce   sync.Once // for keptRule
	stopping       atomic.Bool
	refusals       refusals
	checkInterval  time.Duration // time between two checks that Redis can be used
	handlers
}

// New returns a worker. If a file that the config names cannot be used, the error names the file.
func New(c *config.Config, o Options) (*Worker, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Notes == nil {
		o.Notes = io.Discard
	}
	w := &Worker{options: o, startConfig: c, log: o.Log, hangup: make(chan os.Signal, 1), checkInterval: checkInterval}
	w.config.Store(c)
	var err error
	w.handlers, err = newHandlers(c)
	w.batches = &batchHandler{w}
	if o.Transport != nil {
		w.calls.Transport = o.Transport
	}
	return w, err
}

// Run runs jobs until ctx ends. Then running jobs have the config's shutdown_timeout to finish.
func (w *Worker) Run(ctx context.Context) error {
	signal.Notify(w.hangup, syscall.SIGHUP) // now, because SIGHUP would kill the process while it waits for Redis
	defer signal.Stop(w.hangup)
	c := w.config.Load()
	end, err := w.open(ctx, c.Redis)
	if err != nil {
		return err
	}
	defer end()
	l, err := Listen(ctx, c.Listen)
	if err != nil {
		return err
	}
	if l != nil {
		defer l.Close()
	}
	if err := w.prepare(); err != nil {
		return err
	}
	if l != nil {
		end, err := w.serveHTTP(l, c.Page)
		if err != nil {
			return err
		}
		defer end()
	}
	begun := make(chan error, 1)
	go func() { begun <- w.begin(ctx) }()
	select {
	case err := <-begun:
		if err != nil {
			return err
		}
		w.serve(ctx)
	case <-ctx.Done(): // a call to Redis may hang
		w.stop(new(sync.WaitGroup))
	}
	return nil
}

// begin waits for Redis, and starts the server unless ctx ends.
func (w *Worker) begin(ctx context.Context) error {
	if err := w.await(ctx); err != nil {
		return err
	}
	w.checkSettings(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	err := w.start()
	if err == nil && ctx.Err() != nil {
		w.server.Shutdown() // stop may have come too early for it
	}
	return err
}

// open sets w.redis to a client of the Redis in the options or in the config. end closes the client,
// and stops the embedded Redis if this worker runs it.
func (w *Worker) open(ctx context.Context, r config.Redis) (end func(), err error) {
	if w.redis = w.options.Redis; w.redis != nil {
		return func() {}, nil
	}
	if !r.IsZero() {
		w.redis, err = r.Client()
		return func() { config.CloseClient(w.redis) }, err
	}
	note := func(line string) { fmt.Fprintln(w.options.Notes, cli.Worker+": "+line) }
	rdb, stop, err := r.ConnectOrCreate(ctx, note)
	if err != nil {
		return nil, err
	}
	w.redis = rdb
	return func() {
		if err := stop(); err != nil {
			note(err.Error())
		}
	}, nil
}

// prepare creates the server and the other clients of Redis. It sends no command to Redis.
func (w *Worker) prepare() error {
	c, s := w.config.Load(), w.redis
	w.outages = &redishealth.OutageFilter{Handler: w.log.Handler()}
	w.filteredLog = slog.New(w.outages)
	w.waitDB = waitdb.New(throttle.New(s, throttle.Options{Scope: c.Scope, App: c.App, Logger: w.filteredLog}))
	var err error
	if w.cron, err = Schedules(s, c, w.filteredLog); err != nil {
		return err
	}
	rules := scheduler.Rules{Limits: c.Limits, RuleFor: w.rule}
	w.server, err = scheduler.NewServer(s, rules, asynq.Config{
		Concurrency: c.Concurrency, Queues: c.Queues.Weights(), StrictPriority: c.StrictPriority,
		ShutdownTimeout: c.ShutdownTimeout,
		RetryDelayFunc:  func(n int, _ error, _ *asynq.Task) time.Duration { return scheduler.Backoff{}.Delay(n) },
		ErrorHandler:    asynq.ErrorHandlerFunc(w.logFailure),
		Logger:          asynqLog{w.filteredLog},
	}, scheduler.WithLimiter(w.waitDB.Limiter), scheduler.WithLogger(w.filteredLog), scheduler.WithShards(c.Shards()...), scheduler.WithArchiveRetention(c.ArchiveRetention), scheduler.WithUnknownFor(c.UnknownFor))
	if err != nil {
		return err
	}
	w.outages.Monitors = redishealth.MonitorsOf(w.server)
	if w.options.Redis == nil {
		s.AddHook(w.outages.Monitors[0].Hook()) // for the parts that have no Monitor, such as the schedules
	}
	w.publishChecksum()
	return nil
}

// checkInterval is the time between two checks that Redis can be used.
const checkInterval = 10 * time.Second

// awaitInterval is the pause between attempts to reach Redis at the start.
const awaitInterval = time.Second

// await waits until the configured Redis answers. It returns an error at once if the error cannot go
// away, such as a wrong password.
func (w *Worker) await(ctx context.Context) error {
	c := w.config.Load()
	if w.options.Redis != nil || c.Redis.IsZero() {
		return nil
	}
	for {
		call := w.outages.Monitors[0].Begin()
		err := c.Redis.Reach(ctx)
		call.Note(ctx, err)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil || !config.MayGoAway(err) {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(awaitInterval):
		}
	}
}

func (w *Worker) start() error {
	c, s := w.config.Load(), w.redis
	w.crawls.Redis, w.crawls.Scope, w.crawls.Client, w.crawls.Options = s, c.Scope, c.NewClient(s), w.crawlOptions
	feedback := &tasks.Feedback{
		Costs: w.costs, Judge: w.judge, Results: asynq.NewInspectorFromRedisClient(s), Log: w.log,
	}
	var handler asynq.Handler = asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		if h := w.handlerOf(task.Type()); h != nil {
			return h.ProcessTask(ctx, task)
		}
		return asynq.NotFound(ctx, task)
	})
	handler = feedback.Middleware(w.enqueueNext(handler))
	if w.options.LogJobs {
		handler = w.logJob(handler)
	}
	return w.server.Start(handler)
}

// serve runs until ctx ends, and then stops.
func (w *Worker) serve(ctx context.Context) {
	w.log.Info("running jobs")
	var others sync.WaitGroup
	others.Go(func() { _ = w.cron.Run(ctx) }) // the error is always nil
	others.Go(func() { w.watchRedis(ctx) })
	others.Go(func() { reaper.Run(ctx) })
	others.Go(func() { w.removeUnfinished(ctx) })
	if w.options.File != "" {
		others.Go(func() { w.watch(ctx) })
	}
	<-ctx.Done()
	w.stop(&others)
}

// endTime is how long the parts of a stopping worker have to end after the shutdown_timeout. It is
// longer than a Shutdown of the server takes then.
const endTime = 1100 * time.Millisecond

// stop gives running jobs shutdown_timeout to finish. After this time, asynq puts unfinished jobs back
// into their queues. Then stop waits for the end of killed commands, and for the other parts, which
// may stand in a call to Redis.
func (w *Worker) stop(others *sync.WaitGroup) {
	timeout := w.startConfig.ShutdownTimeout
	w.stopping.Store(true)
	w.log.Info("stopping: waiting for running jobs", "within", timeout)
	ended := make(chan struct{})
	go func() {
		w.server.Shutdown()
		w.commands.Wait()
		others.Wait()
		close(ended)
	}()
	if redishealth.Await(ended, timeout+endTime) {
		w.log.Info("stopped")
	} else {
		w.log.Warn("stopped, although the command of a job or a call to Redis has not ended")
	}
}

// watchRedis checks Redis, so that problems are logged even if no job runs.
func (w *Worker) watchRedis(ctx context.Context) {
	tick := time.NewTicker(w.checkInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if w.server.Ready(ctx) == nil { // logs the begin and the end of a problem
				w.checkSettings(ctx)
			}
		}
	}
}

// checkSettings warns once of a Redis that would lose data at a restart, and logs when Redis starts
// to evict keys and when it stops. An operator or a failover can change the policy at any time. If
// Redis does not answer, nothing is known, and the next checkSettings asks again.
func (w *Worker) checkSettings(ctx context.Context) {
	ctx = redishealth.WithoutHook(ctx) // the user may lack the right
	if !w.restartChecked {
		text, err := restartWarning(ctx, w.redis, script.Prefix(w.config.Load().Scope))
		if text != "" {
			w.log.Warn(text)
		}
		w.restartChecked = err == nil
	}
	text, err := evictionWarning(ctx, w.redis)
	if err != nil {
		return
	}
	switch before := w.evictionText.Swap(text); {
	case text != "" && text != before:
		w.log.Warn(text)
	case text == "" && before != nil && before != "":
		w.log.Info("Redis no longer evicts jobs and limits when its memory is full")
	}
}

// logFailure logs what becomes of a failed job.
func (w *Worker) logFailure(ctx context.Context, task *asynq.Task, err error) {
	queue, id, _ := scheduler.GetJob(ctx)
	retried, _ := asynq.GetRetryCount(ctx)
	maxRetry, _ := asynq.GetMaxRetry(ctx)
	message := "job failed and will be retried"
	switch {
	case errors.Is(err, asynq.RevokeTask):
		message = "job dropped"
	case retried >= maxRetry || errors.Is(err, asynq.SkipRetry):
		message = "job archived"
	}
	text := asynqdb.PlainError(err.Error())
	if !errors.As(err, new(refusedError)) || w.refusals.isFirst(w.log, task.Type(), text) {
		w.log.Warn(message, "type", task.Type(), "id", id, "queue", queue, "failures", retried+1, "error", text)
	}
	if lost := w.crawls.Failed(ctx, task, err); lost != nil {
		w.log.Warn("could not tell the crawl that a page failed", "id", id, "error", lost)
	}
}

// refusedError says why a handler refuses a job. The job takes no permits.
type refusedError struct{ error }

func (e refusedError) Unwrap() error { return e.error }

// refusals counts the jobs that are refused for the same cause within a minute. The log has a line
// about the first of these jobs, and a line with the number of the others.
type refusals struct {
	mu     sync.Mutex
	others map[string]int // number of the other jobs, by cause
}

// refusalWindow is the time over which refusals for the same cause are counted.
const refusalWindow = time.Minute

// variableWords matches the words of an error that differ between jobs, such as a URL.
var variableWords = regexp.MustCompile(`\S*[0-9/]\S*`)

// isFirst counts a refused job, and reports whether the job is the first with its cause. It knows
// 100 causes, and reports true for each job with a further cause.
func (r *refusals) isFirst(log *slog.Logger, typename, text string) bool {
	cause := typename + " " + variableWords.ReplaceAllString(text, "…")
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.others[cause]; known {
		r.others[cause]++
		return false
	}
	if r.others == nil {
		r.others = map[string]int{}
	}
	if len(r.others) < 100 {
		r.others[cause] = 0
		time.AfterFunc(refusalWindow, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			if n := r.others[cause]; n > 0 {
				log.Warn("more jobs archived for the same cause", "type", typename, "jobs", n, "within", refusalWindow, "error", text)
			}
			delete(r.others, cause)
		})
	}
	return true
}

// rule returns the rule of a job. If this worker has no handler for the job, or the handler would
// reject the job, rule returns an error, so that the job takes no permits.
func (w *Worker) rule(ctx context.Context, task *asynq.Task) (scheduler.Rule, error) {
	h := w.handlerOf(task.Type())
	if h == nil {
		return scheduler.Rule{}, asynq.NotFound(ctx, task)
	}
	if err := h.Check(task); err != nil {
		return scheduler.Rule{}, refusedError{err}
	}
	if !w.config.Load().HasRules(task.Type()) {
		return w.keptRule(ctx, task)
	}
	return config.RuleIn(w.config.Load)(ctx, task)
}

// keptRule returns the rule of a job if the config has no rules, perhaps because its file is missing.
// A waiting job keeps the limits for which it waits.
func (w *Worker) keptRule(ctx context.Context, task *asynq.Task) (rule scheduler.Rule, err error) {
	queue, id, _ := scheduler.GetJob(ctx)
	limiter := w.waitDB
	if part := w.config.Load().Sharded.ShardNamed(queue); part.Count > 0 {
		limiter = waitdb.New(throttle.New(w.redis, throttle.Options{Scope: part.Name()}))
	}
	waits, found, err := limiter.Record(ctx, throttle.JobID{Queue: queue, ID: id})
	if err != nil {
		return rule, fmt.Errorf("%w: %w", throttle.ErrUnavailable, err)
	}
	if !found {
		return rule, nil
	}
	w.warnKeptOnce.Do(func() {
		w.log.Warn("the config has no rules: waiting jobs keep the limits that they wait for", "type", task.Type(), "id", id)
	})
	costs := strings.Split(waits.Costs, ",")
	for i, meter := range fairqueue.Meters(waits.Lane) {
		limit, key, _ := strings.Cut(meter, "|")
		cost := 1
		if i < len(costs) {
			cost, _ = strconv.Atoi(costs[i])
		}
		rule.Needs = append(rule.Needs, throttle.Need{Limit: limit, Key: key, Cost: max(1, cost)})
	}
	fair, weight := fairqueue.FairnessKey(waits.Lane)
	rule.FairnessKey, rule.FairnessWeight = fair, int(weight)
	return rule, nil
}

type handlers struct {
	calls    *tasks.HTTPHandler
	crawls   *tasks.CrawlHandler
	commands *tasks.ExecHandler
	batches  *batchHandler
}

// newHandlers returns the handlers of a config, or the error of New.
func newHandlers(c *config.Config) (h handlers, err error) {
	if h.calls, err = c.HTTP.Handler(); err != nil {
		return h, err
	}
	h.calls.SecretHeaders = c.Page.Redact
	crawls := c.Crawl
	crawls.HTTP = h.calls
	h.crawls, h.commands = &crawls, c.Commands.Handler()
	return h, nil
}

// handlerOf returns the handler of a task type, or nil. Check returns an error for a task that the
// handler would reject.
func (h handlers) handlerOf(taskType string) interface {
	asynq.Handler
	Check(task *asynq.Task) error
} {
	switch {
	case taskType == tasks.TypeHTTPRequest:
		return h.calls
	case taskType == tasks.TypeCrawlFetch:
		return h.crawls
	case strings.HasPrefix(taskType, tasks.PrefixExec):
		return h.commands
	case taskType == config.TypeBatchDone:
		return h.batches
	}
	return nil
}

// Schedules returns a runner of the config's schedules.
func Schedules(rdb redis.UniversalClient, c *config.Config, log *slog.Logger) (*cron.Runner, error) {
	runner := cron.New(rdb, c.NewClient(rdb), cron.Options{Scope: c.Scope, Log: log})
	return runner, runner.Set(c.Schedules.Entries())
}

// crawlOptions returns the timeout and the retention of the pages of a crawl in the current config.
func (w *Worker) crawlOptions() (opts []asynq.Option) {
	t := w.config.Load().Tasks[tasks.TypeCrawlFetch]
	if t.Retention > 0 {
		opts = append(opts, asynq.Retention(t.Retention))
	}
	if t.Timeout > 0 {
		opts = append(opts, asynq.Timeout(t.Timeout))
	}
	return opts
}

// asynqLog writes the lines of asynq to log. Its lines of level info become debug lines.
type asynqLog struct{ log *slog.Logger }

var asynqContext = redishealth.MayBeLate(context.Background()) // a line of asynq can come after the end of its outage

// Warn leaves out lines about a job that logFailure also logs.
func (l asynqLog) Warn(args ...any) {
	text := fmt.Sprint(args...)
	if strings.HasPrefix(text, "Retry exhausted") || strings.HasPrefix(text, "revoke task") {
		return
	}
	l.log.WarnContext(asynqContext, text)
}

func (l asynqLog) Debug(args ...any) { l.log.Debug(fmt.Sprint(args...)) }
func (l asynqLog) Info(args ...any)  { l.log.Debug(fmt.Sprint(args...)) }
func (l asynqLog) Error(args ...any) { l.log.ErrorContext(asynqContext, fmt.Sprint(args...)) }
func (l asynqLog) Fatal(args ...any) { l.log.ErrorContext(asynqContext, fmt.Sprint(args...)) }
