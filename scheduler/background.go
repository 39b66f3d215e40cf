package scheduler

import (
	"context"
	"errors"
	"sync"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/dispatcher"
	"github.com/headgate/headgate/internal/redishealth"
)

// startBackground starts the background goroutines. It reports false if they were started before.
func (s *Server) startBackground() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop != nil {
		return false
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.background.Go(func() { s.dispatch(ctx) })
	s.background.Go(func() { s.recoverJobs(ctx) })
	for _, c := range s.scopes {
		s.background.Go(func() { c.keepScope(ctx) })
		s.background.Go(func() { c.watchRules(ctx) })
		s.background.Go(func() { c.tellSlots(ctx) })
		c.stopStats = c.stats.Start()
	}
	return true
}

// writeStats writes the stats since the last write, and stops the recorders.
func (s *Server) writeStats() {
	for _, c := range s.scopes {
		c.stopStats()
	}
}

// stopBackground stops the background goroutines for good, so that another process can become leader
// at once. The returned channel is closed when all goroutines have ended.
func (s *Server) stopBackground() (ended <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	done := make(chan struct{})
	if s.stop == nil {
		close(done)
		return done
	}
	s.stop()
	go func() {
		s.background.Wait()
		close(done)
	}()
	return done
}

// dispatch runs the dispatchers of all scopes until the context ends. It first promotes a test job. If
// that fails, it runs no dispatcher, and asynq's polls bring denied jobs back.
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
// retries while Redis is unavailable. Two checks must fail, because Redis may be flushed during the
// first one.
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
