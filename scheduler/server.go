package scheduler

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/internal/redishealth"
	"github.com/headgate/headgate/internal/stats"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

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
	redis    *redisClient // asynq's
	limiter  *waitdb.DB
	permits  permits // the limiter
	limits   limits
	logged   logged
	rules    Rules
	userCode *userCode
	base     func() (context.Context, error) // the program's BaseContext
	patience time.Duration                   // of a shutdown, with handlers and other code of the program's
	log      *slog.Logger
	grant    time.Duration // how long permits are kept for a called job
	inFlight inFlight
	pacing   pacing
	requests requestQueue
	db       asynqdb.DB // of the queues
	queues   []string   // by name
	markers  *markerWaiter
	passes   time.Duration               // between two comparisons of what waits with asynq
	quiet    time.Duration               // between two heartbeats of the dispatcher where nothing is due
	promotes atomic.Bool                 // whether called jobs can be moved, and so come in time
	changed  chan struct{}               // the rules have
	weights  map[string]fairqueue.Weight // how its queues take turns
	claimed  atomic.Value                // a string: which data of the queues' Redis the scope was claimed for

	limiterHealth, queueHealth *redishealth.Monitor // the same where both are in one Redis

	history *stats.Recorder

	mu         sync.Mutex
	stop       context.CancelFunc // ends giving; nil where it has not begun
	background sync.WaitGroup
	written    func() // ends the history
}

// An Option of NewServer. Most programs need none: the limiter is then made in the
// queues' Redis, in the scope "default".
type Option func(*options)

// options are what the Options set. A nil limiter is one that NewServer is to
// make.
type options struct {
	limiter  *throttle.Limiter
	permits  permits // of a test, which looks on; nil is the limiter
	log      *slog.Logger
	forgiven int
	polling  bool
}

// WithLimiter has the server ask that limiter instead of one made with throttle.New in rdb, such
// as one of another scope, or in another Redis.
func WithLimiter(l *throttle.Limiter) Option { return func(o *options) { o.limiter = l } }

// WithLogger has outages and lost leases logged to log instead of
// slog.Default(). What asynq has to say goes to the Logger of its Config.
func WithLogger(log *slog.Logger) Option { return func(o *options) { o.log = log } }

// WithForgivenCrashes sets how often a job's worker may die while the job runs
// before that counts as a failure of the job, instead of three times.
func WithForgivenCrashes(n int) Option { return func(o *options) { o.forgiven = n } }

// WithPolling leaves it to asynq's own polls to bring denied jobs back. Then
// they come seconds late, and a job may be denied more than once.
func WithPolling() Option { return func(o *options) { o.polling = true } }

// What a server counts is for dashboards/metrics alone.
func init() {
	stats.RecorderOf = func(server any) *stats.Recorder { return server.(*Server).history }
}

// Ping checks the connection with the queues' Redis, as asynq's does. Ready tells more.
func (s *Server) Ping() error { return s.asynq.Ping() }
