package scheduler

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/throttle"
)

// limits are those that the server keeps defined.
type limits struct {
	mu    sync.Mutex
	list  []throttle.Limit
	known bool // whether they have been defined
}

func (l *limits) set(list []throttle.Limit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list, l.known = slices.Clone(list), false
}

// Define replaces the rules' Limits of a server that runs, as when its config
// file has changed. On an error the old ones stay.
func (s *Server) Define(ctx context.Context, limits ...throttle.Limit) error {
	if err := s.limiter.Define(ctx, limits...); err != nil {
		return err
	}
	s.limits.mu.Lock()
	defer s.limits.mu.Unlock()
	s.limits.list, s.limits.known = slices.Clone(limits), true
	return nil
}

// define makes the limits known unless that has been done.
func (s *Server) define(ctx context.Context) error {
	s.limits.mu.Lock()
	defer s.limits.mu.Unlock()
	if s.limits.known || len(s.limits.list) == 0 {
		return nil
	}
	began := time.Now()
	err := s.limiter.Define(ctx, s.limits.list...)
	s.noteLimiter(ctx, began, err)
	s.limits.known = err == nil
	return err
}

// defineAgain makes the limits known to a limiter that has lost one of them. It
// reports whether the limit is among them.
func (s *Server) defineAgain(ctx context.Context, limit string) (bool, error) {
	s.limits.mu.Lock()
	if !slices.ContainsFunc(s.limits.list, func(l throttle.Limit) bool { return l.Name == limit }) {
		s.limits.mu.Unlock()
		return false, nil
	}
	s.limits.known = false
	s.limits.mu.Unlock()
	s.log.Warn("the limiter lost a limit; all are defined again", "limit", limit)
	return true, s.define(ctx)
}

// noteLimiter tells the limiter's outage of a call. Another error than
// ErrUnavailable is an answer.
func (s *Server) noteLimiter(ctx context.Context, began time.Time, err error) {
	if !errors.Is(err, throttle.ErrUnavailable) {
		err = nil
	}
	s.limiterOutage.note(ctx, began, err)
}
