package scheduler

import (
	"context"
	"errors"
	"sync"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/dispatcher"
	"github.com/headgate/headgate/internal/redishealth"
)

// startBackground starts the server's background goroutines, and reports false if they run already.
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
		c.stopStats = c.stats.Start()
	}
	return true
}

// writeStats writes what the server has counted since the last write, and ends the stats.
func (s *Server) writeStats() {
	for _, c := range s.scopes {
		c.stopStats()
	}
}

// stopBackground lets another process take over at once. The returned channel is closed when all
// goroutines have ended. A server that was shut down does not start them again.
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

// dispatch gives turns in all scopes until the context ends. It begins only once a job of its own
// could be promoted: if that fails no job is granted its permits, and jobs come back by asynq's
// polls.
func (s *Server) dispatch(ctx context.Context) {
	err := s.checkPromote(ctx)
	for _, c := range s.scopes {
		c.stats.PollingFallback.Store(!s.canPromote.Load())
	}
	if err != nil || !s.canPromote.Load() {
		return
	}
	s.RulesChanged() // jobs may wait by the rules of a server that ran before
	var scopes sync.WaitGroup
	for _, c := range s.scopes {
		scopes.Go(func() { c.dispatch(ctx) })
	}
	scopes.Wait()
}

// checkPromote turns promoting off if asynq's layout is another than it knows. It waits as long as
// Redis cannot be asked, and asks twice, because Redis may have been flushed meanwhile. It returns
// an error only if the context ended.
func (s *Server) checkPromote(ctx context.Context) error {
	queues := s.scopes[0].queueHealth.Watch()
	for strange := 0; s.canPromote.Load(); {
		err := s.db.Check(ctx)
		answer := err
		if errors.Is(err, asynqdb.ErrLayout) {
			answer = nil // Redis can be used
		}
		if _ = queues.Note(ctx, answer); err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		if redishealth.Unavailable(answer) == nil {
			strange++
		}
		if strange > 1 {
			s.canPromote.Store(false)
			s.log.Warn("denied jobs are left to asynq's own polls and come late", "reason", err)
			return nil
		}
		sleep(ctx, dispatcher.ErrorPause)
	}
	return ctx.Err()
}
