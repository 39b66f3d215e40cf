package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/dispatcher"
	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/internal/redishealth"
	"github.com/headgate/headgate/internal/safelog"
	"github.com/headgate/headgate/internal/shard"
	"github.com/headgate/headgate/internal/stats"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// Server is an asynq server whose jobs obey limits. It is used like asynq's own: Start or Run once,
// with the program's mux, then Shutdown.
//
// A worker that takes a job requests the job's permits first. If the limiter allows the job, its
// handler runs, as in asynq. If the limiter denies the job, the job goes back to its queue at once,
// and moves to the head of the queue within some milliseconds after its permits became available. A
// job's Timeout begins when its handler starts. If the limiter is unavailable, jobs wait: none runs
// without permits, and none fails.
//
// Any number of servers may share queues and limits, in any number of processes. One server is the
// leader, which grants permits to the waiting jobs. If it dies, another takes over within seconds.
type Server struct {
	asynq             *asynq.Server
	redis             *redisClient // used by asynq
	rules             Rules
	baseContext       func() (context.Context, error) // the program's BaseContext
	shutdownTimeout   time.Duration                   // longest wait for handlers and the program's other functions
	patience          context.Context                 // ends when a shutdown no longer waits for the program's code
	losePatience      context.CancelFunc
	calls             context.Context // of asynq's calls to Redis; ends when a shutdown no longer waits for Redis
	endCalls          context.CancelFunc
	running           runningJobs
	cancels           context.Context // of the subscription to cancellations; ends with the jobs that run
	stopCancels       context.CancelFunc
	log               *slog.Logger
	grant             time.Duration // how long permits are reserved for a granted job
	inFlight          inFlight
	batchEnds         batchEnds
	missing           hourlyWarnings
	unable            hourlyWarnings                 // about task types that this server cannot run
	unknownFor        time.Duration                  // see WithUnknownFor
	mux               atomic.Pointer[asynq.ServeMux] // the program's handler, if it is a mux and the server has started
	permitAge         permitAge
	db                asynqdb.DB // of the queues
	forgivenCrashes   int        // number of crashes of a job that do not count as failures
	archiveRetention  time.Duration
	prefetcher        *prefetcher
	markers           *markerWaiter
	reconcileInterval time.Duration      // time between two reconciliations of the waiting jobs with asynq
	maxHeartbeat      time.Duration      // longest time between two heartbeats of a leader
	isDrained         atomic.Bool        // whether an operator has drained the server
	canPromote        atomic.Bool        // whether granted jobs can be moved to the head of their queue
	served            []string           // names of the configuration's queues, sorted
	shards            shard.Queues       // the queues with shards
	spread            *dispatcher.Spread // spreads the scopes' leaders over the processes; nil without shards
	scopes            []*scope           // the first for all queues without shards, then one for each shard
	byQueue           map[string]*scope  // by asynq queue
	shardsChecked     atomic.Bool        // whether checkShards has succeeded

	mu          sync.Mutex
	cancelStart context.CancelFunc // ends a call of Start that still waits for Redis
	stop        context.CancelFunc // ends the background goroutines; nil before they start
	background  sync.WaitGroup
}

// These hooks give dashboards and the worker access to a server's stats and health monitors,
// without exported methods.
func init() {
	stats.RecordersOf = func(server any) (all []*stats.Recorder) {
		for _, c := range server.(*Server).scopes {
			all = append(all, c.stats)
		}
		return all
	}
	redishealth.MonitorsOf = func(server any) (all []*redishealth.Monitor) {
		for _, c := range server.(*Server).scopes {
			all = append(all, c.queueHealth)
		}
		return all
	}
}

// An Option of NewServer. Most programs need none.
type Option func(*options)

type options struct {
	limiter         *throttle.Limiter // nil means a new one in the queues' Redis
	permits         permits           // a test's wrapper; nil means the limiter
	log             *slog.Logger
	forgivenCrashes int  // tests set another number
	polling         bool // tests disable promotion with it, as if asynq's layout were unknown
	shards          []Shards
	// archiveRetention is how long archived jobs are kept.
	archiveRetention time.Duration
	unknownFor       time.Duration
}

// WithLimiter sets the server's limiter, for example one with another scope or Redis. The default
// is a new limiter in rdb with the scope "default".
func WithLimiter(l *throttle.Limiter) Option { return func(o *options) { o.limiter = l } }

// WithLogger sets the server's logger, for example for outages and lost leases. The default is
// slog.Default(). asynq itself logs to the Logger of its Config.
func WithLogger(log *slog.Logger) Option { return func(o *options) { o.log = log } }

const (
	// minGrantTime is the minimum time for which permits are reserved for a granted job. In that
	// time even a server that only polls finds the job. A longer reservation would delay other jobs
	// if no worker is free.
	minGrantTime = waitdb.DefaultGrant

	shutdownTimeout = 8 * time.Second // asynq's default

	// finishTime is how long a shutdown waits for Redis after the ShutdownTimeout. In that time asynq
	// puts back the jobs that still run.
	finishTime = time.Second
)

// NewServer returns a server for the asynq queues in rdb, in place of asynq.NewServer. The
// configuration is asynq's, with two differences: DelayedTaskCheckInterval is one second by
// default, and an idle server waits in a blocking call until a Client or a server adds a job. The
// server also polls, with pauses that grow from 10 ms to a second, or to TaskCheckInterval if that
// is set. ErrorHandler, IsFailure and RetryDelayFunc are called for failures only, never for
// denials. A task for which the program's mux has no handler is put back for another server before it
// fails: see ErrUnable.
//
// NewServer returns an error if RuleFor is nil, or if a limit, an option or the configuration is
// not valid. It starts no goroutine and sends nothing to Redis. The caller closes rdb after
// Shutdown.
func NewServer(rdb redis.UniversalClient, rules Rules, cfg asynq.Config, opts ...Option) (*Server, error) {
	o := options{log: slog.Default(), forgivenCrashes: forgivenCrashes, archiveRetention: asynqdb.ArchiveTime}
	for _, opt := range opts {
		opt(&o)
	}
	o.log = safelog.New(o.log)
	cfg.Queues = servedQueues(cfg.Queues)
	shards, err := newQueues(o.shards)
	if o.archiveRetention < time.Second {
		err = errors.Join(err, fmt.Errorf("archive retention %s: want at least 1s", o.archiveRetention))
	}
	if o.unknownFor < 0 {
		err = errors.Join(err, fmt.Errorf("unknown for %s: want some time, or zero for %s", o.unknownFor, DefaultUnknownFor))
	}
	if err := errors.Join(err, validate(rules, cfg, shards)); err != nil {
		return nil, err
	}
	s := &Server{
		rules: rules, log: o.log, forgivenCrashes: o.forgivenCrashes, db: asynqdb.New(rdb), reconcileInterval: dispatcher.DefaultReconcileInterval, maxHeartbeat: dispatcher.DefaultMaxHeartbeat,
		shutdownTimeout: cmp.Or(max(0, cfg.ShutdownTimeout), shutdownTimeout), grant: max(minGrantTime, 3*cfg.TaskCheckInterval),
		served: slices.Sorted(maps.Keys(cfg.Queues)), shards: shards, byQueue: map[string]*scope{},
	}
	if len(s.shards) > 0 {
		s.spread, s.maxHeartbeat = dispatcher.NewSpread(), dispatcher.MaxSpreadHeartbeat
	}
	s.archiveRetention, s.unknownFor = o.archiveRetention, cmp.Or(o.unknownFor, DefaultUnknownFor)
	s.patience, s.losePatience = context.WithCancel(context.Background())
	s.calls, s.endCalls = context.WithCancel(context.Background())
	s.cancels, s.stopCancels = context.WithCancel(s.calls)
	if err := s.addScopes(o, cfg); err != nil {
		return nil, err
	}
	s.batchEnds.wake = make(chan struct{}, 1)
	s.canPromote.Store(!o.polling)
	s.markers = newMarkerWaiter(rdb, slices.Sorted(maps.Keys(s.byQueue)), cmp.Or(max(0, cfg.TaskCheckInterval), maxPoll))
	s.markers.onIdle = func() {
		for _, c := range s.scopes {
			c.slots.noteEmpty(s.freeSlots())
		}
	}
	s.prefetcher = newPrefetcher(s, cfg)
	for _, c := range s.scopes {
		c.stats.Concurrency, c.stats.State = s.prefetcher.slots, s.state
	}
	s.scopes[0].stats.SetDrained = s.setDrained
	cfg.Queues = expandQueues(s.shards, cfg.Queues, cfg.StrictPriority)
	s.redis = &redisClient{UniversalClient: rdb, s: s}
	s.asynq = asynq.NewServerFromRedisClient(s.redis, s.config(cfg))
	return s, nil
}

// servedQueues returns the queues that asynq serves: those with a name and a positive weight, or
// the default queue if there are none.
func servedQueues(queues map[string]int) map[string]int {
	served := maps.Clone(queues)
	maps.DeleteFunc(served, func(queue string, weight int) bool { return weight <= 0 || strings.TrimSpace(queue) == "" })
	if len(served) == 0 {
		return map[string]int{"default": 1}
	}
	return served
}

// validate returns an error if the rules, the configuration or the options are not valid.
func validate(rules Rules, cfg asynq.Config, shards shard.Queues) error {
	if rules.RuleFor == nil {
		return errors.New("rules: RuleFor is nil: want a function that returns the rule of a task")
	}
	defined := map[string]bool{}
	for _, l := range rules.Limits {
		if err := l.Validate(); err != nil {
			return fmt.Errorf("rules: limit %s: %w", l.Name, err)
		}
		if defined[l.Name] {
			return fmt.Errorf("rules: limit %s is defined twice: want a name for each limit", l.Name)
		}
		defined[l.Name] = true
	}
	for queue, weight := range cfg.Queues {
		if err := asynqdb.ValidateQueue(queue); err != nil {
			return fmt.Errorf("config: %w", err)
		}
		if weight > fairqueue.MaxQueueWeight {
			return fmt.Errorf("config: queue %s: weight %d: want at most %d", queue, weight, fairqueue.MaxQueueWeight)
		}
	}
	if d := cfg.GroupGracePeriod; d != 0 && d < time.Second {
		return fmt.Errorf("config: GroupGracePeriod %s: want at least 1s", d)
	}
	for queue := range shards {
		if _, served := cfg.Queues[queue]; !served {
			return fmt.Errorf("shards of queue %s: the config does not serve the queue: want it among the config's Queues", queue)
		}
	}
	for queue := range cfg.Queues {
		if of := shards.QueueOf(queue); of != queue {
			return fmt.Errorf("config: queue %s: it is a shard of queue %s: want another name", queue, of)
		}
	}
	return nil
}

// Start defines the rules' limits and begins to run jobs. It returns an error if a limit cannot be
// defined, if another asynq Redis or an incompatible version of headgate uses the limiter's scope,
// or if jobs or workers are left in the shards of a queue that had another number of shards. If
// Redis is unavailable, jobs wait until it is back, as with asynq's server. If Shutdown is called
// before Start returns, Start starts nothing and returns asynq.ErrServerClosed.
func (s *Server) Start(handler asynq.Handler) error {
	if handler == nil {
		return s.asynq.Start(nil)
	}
	if mux, ok := handler.(*asynq.ServeMux); ok {
		s.mux.Store(mux)
	}
	starting, cancel := context.WithCancel(context.Background())
	defer cancel()
	s.mu.Lock()
	s.cancelStart = cancel
	s.mu.Unlock()
	err := s.prepare(starting)
	s.mu.Lock()
	defer s.mu.Unlock()
	if starting.Err() != nil {
		return asynq.ErrServerClosed
	}
	if err != nil {
		return err
	}
	if err := s.asynq.Start(s.wrap(handler)); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.background.Go(s.cancelJobs)
	s.background.Go(func() { s.dispatch(ctx) })
	s.background.Go(func() { s.recoverJobs(ctx) })
	s.background.Go(func() { s.restoreJobs(ctx) })
	s.background.Go(func() { s.warnForeign(ctx) })
	s.background.Go(func() { s.orderPending(ctx) })
	s.background.Go(func() { s.finishBatches(ctx) })
	for _, c := range s.scopes {
		s.background.Go(func() { c.keepScope(ctx) })
		s.background.Go(func() { c.watchRules(ctx) })
		s.background.Go(func() { c.tellSlots(ctx) })
		c.stopStats = c.stats.Start(s.calls)
	}
	return nil
}

// prepare checks and writes what the rules need in Redis. If Redis is unavailable, that happens
// later.
func (s *Server) prepare(ctx context.Context) error {
	if err, ok := errors.AsType[oldShardsError](s.checkShards(ctx)); ok {
		return err
	}
	for _, c := range s.scopes {
		if err := c.claim(ctx); err != nil {
			return err
		}
		if err := c.define(ctx); err != nil && !errors.Is(err, throttle.ErrUnavailable) {
			return err
		}
		c.compareLimits(ctx)
	}
	return nil
}

// Run calls Start, waits for a signal and calls Shutdown. The signals are asynq's: TERM and INT
// shut the server down, and TSTP calls Stop on systems that have it.
func (s *Server) Run(handler asynq.Handler) error {
	if err := s.Start(handler); err != nil {
		return err
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, append(slices.Clone(stopSignals), syscall.SIGTERM, os.Interrupt)...)
	defer signal.Stop(signals)
	for slices.Contains(stopSignals, <-signals) {
		go s.Stop() // if Redis hangs, Stop does, too, and TERM must still shut the server down
	}
	s.Shutdown()
	return nil
}

// Stop makes the server take no more jobs. Running jobs continue. Waiting jobs still get permits,
// so that other servers can run them.
func (s *Server) Stop() {
	s.stopFetching()
	s.asynq.Stop()
}

// stopFetching puts back fetched jobs that have not started, and wakes asynq if it waits for a job.
func (s *Server) stopFetching() {
	s.prefetcher.stop()
	s.markers.stop()
	for _, c := range s.scopes {
		c.stats.ReportSoon()
	}
}

// Shutdown stops taking jobs and granting permits, and waits for running jobs for at most the
// configuration's ShutdownTimeout. After that time it puts back the jobs that still run, and
// cancels their handlers' contexts. Their leases on concurrency limits are kept until the handlers
// return. The timeout also applies to RuleFor and to functions of the configuration.
//
// Shutdown waits up to a second for canceled handlers, in which they can [Settle] what they have used.
// Shutdown returns at most a second after the ShutdownTimeout, even if Redis does not answer. Jobs
// that it could not put back stay in asynq, and run again when their leases have ended. If a call to
// Redis hangs, its goroutine ends with the call, after Shutdown has returned: a client of go-redis
// waits for its ReadTimeout, and then does not retry. The program may close the client before that.
func (s *Server) Shutdown() {
	defer time.AfterFunc(s.shutdownTimeout, s.losePatience).Stop()
	defer time.AfterFunc(s.shutdownTimeout+finishTime, s.endCalls).Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancelStart != nil {
		s.cancelStart()
	}
	ended, isStarted := make(chan struct{}), s.stop != nil
	if isStarted {
		s.stop() // another process can become leader at once
	}
	go func() { // a call to Redis or to the program's logger may hang
		defer close(ended)
		s.finish(isStarted)
	}()
	select {
	case <-ended:
	case <-s.calls.Done():
	}
}

// finish waits until all parts of the server have ended.
func (s *Server) finish(isStarted bool) {
	s.stopFetching()
	s.asynq.Shutdown()
	if !isStarted {
		return
	}
	for !s.inFlight.allReturned() && s.calls.Err() == nil {
		sleep(s.calls, goodbyeTime)
	}
	s.stopCancels()
	ended := make(chan struct{})
	go func() {
		s.background.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-s.patience.Done():
	}
	for _, c := range s.scopes {
		c.stopStats()
	}
}

// Ping checks the connection with the queues' Redis, as asynq's does. Ready checks more.
func (s *Server) Ping() error { return s.asynq.Ping() }

// Ready returns an error if jobs cannot run now, because the Redis of the queues or of the limiter
// does not reply for 5 seconds, rejects writes, or lacks a permission for a command. It is for health
// checks, and takes one round trip for each queue and one for the limiter. If ctx ends before Redis
// has answered, Ready returns the last known state, or an error if Redis has never answered.
func (s *Server) Ready(ctx context.Context) error {
	for _, c := range s.scopes {
		err := c.queueHealth.Check(ctx)
		if err == nil && c.limiterHealth != c.queueHealth {
			err = c.limiterHealth.Check(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
