package scheduler

import (
	"context"
	"time"

	"github.com/headgate/headgate/throttle"
)

// Define replaces the rules' Limits of a server, as when its config file has
// changed: a round trip for each limit. A limit that is no longer among them stays
// defined until somebody deletes it. On an error the old ones stay the server's; an
// error that wraps throttle.ErrUnavailable leaves open which of the new ones the
// limiter has taken in. It may be called at any time, from any goroutine.
func (s *Server) Define(ctx context.Context, limits ...throttle.Limit) error {
	if err := s.limiter.Define(ctx, limits...); err != nil {
		return err
	}
	s.limits.set(limits, true)
	return nil
}

// define tells the limiter the limits that it does not know. It is called before
// every Acquire, and costs a lock once they are told. Workers that ask together may
// tell them together, which does no harm.
func (s *Server) define(ctx context.Context) error {
	list, version := s.limits.unknown()
	if len(list) == 0 {
		return nil
	}
	began := time.Now()
	err := s.limiter.Define(ctx, list...)
	s.noteLimiter(ctx, began, err)
	if err == nil {
		s.limits.told(version)
	}
	return err
}
