package scheduler

import "github.com/headgate/headgate/internal/stats"

// setDrained makes the server take no more jobs, or take jobs again, because an operator wants so.
// Running jobs continue. Fetched jobs that have not started go back to their queues. All else goes on: the
// server grants permits to jobs that other servers run, and repairs queues.
func (s *Server) setDrained(drained bool) {
	s.markers.setPaused(drained)
	s.prefetcher.setPaused(drained)
	s.isDrained.Store(drained)
	for _, c := range s.scopes {
		offer(c.slots.due)
		c.stats.ReportSoon()
	}
	if drained {
		s.log.Info("drained: takes no more jobs until it is resumed or restarted", "running", s.inFlight.occupiedSlots())
		return
	}
	s.log.Info("no longer drained: takes jobs again")
}

// state returns what the server does about new jobs.
func (s *Server) state() stats.State {
	switch {
	case s.markers.stopped.Err() != nil:
		return stats.StateStopping
	case !s.isDrained.Load():
		return stats.StateRunning
	case s.inFlight.occupiedSlots() > 0:
		return stats.StateDraining
	}
	return stats.StateDrained
}
