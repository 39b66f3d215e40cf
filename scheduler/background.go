package scheduler

import (
	"context"
	"errors"
	"sync"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/dispatcher"
	"github.com/headgate/headgate/internal/redishealth"
)

// dispatch runs the dispatchers of all scopes until the context ends. If promotion is disabled,
// dispatch runs no dispatcher, and asynq's polls bring denied jobs back.
func (s *Server) dispatch(ctx context.Context) {
	s.checkPromote(ctx)
	for _, c := range s.scopes {
		c.stats.PollingFallback.Store(!s.canPromote.Load())
	}
	if ctx.Err() != nil || !s.canPromote.Load() {
		return
	}
	s.RulesChanged() // jobs may wait under the rules of an earlier process
	var scopes sync.WaitGroup
	for _, c := range s.scopes {
		scopes.Go(func() {
			dispatcher.Run(ctx, dispatcher.Config{
				Waits: c.limiter, DB: s.db, Queues: c.queues, Log: s.log, LimiterHealth: c.limiterHealth, QueuesHealth: c.queueHealth,
				ReconcileInterval: s.reconcileInterval, MaxHeartbeat: s.maxHeartbeat, Stats: c.stats, SlotsRequested: c.slotsWanted, Spread: s.spread,
			})
		})
	}
	scopes.Wait()
}

// checkPromote disables promotion if asynq's layout of data in Redis is not the expected one. It
// retries while Redis is unavailable. Two checks must fail, because someone may flush Redis during
// one.
func (s *Server) checkPromote(ctx context.Context) {
	queues := s.scopes[0].queueHealth.Watch()
	for failures := 0; s.canPromote.Load(); sleep(ctx, dispatcher.ErrorPause) {
		err := s.db.Check(ctx)
		redisErr := err
		if errors.Is(err, asynqdb.ErrLayout) {
			redisErr = nil // Redis is available
		}
		if _ = queues.Note(ctx, redisErr); err == nil || ctx.Err() != nil {
			return
		}
		if redishealth.Unavailable(redisErr) == nil {
			failures++
		}
		if failures > 1 {
			s.canPromote.Store(false)
			s.log.Warn("cannot promote waiting jobs: asynq's polls run them, and they start late", "reason", err)
			return
		}
	}
}
