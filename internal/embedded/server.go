// Package embedded runs the Redis of users who configured none: miniredis
// inside of the worker, at a Unix socket that only the same user can connect to,
// so that this user's commands find it. What it holds is saved to a file each
// second and when the worker stops, and another worker that is running, or the
// next one, goes on with it. A crash loses what was not saved yet.
//
// Whoever adds jobs while no worker runs has it within itself for as long.
package embedded

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// A StartError tells why a process could not start the embedded Redis.
type StartError struct{ err error }

func (e *StartError) Error() string { return fmt.Sprintf("start the embedded Redis: %v", e.err) }

// Unwrap is the reason.
func (e *StartError) Unwrap() error { return e.err }

// A Server is the embedded Redis, in this process. Only the user who runs it, and root,
// can connect to it.
type Server struct {
	folder  Folder
	mark    mark
	redis   *miniredis.Miniredis
	socket  *socket
	crashed bool // whether the server before did
	saved   time.Time
	over    bool   // whether it was closed
	closed  func() // ends what goes on beside: keys expire and are saved
	beside  sync.WaitGroup

	// Saving, if not nil, is called when what the server holds can no longer be saved,
	// and with nil when it can again.
	Saving func(error)
}

// start starts an embedded Redis at a Unix socket, with what the last one kept, has
// it prepared before anybody finds it, and writes its address to the folder. Where
// anything fails, it is as if the server had never been started. The caller holds the
// folder's lock, and has found none that runs.
func (f Folder) start(prepare Prepare) (*Server, error) {
	closed := make(chan struct{})
	s := &Server{folder: f, redis: miniredis.NewMiniRedis(), closed: sync.OnceFunc(func() { close(closed) })}
	err := begin(s.redis)
	if err == nil {
		err = s.look()
	}
	if err == nil {
		err = s.listen()
	}
	started := func() {}
	if err == nil && prepare != nil {
		started, err = prepare(s)
	}
	if err == nil {
		err = s.save()
	}
	if err == nil {
		err = s.folder.write(s.mark) // from here on others find it
	}
	if err != nil {
		s.end()
		return nil, &StartError{err}
	}
	started()
	s.beside.Go(func() { s.expire(closed) })
	s.beside.Go(func() { s.saveOn(closed) })
	return s, nil
}

// look takes what an earlier server has left.
func (s *Server) look() (err error) {
	if s.saved, err = restore(s.redis, s.folder.keptFile()); err != nil {
		return err
	}
	_, err = os.Stat(s.folder.addrFile())
	if s.crashed = err == nil; errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (s *Server) listen() (err error) {
	if s.socket, err = s.folder.listen(s.redis); err != nil {
		return err
	}
	s.mark = mark{Addr: s.socket.path, ID: rand.Text()}
	return s.mark.answer(s.redis)
}

// end ends what runs. No command does from here on.
func (s *Server) end() {
	s.closed()
	s.beside.Wait()
	if s.socket != nil {
		s.socket.close()
	}
	s.redis.Close()
}

// Addr is the path of the socket that clients connect to.
func (s *Server) Addr() string { return s.mark.Addr }

// Loss says what the end of the server before has cost: nothing after a stop.
func (s *Server) Loss() string {
	const ended = "the last process with a Redis within it ended without a stop: "
	switch {
	case !s.crashed:
		return ""
	case s.saved.IsZero():
		return ended + "the file with what was in it is gone, and jobs that waited there are lost"
	}
	return ended + "what was in it at " + s.saved.Format(time.DateTime) + " is here, and what came later is lost"
}

// Close ends the server. What it holds is kept in a file of the folder for the
// next one, and its address file is removed. A second Close does nothing.
func (s *Server) Close() error {
	if s.over {
		return nil
	}
	s.over = true
	s.closed()
	s.beside.Wait() // before the lock, which saving takes, too
	unlock, err := s.folder.lock()
	s.end()
	if err != nil {
		return err
	}
	defer unlock()
	if found, err := s.folder.read(); err != nil || found != s.mark {
		return s.replaced()
	}
	if err := s.save(); err != nil {
		return err // The address file tells the next server that something is lost.
	}
	return errors.Join(os.Remove(s.folder.addrFile()), s.socket.remove())
}

// replaced is the end of a server whose address file is that of one that came later, because
// it hung, or is gone, because that one has been closed by now.
func (s *Server) replaced() error {
	if len(s.redis.Keys()) == 0 {
		return nil
	}
	if addr, ok := s.folder.Find(context.Background()); ok {
		return fmt.Errorf("another embedded Redis has come to run meanwhile, at %s", addr)
	}
	return fmt.Errorf("another embedded Redis has come to run meanwhile, and has ended: %s is not this one's any more", s.folder.addrFile())
}

// again calls f until done is closed, first after a pause. It says how long the next one is.
func again(done <-chan struct{}, pause time.Duration, f func() time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case <-done:
			return
		case <-timer.C:
			timer.Reset(f())
		}
	}
}

// How often what a server holds is saved: each second, or so seldom that it takes a
// tenth of the time, which is a matter of tens of thousands of jobs.
const (
	saveOften = time.Second
	saveShare = 10
)

// saveOn saves what the server holds again and again until done is closed. What another
// server has taken over is that one's to save.
func (s *Server) saveOn(done <-chan struct{}) {
	failed := false
	again(done, saveOften, func() time.Duration {
		start := time.Now()
		err := s.saveAgain()
		if failed != (err != nil) && s.Saving != nil {
			s.Saving(err)
		}
		failed = err != nil
		return max(saveOften, saveShare*time.Since(start))
	})
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
	return replace(s.folder.keptFile(), func(to io.Writer) error { return encode(all, to) })
}

// How often keys grow older, which takes the longer the more there are: a
// twentieth of the time, if that is not too seldom for the shortest that live.
const (
	expireOften  = 50 * time.Millisecond
	expireSeldom = 250 * time.Millisecond
	expireShare  = 20
)

// expire has keys expire until done is closed, up to expireSeldom early
// or late. With its own ClockTTL miniredis would look at all keys for each
// command, so that a command costs more the more jobs there are.
func (s *Server) expire(done <-chan struct{}) {
	last := time.Now()
	again(done, expireOften, func() time.Duration {
		now := time.Now()
		s.socket.alone(func() { s.redis.FastForward(now.Sub(last)) })
		last = now
		return min(max(expireOften, expireShare*time.Since(now)), expireSeldom)
	})
}

// A Host connects a process to the embedded Redis of a folder, whichever process
// runs it: another, as long as one does, and otherwise this one. So when the one
// that runs it stops, another takes over with its next command.
type Host struct {
	folder  Folder
	prepare Prepare

	mu     sync.Mutex
	server *Server // nil unless this process runs it
	closed bool
}

// Prepare makes a server ready that nobody can find yet. Once it can be found,
// started is called. Neither may use the server's host.
type Prepare func(*Server) (started func(), err error)

// NewHost is the host of a process. It has each server prepared that it starts, unless
// prepare is nil.
func (f Folder) NewHost(prepare Prepare) *Host {
	return &Host{folder: f, prepare: prepare}
}

// Dial connects to the embedded Redis, and starts it where none is running. Its
// form is that of a Redis client's dialer; network and address do not matter.
func (h *Host) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	addr, err := h.Addr(ctx)
	if err != nil {
		return nil, err
	}
	return Dial(ctx, addr)
}

// Addr is where the embedded Redis is, which is started where none is running. If that
// fails the error is a [*StartError].
func (h *Host) Addr(ctx context.Context) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.server != nil {
		return h.server.Addr(), nil
	}
	if addr, ok := h.folder.Find(ctx); ok {
		return addr, nil
	}
	if h.closed {
		return "", errors.New("the embedded Redis has stopped")
	}
	unlock, err := h.folder.lock()
	if err != nil {
		return "", &StartError{err}
	}
	defer unlock()
	if addr, ok := h.folder.Find(context.WithoutCancel(ctx)); ok { // another was quicker
		return addr, nil
	}
	if h.server, err = h.folder.start(h.prepare); err != nil {
		return "", err
	}
	return h.server.Addr(), nil
}

// Runs reports whether this process runs the embedded Redis.
func (h *Host) Runs() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.server != nil
}

// Close ends the server if this process runs it; what it holds is kept for the
// next one. Nothing can be dialled afterwards but the server of another process.
func (h *Host) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	if h.server == nil {
		return nil
	}
	server := h.server
	h.server = nil
	return server.Close()
}
