package embedded

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"

	"github.com/alicebob/miniredis/v2"
)

// ErrRunning says that the user's embedded Redis runs already. The error that
// wraps it is a [*RunningError], which has the address.
var ErrRunning = errors.New("an embedded Redis is already running")

// A RunningError tells where the embedded Redis is that runs already.
type RunningError struct {
	Addr string // host and port
}

func (e *RunningError) Error() string { return fmt.Sprintf("%v at %s", ErrRunning, e.Addr) }

// Unwrap makes errors.Is find [ErrRunning].
func (e *RunningError) Unwrap() error { return ErrRunning }

// A Server is the embedded Redis, in this process. As with any Redis without a
// password, every user of the machine can connect to it.
type Server struct {
	folder Folder
	mark   mark
	redis  *miniredis.Miniredis
}

// Start starts the embedded Redis of the [Default] folder.
func Start() (*Server, error) {
	folder, err := Default()
	if err != nil {
		return nil, err
	}
	return folder.Start()
}

// Start starts an embedded Redis on a free loopback port and writes its address
// to the folder. Where one runs already the error is a [*RunningError].
func (f Folder) Start() (*Server, error) {
	unlock, err := f.lock()
	if err != nil {
		return nil, fmt.Errorf("start the embedded Redis: %w", err)
	}
	defer unlock()
	if addr, ok := f.Find(context.Background()); ok {
		return nil, &RunningError{Addr: addr}
	}

	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	if err := m.StartAddr("127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("start the embedded Redis: %w", err)
	}
	s := &Server{folder: f, mark: mark{Addr: m.Addr(), ID: rand.Text()}, redis: m}
	if err := errors.Join(s.mark.answer(m), f.write(s.mark)); err != nil {
		m.Close()
		return nil, fmt.Errorf("start the embedded Redis: %w", err)
	}
	return s, nil
}

// Addr is the host and port that clients connect to.
func (s *Server) Addr() string { return s.mark.Addr }

// Close ends the server, and with it all that it holds, and removes the address
// file unless that names another server by now. A second Close does nothing.
func (s *Server) Close() error {
	unlock, err := s.folder.lock()
	if err != nil {
		s.redis.Close()
		return err
	}
	defer unlock()
	s.redis.Close()
	if found, err := s.folder.read(); err != nil || found != s.mark {
		return nil // The file is gone, or of a server that came later.
	}
	return os.Remove(s.folder.addrFile())
}
