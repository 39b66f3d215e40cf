package embedded

import "time"

// How often what a server holds is saved: each second, or so seldom that it takes a
// tenth of the time, which is a matter of tens of thousands of jobs.
const (
	saveOften = time.Second
	saveShare = 10
)

// saveOn saves what the server holds again and again until done is closed. What another
// server has taken over is that one's to save.
func (s *Server) saveOn(done <-chan struct{}) {
	timer := time.NewTimer(saveOften)
	defer timer.Stop()
	failed := false
	for {
		select {
		case <-done:
			return
		case <-timer.C:
		}
		start := time.Now()
		err := s.saveAgain()
		if failed != (err != nil) && s.Saving != nil {
			s.Saving(err)
		}
		failed = err != nil
		timer.Reset(max(saveOften, saveShare*time.Since(start)))
	}
}

// saveAgain is save, for a server that runs and may have hung.
func (s *Server) saveAgain() error {
	unlock, err := s.folder.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if found, err := s.folder.read(); err != nil || found != s.mark {
		return s.replaced()
	}
	return s.save()
}

// save replaces what is kept by what the server holds. The caller holds the folder's lock.
func (s *Server) save() error {
	var all []kept
	var err error
	s.socket.alone(func() { all, err = readAll(s.redis) })
	if err != nil {
		return err
	}
	return keep(all, s.folder.keptFile())
}
