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
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/dispatcher"
	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/internal/safelog"
	"github.com/headgate/headgate/internal/stats"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// NewServer returns a server for the asynq queues in rdb, in place of
// asynq.NewServer. The configuration is asynq's, and means what it does there,
// but that delayed jobs are looked for each second if it does not say how often, and
// that queues are not polled: a server waits in Redis until a Client, another server or
// its own wakes it, and looks by itself after 10 ms to a second, or TaskCheckInterval.
// Its ErrorHandler, IsFailure and RetryDelayFunc
// hear of failures only, never of denials.
//
// It returns an error if a limit of the rules is not valid, if RuleFor is nil, or if an
// option or the configuration has a value that cannot be taken. Nothing happens
// before Start: no goroutine runs and Redis is not asked. The client rdb is the
// caller's to close, after Shutdown.
func NewServer(rdb redis.UniversalClient, rules Rules, cfg asynq.Config, opts ...Option) (*Server, error) {
	o := options{log: slog.Default(), forgiven: forgivenCrashes}
	for _, opt := range opts {
		opt(&o)
	}
	o.log = safelog.New(o.log)
	if err := validate(rules, cfg, o); err != nil {
		return nil, err
	}
	s := &Server{
		rules: rules, log: o.log, db: asynqdb.New(rdb), passes: dispatcher.ReconcileInterval, quiet: dispatcher.MaxHeartbeat, userCode: newUserCode(o.log),
		queues: slices.Sorted(maps.Keys(cfg.Queues)), changed: make(chan struct{}, 1),
		logged: logged{files: map[string]string{}, lost: map[string]bool{}},
	}
	if o.limiter == nil {
		o.limiter = throttle.New(rdb, throttle.Options{Logger: o.log})
	}
	s.limiter = waitdb.New(o.limiter)
	if s.permits = o.permits; s.permits == nil {
		s.permits = s.limiter
	}
	s.base = func() (context.Context, error) { return s.userCode.baseContext(cfg.BaseContext) }
	s.patience = cmp.Or(max(0, cfg.ShutdownTimeout), shutdownTimeout)
	if len(s.queues) == 0 {
		s.queues = []string{"default"} // as asynq has it
	}
	s.weights = weightsOf(s.queues, cfg)
	s.requests.acquire = s.acquire
	s.setHealth(o.log)
	limits, scope := s.limiter.Scope()
	s.history = stats.New(limits, scope)
	s.history.Queues, s.history.ServedQueues, s.history.RuleFor = rdb, s.queues, s.wantsOf
	s.limits.set(rules.Limits, false)
	s.promotes.Store(!o.polling)
	s.grant = max(minGrant, 3*cfg.TaskCheckInterval)
	s.markers = newMarkerWaiter(rdb, s.queues, cmp.Or(max(0, cfg.TaskCheckInterval), longestWait))
	s.redis = &redisClient{
		UniversalClient: rdb, db: s.db, inFlight: &s.inFlight, forgiven: o.forgiven, promotes: &s.promotes,
		scope: scope, health: s.queueHealth, markers: s.markers, prefetcher: newPrefetcher(s.db, cfg, s.queueHealth, s, &s.inFlight),
	}
	name := uuid.NewString()
	s.redis.slots = slotTeller{queues: s.queues, free: s.idleSlots, tell: func(free int, every time.Duration) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = s.limiter.ReportSlots(ctx, name, free, every, s.queues) // the leader asks again in a second
	}}
	s.markers.idle = s.redis.slots.idle
	s.history.Concurrency = s.redis.prefetcher.slots
	s.asynq = asynq.NewServerFromRedisClient(s.redis, s.config(cfg))
	return s, nil
}

// weightsOf is how queues take turns at limits: as they are served.
func weightsOf(queues []string, cfg asynq.Config) map[string]fairqueue.Weight {
	weights := map[string]fairqueue.Weight{}
	for _, queue := range queues {
		weights[queue] = fairqueue.Weight{Turns: max(1, cfg.Queues[queue]), Strict: cfg.StrictPriority}
	}
	return weights
}

// validate reports what NewServer or asynq cannot take. A GroupGracePeriod that is
// too short is among it because asynq panics there.
func validate(rules Rules, cfg asynq.Config, o options) error {
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
	if o.forgiven < 0 {
		return fmt.Errorf("forgiven crashes %d: want 0 or more", o.forgiven)
	}
	return nil
}

// Start makes the rules' limits known and begins to run jobs. It fails if a
// limit cannot be defined, if the jobs of another asynq Redis wait in the
// limiter's scope, or if workers of another version of headgate run there whose data
// this one would misread; where Redis is unavailable the jobs wait, as with asynq's
// server.
func (s *Server) Start(handler asynq.Handler) error {
	return s.begin(handler)
}

// Run is Start, and then waits for a signal to stop and shuts down. The signals
// are asynq's: TERM and INT end it; TSTP, where the system has it, is Stop.
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

// begin hands the wrapped handler to asynq once all else is ready. Where the
// limiter is unavailable its limits are defined when it is back, before a job asks.
//
// Turns are given from before the first job is taken. So what was begun must end
// again if asynq does not start. Of a server that runs already asynq says so, and
// nothing was begun.
func (s *Server) begin(handler asynq.Handler) error {
	if handler == nil {
		return s.asynq.Start(nil)
	}
	if err := s.claim(context.Background()); err != nil {
		return err
	}
	err := s.define(context.Background())
	if err != nil && !errors.Is(err, throttle.ErrUnavailable) {
		return err
	}
	s.compareLimits(context.Background())
	began := s.startBackground()
	err = s.asynq.Start(s.wrap(handler))
	if err != nil && began {
		<-s.stopBackground()
		s.written()
	}
	return err
}

// Stop has the server take no more jobs, as the first half of Shutdown. Those that
// run go on, and waiting ones are called for other servers of the queues.
func (s *Server) Stop() {
	s.stopFetching()
	s.asynq.Stop()
}

// takeNoMore gives jobs back that have not been begun, and lets go of asynq, which waits
// for whoever waits for jobs.
func (s *Server) stopFetching() {
	s.redis.prefetcher.stop()
	s.markers.stop()
}

// Shutdown stops calling waiting jobs and taking new ones, and waits for those
// that run as long as the configuration's ShutdownTimeout says. What then still
// runs goes back to its queue; the handlers' contexts end, and their leases on
// concurrency limits are kept until they return. For the program's rules and
// functions of the configuration it waits no longer than for handlers.
func (s *Server) Shutdown() {
	end := time.AfterFunc(s.patience, s.userCode.giveUp)
	defer end.Stop()
	s.stopFetching()
	given := s.stopBackground()
	s.asynq.Shutdown()
	select {
	case <-given:
	case <-s.userCode.gone:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.written != nil {
		s.written() // with what the last jobs did
	}
}
