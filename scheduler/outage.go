package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/trouble"
)

// outageLog logs the start and the end of each time in which one Redis cannot
// be used, once each. All calls of a process tell it how they went, so it needs no
// polls of its own, and nothing is logged a thousand times. It is safe for
// concurrent use, and changes nothing: whoever calls decides what to do without
// Redis.
//
// A Redis that is full or read-only goes on answering what only reads. So an outage
// that began with a write that was refused ends with one that is not.
type outageLog struct {
	log   *slog.Logger
	what  string
	write func(ctx context.Context) error // tries a write, which changes nothing

	mu      sync.Mutex
	down    bool
	refused bool      // it is down because it takes no writes
	changed time.Time // when that became so
	tried   time.Time // when a write was tried last
}

// writeEach is how often a write is tried while Redis refuses them.
const writeEach = time.Second

// newOutageLog logs what is away as `what`. It begins as available.
func newOutageLog(log *slog.Logger, what string, write func(ctx context.Context) error) *outageLog {
	return &outageLog{log: log, what: what, write: write}
}

// note is told of each call: what ctx it had, when it began, and how it ended.
// A call that was given up by its own context says nothing of Redis, and one
// that did not begin after the last change says nothing of what is now: of many
// calls that hang together some end well after the outage was noted.
func (o *outageLog) note(ctx context.Context, began time.Time, err error) {
	if err != nil && ctx.Err() != nil || err == nil && !o.proves(ctx) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if down := err != nil; down == o.down || !began.After(o.changed) {
		return
	}
	now := time.Now()
	if err != nil {
		o.log.ErrorContext(WithOutage(context.Background(), OutageBegins), o.what+" is unavailable; jobs wait", "why", trouble.Of(err).Says(), "error", err)
	} else {
		o.log.InfoContext(WithOutage(context.Background(), OutageEnds), o.what+" is available again; jobs go on", "after", now.Sub(o.changed).Round(time.Millisecond))
	}
	o.down, o.changed, o.refused = err != nil, now, trouble.Of(err).RefusesWrites()
}

// OutageLine is what a line of a Server's log says of an outage of Redis.
type OutageLine int

// The values of an OutageLine.
const (
	NoOutage     OutageLine = iota // it is about something else
	OutageBegins                   // Redis cannot be used; jobs wait
	OutageEnds                     // it can again; jobs go on
)

// OutageOf is what a line that a Server logs says of an outage, by the context that its
// slog.Handler gets with it: for one that tells of outages in its own way.
func OutageOf(ctx context.Context) OutageLine {
	line, _ := ctx.Value(outageKey{}).(OutageLine)
	return line
}

// WithOutage is the context of a line that says so: for tests of such handlers.
func WithOutage(ctx context.Context, line OutageLine) context.Context {
	return context.WithValue(ctx, outageKey{}, line)
}

type outageKey struct{}

// proves reports whether a call that succeeded says that Redis can be used: where it
// refused a write before, only another write does.
func (o *outageLog) proves(ctx context.Context) bool {
	o.mu.Lock()
	if !o.refused {
		o.mu.Unlock()
		return true
	}
	due := time.Since(o.tried) >= writeEach
	if due {
		o.tried = time.Now()
	}
	o.mu.Unlock()
	return due && o.write(ctx) == nil
}

// setOutages makes the server's two outages, which are one where queues and limiter
// are reached by one client.
func (s *Server) setOutages(log *slog.Logger) {
	rdb, _ := s.limiter.Scope()
	if reflect.TypeOf(rdb).Comparable() && rdb == s.db.Redis {
		s.queueOutage = newOutageLog(log, "the queues' Redis", s.Ready)
		s.limiterOutage = s.queueOutage
		return
	}
	s.queueOutage = newOutageLog(log, "the queues' Redis", s.tryQueues)
	s.limiterOutage = newOutageLog(log, "the limiter", s.tryLimiter)
}

// tryQueues tries a write in each queue: in a cluster they are on several servers.
func (s *Server) tryQueues(ctx context.Context) error {
	for _, queue := range s.queues {
		if err := tryWrite(ctx, s.db.Redis, asynqdb.Key(queue, "")); err != nil {
			return fmt.Errorf("the queues' Redis: %w", err)
		}
	}
	return nil
}

// tryLimiter tries a write in the limiter's scope.
func (s *Server) tryLimiter(ctx context.Context) error {
	rdb, prefix := s.limiter.Scope()
	if err := tryWrite(ctx, rdb, prefix); err != nil {
		return fmt.Errorf("the limiter: %w", err)
	}
	return nil
}

// tryWrite returns why Redis takes no writes at keys that begin so, if it does not. The
// write changes nothing: it adds to a list that is never there.
func tryWrite(ctx context.Context, rdb redis.UniversalClient, prefix string) error {
	try := once{redis.NewIntCmd(ctx, "rpushx", prefix+"probe", "")}
	if err := rdb.Process(ctx, try); trouble.Of(err) != trouble.None {
		return err
	}
	return nil
}

// once is a command that the client does not repeat: at the end of its patience it would
// say no more than that its time is up.
type once struct{ *redis.IntCmd }

// NoRetry implements redis.Cmder.
func (once) NoRetry() bool { return true }

// unreachable returns err if it means that Redis cannot be used, and nil if it
// answered, with whatever. That a Redis loads its data, takes no writes or has no
// memory left is an answer, too, but no use.
func unreachable(err error) error {
	if errors.Is(err, asynqdb.ErrLayout) || errors.Is(err, asynq.ErrQueueNotFound) || errors.Is(err, asynq.ErrTaskNotFound) || trouble.Of(err).Usable() {
		return nil
	}
	return err
}

// A watch tells an outage of the calls of one goroutine, of which each begins
// after the one before has ended. So it need not be told when a call began: it takes
// the end of the one before, which is no later.
type watch struct {
	*outageLog
	before time.Time
}

// watch begins one, before its goroutine's first call.
func (o *outageLog) watch() watch { return watch{o, time.Now()} }

// note tells the outage how a call ended, and returns err, so that it can stand
// around the call.
func (w *watch) note(ctx context.Context, err error) error {
	w.outageLog.note(ctx, w.before, unreachable(err))
	w.before = time.Now()
	return err
}
