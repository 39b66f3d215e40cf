package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"time"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/outage"
	"github.com/headgate/headgate/throttle"
)

// OutageLine is what a line of a Server's log says of an outage of Redis.
type OutageLine int

// The values of an OutageLine: those of an outage.Line.
const (
	NoOutage     OutageLine = iota // it is about something else
	OutageBegins                   // Redis cannot be used; jobs wait
	OutageEnds                     // it can again; jobs go on
)

// OutageOf is what a line that a Server logs says of an outage, by the context that its
// slog.Handler gets with it: for one that tells of outages in its own way.
func OutageOf(ctx context.Context) OutageLine { return OutageLine(outage.LineOf(ctx)) }

// WithOutage is the context of a line that says so: for tests of such handlers.
func WithOutage(ctx context.Context, line OutageLine) context.Context {
	return outage.With(ctx, outage.Line(line))
}

// setOutages makes the server's two outages, which are one where queues and limiter
// are reached by one client.
func (s *Server) setOutages(log *slog.Logger) {
	rdb, _ := s.limiter.Scope()
	if reflect.TypeOf(rdb).Comparable() && rdb == s.db.Redis {
		s.queueOutage = outage.New(log, "the queues' Redis", s.Ready)
		s.limiterOutage = s.queueOutage
		return
	}
	s.queueOutage = outage.New(log, "the queues' Redis", s.tryQueues)
	s.limiterOutage = outage.New(log, "the limiter", s.tryLimiter)
}

// Ready returns why jobs cannot run now: the Redis of the queues or that of the limiter
// does not answer, or takes no writes, as one whose memory is full. It is for health
// checks, and takes a round trip for each queue and one for the limiter.
func (s *Server) Ready(ctx context.Context) error {
	if err := s.tryQueues(ctx); err != nil {
		return err
	}
	return s.tryLimiter(ctx)
}

// tryQueues tries a write in each queue: in a cluster they are on several servers.
func (s *Server) tryQueues(ctx context.Context) error {
	for _, queue := range s.queues {
		if err := outage.TryWrite(ctx, s.db.Redis, asynqdb.Key(queue, "")); err != nil {
			return fmt.Errorf("the queues' Redis: %w", err)
		}
	}
	return nil
}

// tryLimiter tries a write in the limiter's scope.
func (s *Server) tryLimiter(ctx context.Context) error {
	rdb, prefix := s.limiter.Scope()
	if err := outage.TryWrite(ctx, rdb, prefix); err != nil {
		return fmt.Errorf("the limiter: %w", err)
	}
	return nil
}

// noteLimiter tells the limiter's outage of a call. Another error than
// ErrUnavailable is an answer.
func (s *Server) noteLimiter(ctx context.Context, began time.Time, err error) {
	if !errors.Is(err, throttle.ErrUnavailable) {
		err = nil
	}
	s.limiterOutage.Note(ctx, began, err)
}
