package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/dispatcher"
	"github.com/headgate/headgate/internal/redishealth"
)

// beginGiving reports whether it began: a running server is not begun twice.
func (s *Server) startBackground() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop != nil {
		return false
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.background.Go(func() { s.dispatch(ctx) })
	s.background.Go(func() { s.keepScope(ctx) })
	s.background.Go(func() { s.recoverJobs(ctx) })
	s.background.Go(func() { s.watchRules(ctx) })
	s.written = s.history.Start()
	return true
}

// endGiving lets another process take over at once. What it returns is closed when the round
// that is underway has ended. stop stays set: a server that was shut down begins no more.
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

// giveTurns gives turns in the limiter's scope until the context ends. It begins
// only once a job of its own could be promoted: where that fails nobody is called,
// and jobs come back by asynq's polls.
func (s *Server) dispatch(ctx context.Context) {
	err := s.checkPromote(ctx)
	s.history.PollingFallback.Store(!s.promotes.Load())
	if err != nil || !s.promotes.Load() {
		return
	}
	s.RulesChanged() // who waits may do so by those of a server that ran before
	dispatcher.Run(ctx, dispatcher.Config{
		Waits: s.limiter, DB: s.db, Log: s.log, Limits: s.limiterHealth, Queues: s.queueHealth,
		ReconcileInterval: s.passes, MaxHeartbeat: s.quiet, History: s.history, SlotsRequested: s.redis.slots.wanted,
	})
}

// checkPromote turns promoting off if asynq's layout is another than it knows.
// It waits for as long as Redis cannot be asked, and asks twice: somebody may
// have flushed Redis meanwhile. It returns an error only if the context ended.
func (s *Server) checkPromote(ctx context.Context) error {
	queues := s.queueHealth.Watch()
	for strange := 0; s.promotes.Load(); {
		err := s.db.Check(ctx)
		answer := err
		if errors.Is(err, asynqdb.ErrLayout) {
			answer = nil // Redis can be used
		}
		if _ = queues.Note(ctx, answer); err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		if redishealth.Unreachable(answer) == nil {
			strange++
		}
		if strange > 1 {
			s.promotes.Store(false)
			s.log.Warn("denied jobs are left to asynq's own polls and come late", "reason", err)
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(dispatcher.ErrorPause):
		}
	}
	return ctx.Err()
}
