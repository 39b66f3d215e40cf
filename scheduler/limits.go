package scheduler

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/throttle"
)

// limits are those that the server keeps defined. They are told to the limiter at
// the start, or, where it cannot be reached then, before the first job that asks it.
// Afterwards it is the limiter that defines them again if its Redis has lost them.
//
// The version tells a list that was replaced while it was being told: then the new
// one must be told as well.
type limits struct {
	mu      sync.Mutex
	list    []throttle.Limit
	version int  // of the list
	known   bool // whether the limiter has been told
}

// set replaces the list. What is known need not be told to the limiter.
func (l *limits) set(list []throttle.Limit, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list, l.known = slices.Clone(list), known
	l.version++
}

// unknown returns what the limiter must be told, if anything.
func (l *limits) unknown() (list []throttle.Limit, version int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known {
		return nil, 0
	}
	return l.list, l.version
}

// told notes that the limiter knows a version of the list.
func (l *limits) told(version int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known = l.known || l.version == version
}

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

// words returns the limits of which the limiter has been told, by name in the words
// that it was told them in; none while it has not been.
func (l *limits) words() map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	words := map[string]string{}
	for i := 0; l.known && i < len(l.list); i++ {
		limit := l.list[i]
		limit.Paused = false
		words[limit.Name] = limit.String()
	}
	return words
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
