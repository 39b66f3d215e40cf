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
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/dispatch"
	"github.com/headgate/headgate/internal/history"
	"github.com/headgate/headgate/internal/outage"
	"github.com/headgate/headgate/internal/turns"
	"github.com/headgate/headgate/scheduler/lanes"
	"github.com/headgate/headgate/throttle"
)

// Limiter is what a Server asks for permits. [*lanes.Lanes] is one; programs
// that want to see or to change its answers embed that and override a method.
// What each method means is said there.
//
// A Server calls it from many goroutines at once. An answer of AcquireAll whose
// error wraps throttle.ErrUnavailable has the job ask again after a second; any
// other error archives it.
type Limiter interface {
	Define(ctx context.Context, limits ...throttle.Limit) error
	AcquireAll(ctx context.Context, asks ...lanes.Ask) []lanes.Answer
	Extend(ctx context.Context, holder string, needs ...throttle.Need) (bool, error)
	Free(ctx context.Context, holder string, needs ...throttle.Need) error
	Refused(ctx context.Context, job lanes.Job, refusal lanes.Refusal, needs ...throttle.Need) (throttle.Decision, error)
	Accepted(ctx context.Context, d throttle.Decision, latency time.Duration) error
	Settle(ctx context.Context, d throttle.Decision, limit, key string, cost int) error
	Overloaded(ctx context.Context, at time.Time, needs ...throttle.Need) error
	BlockFor(ctx context.Context, d time.Duration, needs ...throttle.Need) error
	Places(ctx context.Context, jobs ...throttle.JobID) (map[throttle.JobID]lanes.Place, error)
	Forget(ctx context.Context, jobs ...throttle.JobID) (known int, err error)
	// Scope and ExtendCalendars are how the Server gives waiting jobs their turns.
	Scope() (rdb redis.UniversalClient, prefix string)
	ExtendCalendars(ctx context.Context, limits []string, now int64) error
}

// Server is an asynq server whose jobs obey limits. It is used as asynq's own:
// Start or Run once, with the program's mux, then Shutdown.
//
// A worker that takes a job asks for the job's permits first. With them the
// handler runs, as it would in asynq. Without them the job goes back to its queue
// at once, and the worker takes the next: no worker sleeps. When the job's permits
// exist it is moved to the head of its queue, some milliseconds before or after.
//
// Any number of servers may share queues and limits, in any number of processes.
// One of them gives the waiting jobs their turns; when it dies another takes over
// within seconds. Where the limiter cannot be asked, jobs wait: none runs
// unlimited, and none fails for that. A job's Timeout begins with its handler.
//
// A job that needs limits costs one round trip to the limiter before its handler
// runs. After it there is one where a limit learns from how calls go, and one for
// the leases that the job held. A job that needs none costs nothing.
type Server struct {
	asynq    *asynq.Server
	redis    *queueRedis // asynq's
	limiter  Limiter
	store    *turns.Store // of who waits for its permits
	limits   limits
	rules    Rules
	base     func() context.Context // the program's
	log      *slog.Logger
	grant    time.Duration // how long permits are kept for a called job
	putBacks putBacks
	askings  askings
	spacing  spacing
	inOrder  inOrder
	db       asynqdb.DB // of the queues
	queues   []string   // by name
	bell     *bell
	passes   time.Duration           // between two comparisons of what waits with asynq
	quiet    time.Duration           // between two heartbeats of the dispatcher where nothing is due
	promotes atomic.Bool             // whether called jobs can be moved, and so come in time
	changed  chan struct{}           // the rules have
	weights  map[string]turns.Weight // how its queues take turns
	claimed  atomic.Value            // a string: which data of the queues' Redis the scope was claimed for

	limiterOutage, queueOutage *outage.Log // the same where both are in one Redis

	history *history.Recorder

	mu      sync.Mutex
	stop    context.CancelFunc // ends giving; nil where it has not begun
	giving  sync.WaitGroup
	written func() // ends the history
}

// An Option of NewServer. Most programs need none: the limiter is then made in the
// queues' Redis, in the scope "default".
type Option func(*options)

// options are what the Options set. A nil limiter is one that NewServer is to
// make.
type options struct {
	limiter  Limiter
	log      *slog.Logger
	forgiven int
	polling  bool
}

// WithLimiter has the limiter asked instead of one made with
// throttle.New and lanes.New in rdb, such as one of
// another scope, or in another Redis.
func WithLimiter(l Limiter) Option { return func(o *options) { o.limiter = l } }

// WithLogger has outages and lost leases logged to log instead of
// slog.Default(). What asynq has to say goes to the Logger of its Config.
func WithLogger(log *slog.Logger) Option { return func(o *options) { o.log = log } }

// WithForgivenCrashes sets how often a job's worker may die while the job runs
// before that counts as a failure of the job, instead of three times.
func WithForgivenCrashes(n int) Option { return func(o *options) { o.forgiven = n } }

// WithPolling leaves it to asynq's own polls to bring denied jobs back. Then
// they come seconds late, and a job may be denied more than once.
func WithPolling() Option { return func(o *options) { o.polling = true } }

// NewServer returns a server for the asynq queues in rdb, in place of
// asynq.NewServer. The configuration is asynq's, and means what it does there,
// but that delayed jobs are looked for each second if it does not say how often, and
// that queues are not polled: a server waits in Redis until a Client, another server or
// its own wakes it, and looks by itself after 10 ms to a second, or TaskCheckInterval.
// Its ErrorHandler, IsFailure and RetryDelayFunc
// hear of failures only, never of denials.
//
// It returns an error if a limit of the rules is not valid, if For is nil, or if an
// option or the configuration has a value that cannot be taken. Nothing happens
// before Start: no goroutine runs and Redis is not asked. The client rdb is the
// caller's to close, after Shutdown.
func NewServer(rdb redis.UniversalClient, rules Rules, cfg asynq.Config, opts ...Option) (*Server, error) {
	o := options{log: slog.Default(), forgiven: forgivenCrashes}
	for _, opt := range opts {
		opt(&o)
	}
	if err := validate(rules, cfg, o); err != nil {
		return nil, err
	}
	s := &Server{
		limiter: o.limiter, rules: rules, log: o.log, db: asynqdb.New(rdb), passes: dispatch.Passes, quiet: dispatch.Quiet, base: cfg.BaseContext,
		queues: slices.Sorted(maps.Keys(cfg.Queues)), changed: make(chan struct{}, 1),
	}
	if s.limiter == nil {
		s.limiter = lanes.New(throttle.New(rdb, throttle.RedisOptions{Logger: o.log}))
	}
	if s.base == nil {
		s.base = context.Background
	}
	if len(s.queues) == 0 {
		s.queues = []string{"default"} // as asynq has it
	}
	s.weights = weightsOf(s.queues, cfg)
	s.setOutages(o.log)
	limits, scope := s.limiter.Scope()
	s.store = turns.NewStore(s.limiter)
	s.history = history.New(limits, scope)
	s.history.Queues = rdb
	s.limits.set(rules.Limits, false)
	s.promotes.Store(!o.polling)
	s.grant = max(minGrant, 3*cfg.TaskCheckInterval)
	s.bell = newBell(rdb, s.queues, cmp.Or(max(0, cfg.TaskCheckInterval), longestWait))
	s.redis = &queueRedis{
		UniversalClient: rdb, db: s.db, putBacks: &s.putBacks, askings: &s.askings, forgiven: o.forgiven, promotes: &s.promotes,
		scope: scope, outage: s.queueOutage, bell: s.bell, ahead: newAhead(s.db, cfg, s.queueOutage, s),
	}
	s.history.Concurrency = s.redis.ahead.slots
	s.asynq = asynq.NewServerFromRedisClient(s.redis, s.config(cfg))
	return s, nil
}

// weightsOf is how queues take turns at limits: as they are served.
func weightsOf(queues []string, cfg asynq.Config) map[string]turns.Weight {
	weights := map[string]turns.Weight{}
	for _, queue := range queues {
		weights[queue] = turns.Weight{Turns: max(1, cfg.Queues[queue]), Strict: cfg.StrictPriority}
	}
	return weights
}

// validate reports what NewServer or asynq cannot take. A GroupGracePeriod that is
// too short is among it because asynq panics there.
func validate(rules Rules, cfg asynq.Config, o options) error {
	if rules.For == nil {
		return errors.New("rules: For is nil: want a function that says what a task needs")
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
		if weight > turns.MostTurns {
			return fmt.Errorf("config: queue %s: weight %d: want at most %d", queue, weight, turns.MostTurns)
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

// validQueue refuses a queue whose lanes would be another's by their names.
func validQueue(queue string) error {
	if strings.Contains(queue, "\n") {
		return &throttle.FieldError{Field: "queue", Value: strconv.Quote(queue), Want: "want a name without line breaks"}
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
	began := s.beginGiving()
	err = s.asynq.Start(s.wrap(handler))
	if err != nil && began {
		s.endGiving()
		s.written()
	}
	return err
}

// Stop has the server take no more jobs, as the first half of Shutdown. Those that
// run go on, and waiting ones are called for other servers of the queues.
func (s *Server) Stop() {
	s.takeNoMore()
	s.asynq.Stop()
}

// takeNoMore gives jobs back that have not been begun, and lets go of asynq, which waits
// for whoever waits for jobs.
func (s *Server) takeNoMore() {
	s.redis.ahead.stop()
	s.bell.stop()
}

// Shutdown stops calling waiting jobs and taking new ones, and waits for those
// that run as long as the configuration's ShutdownTimeout says. What then still
// runs goes back to its queue; the handlers' contexts end, and their leases on
// concurrency limits are kept until they return.
func (s *Server) Shutdown() {
	s.takeNoMore()
	s.endGiving()
	s.asynq.Shutdown()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.written != nil {
		s.written() // with what the last jobs did
	}
}

// What a server counts is for dashboards/metrics alone.
func init() {
	history.Of = func(server any) *history.Recorder { return server.(*Server).history }
}

// Ping checks the connection with the queues' Redis, as asynq's does. Ready tells more.
func (s *Server) Ping() error { return s.asynq.Ping() }
