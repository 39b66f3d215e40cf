// Package embedded runs the Redis of a config that names none, with its data in the folder
// .headgate beside the config file. If redis-server is installed, it is a child process at a Unix
// socket. If not, miniredis runs within this process, on loopback and with a password.
package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/headgate/headgate/internal/filelock"
)

// FolderName is the name of the folder that holds the data.
const FolderName = ".headgate"

// A Store is the Redis of one folder, as one process sees it. The process that holds the
// folder's lock runs the server, and all processes connect to that server. When the server's
// process ends, the next process that connects takes the lock.
type Store struct {
	Dir string
	Say func(line string) // is told which server was started, and what goes wrong with it

	mu     sync.Mutex
	closed bool
	lock   *os.File
	redis  *server // nil unless this process runs it
}

// A server is a Redis that this process runs.
type server struct {
	name    string
	ended   chan struct{} // closed when it has ended by itself
	tend    func() error  // saves its data, about each second
	stop    func() error  // ends it and saves its data
	unsaved error         // of the last tend
}

// patience is how long a server may take to answer.
const patience = 10 * time.Second

// Dial connects to the server of the folder, and starts it if none runs. It is a dialer for
// go-redis; the network and the address do not matter.
func (s *Store) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	for start := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if err := s.serve(); err != nil {
			return nil, err
		}
		conn, err := s.connect(ctx)
		if err == nil {
			return conn, nil
		}
		if ctx.Err() != nil || time.Since(start) > patience {
			pid, _ := os.ReadFile(s.path("lock"))
			return nil, fmt.Errorf("process %s runs the Redis in %s, which does not answer: %w", pid, s.Dir, cmp.Or(ctx.Err(), err))
		}
	}
}

func (s *Store) path(name string) string { return filepath.Join(s.Dir, name) }

// connect returns a connection at which the server has answered: a server that is about to end
// accepts connections that it never serves.
func (s *Store) connect(ctx context.Context) (net.Conn, error) {
	network, address, hello, want := "unix", s.path("redis.sock"), "PING\r\n", "+PONG\r\n"
	if text, err := os.ReadFile(s.path("address")); err == nil { // of miniredis
		host, password, _ := strings.Cut(string(text), " ")
		network, address, want = "tcp", host, "+OK\r\n"
		hello = fmt.Sprintf("*2\r\n$4\r\nAUTH\r\n$%d\r\n%s\r\n", len(password), password)
	}
	conn, err := (&net.Dialer{Timeout: patience}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(patience))
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	answer := make([]byte, len(want))
	if _, err = io.WriteString(conn, hello); err == nil {
		_, err = io.ReadFull(conn, answer)
	}
	if err == nil && string(answer) == want {
		return conn, conn.SetDeadline(time.Time{})
	}
	_ = conn.Close()
	return nil, cmp.Or(err, fmt.Errorf("it answers %q", answer))
}

// serve makes this process run the server, unless another process does.
func (s *Store) serve() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	if s.redis != nil {
		select {
		case <-s.redis.ended:
			s.release() // the next Dial, with which go-redis tries again, starts another
			return fmt.Errorf("redis-server has ended: %s says why", s.path("redis.log"))
		default:
			return nil
		}
	}
	err := s.take()
	if errors.Is(err, syscall.EWOULDBLOCK) { // another process has the lock
		return nil
	}
	if err == nil {
		s.redis, err = start(s.Dir, s.lock)
	}
	if err != nil {
		s.release()
		return fmt.Errorf("no Redis is configured, and none can keep its data in %s: %w; name a Redis as redis: in the config, or with --redis", s.Dir, err)
	}
	s.Say("no Redis is configured: " + s.redis.name)
	go func(redis *server) {
		for s.check(redis) {
			time.Sleep(time.Second)
		}
	}(s.redis)
	return nil
}

// take takes the folder's lock.
func (s *Store) take() (err error) {
	// Only the owner of a folder can change its mode. A folder in /tmp may be another user's trap.
	if err = cmp.Or(os.MkdirAll(s.Dir, 0o700), os.Chmod(s.Dir, 0o700)); err != nil {
		return err
	}
	if s.lock, err = os.OpenFile(s.path("lock"), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return err
	}
	if err = filelock.Lock(s.lock); err != nil {
		s.release()
		return err
	}
	_ = os.Remove(s.path("address")) // a crash leaves it
	return cmp.Or(os.WriteFile(s.path(".gitignore"), []byte("*\n"), 0o600), os.WriteFile(s.lock.Name(), fmt.Append(nil, os.Getpid()), 0o600))
}

func (s *Store) release() {
	_ = s.lock.Close()
	s.lock, s.redis = nil, nil
}

// check saves the data. If the folder was removed, other processes do not find this process's
// server, so check ends it, and this process connects to the next.
func (s *Store) check(redis *server) (goOn bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.redis != redis {
		return false
	}
	if err := s.found(); err != nil {
		s.Say(err.Error())
		_ = redis.stop()
		s.release()
		return false
	}
	err := redis.tend()
	if err != nil && redis.unsaved == nil {
		s.Say(fmt.Sprintf("saving the jobs in %s: %v", s.Dir, err))
	}
	redis.unsaved = err
	return true
}

// Close ends the server if this process runs it. Its data stays in the folder.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.redis == nil {
		return nil
	}
	defer s.release()
	found := s.found()
	if err := s.redis.stop(); err != nil && found == nil {
		return fmt.Errorf("the jobs in %s are those that were saved last: %w", s.Dir, err)
	}
	return found
}

// found returns an error if the lock is no longer in the folder.
func (s *Store) found() error {
	own, _ := s.lock.Stat()
	if there, err := os.Stat(s.lock.Name()); err != nil || !os.SameFile(own, there) {
		return fmt.Errorf("the folder %s was removed with the jobs in it", s.Dir)
	}
	return nil
}
