package scheduler

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"time"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/redishealth"
	"github.com/headgate/headgate/throttle"
)

// Dashboards and the worker ask the server's monitors.
func init() {
	redishealth.OfServer = func(server any) (queues, limiter *redishealth.Monitor) {
		s := server.(*Server)
		return s.queueHealth, s.limiterHealth
	}
}

// setHealth makes the server's two monitors, which are one if queues and limiter are reached by
// one client.
func (s *Server) setHealth(log *slog.Logger) {
	rdb, scope := s.limiter.Scope()
	var places []string
	for _, queue := range s.queues {
		places = append(places, asynqdb.Key(queue, ""))
	}
	if reflect.TypeOf(rdb).Comparable() && rdb == s.db.Redis {
		s.queueHealth = redishealth.New(log, "Redis", rdb, append(places, scope)...)
		s.limiterHealth = s.queueHealth
		return
	}
	s.queueHealth = redishealth.New(log, "the queues' Redis", s.db.Redis, places...)
	s.limiterHealth = redishealth.New(log, "the limiter's Redis", rdb, scope)
}

// Ready returns why jobs cannot run now: the Redis of the queues or that of the limiter
// does not answer, takes no writes, as one whose memory is full, or its user lacks a right that a
// command needed. It is for health checks, and takes a round trip for each queue and one for the
// limiter.
func (s *Server) Ready(ctx context.Context) error {
	if err := s.queueHealth.Check(ctx); err != nil || s.limiterHealth == s.queueHealth {
		return err
	}
	return s.limiterHealth.Check(ctx)
}

// noteLimiter tells the limiter's monitor of a call. An error other than ErrUnavailable is an
// answer.
func (s *Server) noteLimiter(ctx context.Context, began time.Time, err error) {
	if !errors.Is(err, throttle.ErrUnavailable) {
		err = nil
	}
	s.limiterHealth.Note(ctx, began, err)
}
