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
// A worker that takes a job requests the job's permits first. With the permits the handler runs, as
// it would in asynq. Without them the job goes back to its queue at once, and the worker takes the
// next one. When the job's permits exist, it is moved to the head of its queue, some milliseconds
// before or after.
//
// Any number of servers may share queues and limits, in any number of processes. One of them gives
// the waiting jobs their turns; if it dies, another takes over within seconds. If the limiter cannot
// be reached, jobs wait: none runs unlimited, and none fails for that. A job's Timeout begins with
// its handler.
//
// A job that needs limits costs one round trip to the limiter before its handler runs, one after it
// if a limit adapts to how calls go, and one if the job held leases. A job that needs no limits
// costs nothing.
type Server struct {
	asynq             *asynq.Server
	redis             *redisClient // asynq's
	rules             Rules
	userCode          *userCode
	baseContext       func() (context.Context, error) // the program's BaseContext
	shutdownTimeout   time.Duration                   // of a shutdown, with handlers and other code of the program's
	log               *slog.Logger
	grant             time.Duration // how long permits are kept for a granted job
	inFlight          inFlight
	pacing            pacing
	db                asynqdb.DB // of the queues
	markers           *markerWaiter
	reconcileInterval time.Duration      // between two comparisons of what waits with asynq
	maxHeartbeat      time.Duration      // between two heartbeats of the dispatcher when nothing is due
	canPromote        atomic.Bool        // whether granted jobs can be moved, and so come in time
	served            []string           // the queues of the configuration, by name
	shards            shard.Queues       // of them
	spread            *dispatcher.Spread // of the scopes' leaders; nil without shards
	scopes            []*scope           // of the unsharded queues, and of each shard
	byQueue           map[string]*scope  // by asynq queue

	shardsChecked atomic.Bool // whether no job is in a shard of an earlier number of shards

	mu         sync.Mutex
	stop       context.CancelFunc // ends the background goroutines; nil before they start
	background sync.WaitGroup
}

// What a server counts is for dashboards/metrics alone. Dashboards and the worker ask its monitors.
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

// An Option of NewServer. Most programs need none: the limiter is then made in the queues' Redis,
// in the scope "default".
type Option func(*options)

type options struct {
	limiter         *throttle.Limiter // nil is one that NewServer makes
	permits         permits           // of a test, which looks on; nil is the limiter
	log             *slog.Logger
	forgivenCrashes int
	polling         bool
	shards          []Shards
}

// WithLimiter makes the server use that limiter instead of one made with throttle.New in rdb, for
// example one of another scope, or in another Redis.
func WithLimiter(l *throttle.Limiter) Option { return func(o *options) { o.limiter = l } }

// WithLogger makes the server log outages and lost leases to log instead of slog.Default(). What
// asynq logs goes to the Logger of its Config.
func WithLogger(log *slog.Logger) Option { return func(o *options) { o.log = log } }

// WithForgivenCrashes sets how often a job's worker may die while the job runs before that counts
// as a failure of the job, instead of three times.
func WithForgivenCrashes(n int) Option { return func(o *options) { o.forgivenCrashes = n } }

// WithPolling leaves it to asynq's own polls to bring denied jobs back. Then they come seconds
// late, and a job may be denied more than once.
func WithPolling() Option { return func(o *options) { o.polling = true } }

const (
	// minGrant is how long permits are kept at least for a granted job that has not come: as long as
	// the polls of its queue may take, and no longer than a job that no worker takes should hold up
	// others.
	minGrant = waitdb.DefaultGrant

	shutdownTimeout = 8 * time.Second // asynq's own, for a Config without one
)

// NewServer returns a server for the asynq queues in rdb, in place of asynq.NewServer. The
// configuration is asynq's, with two differences: delayed jobs are looked for each second if it does
// not say how often, and queues are not polled. A server waits in Redis until a Client, another
// server or its own wakes it, and looks by itself after 10 ms to a second, or TaskCheckInterval. The
// ErrorHandler, IsFailure and RetryDelayFunc are called for failures only, never for denials.
//
// NewServer returns an error if a limit of the rules is not valid, if RuleFor is nil, or if an option
// or the configuration has an invalid value. Nothing happens before Start: no goroutine runs and
// nothing is sent to Redis. The client rdb is the caller's to close, after Shutdown.
func NewServer(rdb redis.UniversalClient, rules Rules, cfg asynq.Config, opts ...Option) (*Server, error) {
	o := options{log: slog.Default(), forgivenCrashes: forgivenCrashes}
	for _, opt := range opts {
		opt(&o)
	}
	o.log = safelog.New(o.log)
	shards, err := newQueues(o.shards)
	if err := errors.Join(err, validate(rules, cfg, o, shards)); err != nil {
		return nil, err
	}
	s := &Server{
		rules: rules, log: o.log, db: asynqdb.New(rdb), reconcileInterval: dispatcher.DefaultReconcileInterval, maxHeartbeat: dispatcher.DefaultMaxHeartbeat, userCode: newUserCode(o.log),
		shutdownTimeout: cmp.Or(max(0, cfg.ShutdownTimeout), shutdownTimeout), grant: max(minGrant, 3*cfg.TaskCheckInterval),
		served: slices.Sorted(maps.Keys(cfg.Queues)), shards: shards, byQueue: map[string]*scope{},
	}
	if len(s.served) == 0 {
		s.served = []string{"default"} // as asynq has it
	}
	if len(s.shards) > 0 {
		s.spread, s.maxHeartbeat = dispatcher.NewSpread(), dispatcher.MaxSpreadHeartbeat
	}
	s.baseContext = func() (context.Context, error) { return s.userCode.baseContext(cfg.BaseContext) }
	if err := s.addScopes(o, cfg); err != nil {
		return nil, err
	}
	s.canPromote.Store(!o.polling)
	s.markers = newMarkerWaiter(rdb, slices.Sorted(maps.Keys(s.byQueue)), cmp.Or(max(0, cfg.TaskCheckInterval), maxPoll))
	s.redis = &redisClient{
		UniversalClient: rdb, db: s.db, inFlight: &s.inFlight, forgivenCrashes: o.forgivenCrashes, canPromote: &s.canPromote, scopeOf: s.scopeOf, rotations: map[string]*rotation{},
		markers: s.markers, prefetcher: newPrefetcher(s.db, cfg, s, &s.inFlight),
	}
	for queue := range s.shards {
		r := &rotation{shards: s.shards.Names(queue)}
		for _, name := range r.shards {
			s.redis.rotations[name] = r
		}
	}
	s.markers.onIdle = func() {
		for _, c := range s.scopes {
			c.slots.idle()
		}
	}
	for _, c := range s.scopes {
		c.stats.Concurrency = s.redis.prefetcher.slots
	}
	cfg.Queues = expandQueues(s.shards, cfg.Queues, cfg.StrictPriority)
	s.asynq = asynq.NewServerFromRedisClient(s.redis, s.config(cfg))
	return s, nil
}

// validate reports what NewServer or asynq cannot take. A GroupGracePeriod that is too short is
// among it because asynq panics there.
func validate(rules Rules, cfg asynq.Config, o options, shards shard.Queues) error {
	if rules.RuleFor == nil {
		return errors.New("rules: RuleFor is nil: want a function that returns the rule of a task")
	}
	for _, l := range rules.Limits {
		if err := l.Validate(); err != nil {
			return fmt.Errorf("rules: limit %s: %w", l.Name, err)
		}
	}
	for queue, weight := range cfg.Queues {
		if err := validQueue(queue); err != nil {
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
	if o.forgivenCrashes < 0 {
		return fmt.Errorf("forgiven crashes %d: want 0 or more", o.forgivenCrashes)
	}
	return nil
}

// Start defines the rules' limits and begins to run jobs. It fails if a limit cannot be defined, if
// the jobs of another asynq Redis wait in the limiter's scope, if workers of another version of
// headgate run there whose data this one would misread, or if a queue has jobs in the shards of
// another number of shards. If Redis is unavailable, the jobs wait, as
// with asynq's server, and the limits are defined before the first job asks for permits.
func (s *Server) Start(handler asynq.Handler) error {
	if handler == nil {
		return s.asynq.Start(nil)
	}
	if err := s.checkShards(context.Background()); err != nil && !errors.Is(err, throttle.ErrUnavailable) {
		return err
	}
	for _, c := range s.scopes {
		if err := c.start(context.Background()); err != nil {
			return err
		}
	}
	began := s.startBackground()
	err := s.asynq.Start(s.wrap(handler))
	if err != nil && began { // a server that runs already goes on
		<-s.stopBackground()
		s.writeStats()
	}
	return err
}

// Run calls Start, waits for a signal to stop and shuts down. The signals are asynq's: TERM and INT
// end it; TSTP, if the system has it, calls Stop.
func (s *Server) Run(handler asynq.Handler) error {
	if err := s.Start(handler); err != nil {
		return err
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, append(slices.Clone(stopSignals), syscall.SIGTERM, os.Interrupt)...)
	defer signal.Stop(signals)
	for slices.Contains(stopSignals, <-signals) {
		s.Stop()
	}
	s.Shutdown()
	return nil
}

// Stop makes the server take no more jobs, as the first half of Shutdown. Running jobs continue, and
// waiting jobs are granted their permits for other servers of the queues.
func (s *Server) Stop() {
	s.stopFetching()
	s.asynq.Stop()
}

// stopFetching gives jobs back that have not started, and wakes asynq if it waits for jobs.
func (s *Server) stopFetching() {
	s.redis.prefetcher.stop()
	s.markers.stop()
}

// Shutdown stops taking jobs and granting permits to waiting ones, and waits for running jobs as
// long as the configuration's ShutdownTimeout says. Jobs that still run then go back to their queue;
// their handlers' contexts end, and their leases on concurrency limits are kept until the handlers
// return. Shutdown waits for the program's rules and functions of the configuration no longer than
// for handlers.
func (s *Server) Shutdown() {
	end := time.AfterFunc(s.shutdownTimeout, s.userCode.giveUp)
	defer end.Stop()
	s.stopFetching()
	ended := s.stopBackground()
	s.asynq.Shutdown()
	select {
	case <-ended:
	case <-s.userCode.gone:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop != nil {
		s.writeStats() // with what the last jobs did
	}
}

// Ping checks the connection with the queues' Redis, as asynq's does. Ready checks more.
func (s *Server) Ping() error { return s.asynq.Ping() }

// Ready returns why jobs cannot run now: the Redis of the queues or of the limiter does not answer
// or takes no writes, for example because its memory is full, or its user lacks a right that a
// command needed. It is for health checks, and takes a round trip for each queue and one for the
// limiter.
func (s *Server) Ready(ctx context.Context) error {
	for _, c := range s.scopes {
		if err := c.ready(ctx); err != nil {
			return err
		}
	}
	return nil
}
