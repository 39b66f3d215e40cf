package scheduler

import (
	"context"
	"maps"
	"slices"
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

// noteOthers logs which limits the config of another process has defined otherwise
// since this one did: of two versions of one config that run at a time the one read
// last holds. Each such change is logged once: said is what was, by limit.
func (s *Server) noteOthers(ctx context.Context, said map[string]string) {
	ours := s.limits.words()
	theirs, err := s.store.Defined(ctx, slices.Sorted(maps.Keys(ours)))
	if err != nil {
		return // who asks for permits tells of an outage
	}
	for name, words := range ours {
		other := theirs[name]
		switch {
		case other == "" || other == words: // it is ours, or somebody deleted it
			delete(said, name)
		case other != said[name]:
			said[name] = other
			s.log.Warn("another process's config says otherwise of a limit, and holds: it was read later",
				"limit", name, "now", other, "here", words)
		}
	}
}
