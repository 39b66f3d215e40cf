// Package embedded runs the Redis of a config that names none. Its data is in the folder .headgate
// beside the config file. If redis-server is installed, it runs as a child process and listens at
// a Unix socket in that folder. If not, miniredis runs within this process and listens on
// loopback, with a password in a file that only its user can read.
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
	dir string
	say func(line string)

	mu      sync.Mutex
	closed  bool
	lock    *os.File // nil unless this process holds the lock
	redis   server   // nil unless this process runs the server
	unsaved error    // why the last save failed
}

// server is a Redis that this process runs.
type server interface {
	failed() error        // why it has ended, or nil while it runs
	save() error          // writes its data
	stop(keep bool) error // ends it, and writes its data before if keep is true
}

// New is the store of a folder, which the first Dial creates. say is told what a person should
// know: which server was started, and what goes wrong with it. It may be nil.
func New(dir string, say func(line string)) (*Store, error) {
	dir, err := filepath.Abs(dir)
	if say == nil {
		say = func(string) {}
	}
	return &Store{dir: dir, say: say}, err
}

func (s *Store) path(name string) string { return filepath.Join(s.dir, name) }

// patience is how long a server may take to answer, unless it says that it loads its data.
const patience = 10 * time.Second

var errLoading = errors.New("it is loading its data")

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
		if errors.Is(err, errLoading) {
			start = time.Now()
		}
		if ctx.Err() != nil || time.Since(start) > patience {
			pid, _ := os.ReadFile(s.path(lockFile))
			return nil, fmt.Errorf("process %s runs the Redis in %s, which does not answer: %w", pid, s.dir, cmp.Or(ctx.Err(), err))
		}
	}
}

const (
	lockFile    = "lock"       // the process that runs the server locks it and writes its id into it
	socketFile  = "redis.sock" // of redis-server
	addressFile = "address"    // of miniredis, with its password
)

// connect gives a connection at which the server has answered: a server that is about to end
// accepts connections that it never serves.
func (s *Store) connect(ctx context.Context) (conn net.Conn, err error) {
	network, address, hello := "unix", s.path(socketFile), "PING\r\n"
	if text, err := os.ReadFile(s.path(addressFile)); err == nil {
		var password string
		network = "tcp"
		address, password, _ = strings.Cut(string(text), " ")
		hello = fmt.Sprintf("*2\r\n$4\r\nAUTH\r\n$%d\r\n%s\r\n", len(password), password)
	}
	if conn, err = (&net.Dialer{Timeout: patience}).DialContext(ctx, network, address); err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(patience))
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	answer := make([]byte, len("+OK\r\n"))
	if _, err = io.WriteString(conn, hello); err == nil {
		_, err = io.ReadFull(conn, answer)
	}
	switch string(answer) {
	case "+OK\r\n":
	case "+PONG":
		_, err = io.ReadFull(conn, answer[:2]) // the line break
	default:
		err = cmp.Or(err, errLoading)
	}
	if !stop() || err != nil {
		_ = conn.Close()
		return nil, cmp.Or(ctx.Err(), err)
	}
	return conn, conn.SetDeadline(time.Time{})
}

// serve makes this process run the server, unless another process does.
func (s *Store) serve() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	if err := s.take(); err != nil {
		return fmt.Errorf("no Redis is configured, and none can keep its data in %s: %w; name a Redis as redis: in the config, or with --redis", s.dir, err)
	}
	if s.lock == nil { // another process has it
		return nil
	}
	if s.redis == nil {
		_ = os.Remove(s.path(addressFile)) // a crash leaves it
		redis, what, err := start(s.dir, s.lock)
		if err == nil {
			s.redis = redis
			s.say("no Redis is configured: " + what)
		}
		return err
	}
	err := s.redis.failed()
	if err != nil {
		s.redis = nil // the next Dial, with which go-redis tries again, starts another
	}
	return err
}

// take takes the folder's lock unless another process has it.
func (s *Store) take() error {
	if s.lock != nil {
		return nil
	}
	// Only the owner of a folder can change its mode. A folder in /tmp may be another user's trap.
	if err := cmp.Or(os.MkdirAll(s.dir, 0o700), os.Chmod(s.dir, 0o700)); err != nil {
		return err
	}
	lock, err := os.OpenFile(s.path(lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if err := filelock.Lock(lock); err != nil {
		_ = lock.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil
		}
		return err
	}
	s.lock = lock
	go s.watch()
	return cmp.Or(os.WriteFile(s.path(".gitignore"), []byte("*\n"), 0o600), os.WriteFile(lock.Name(), fmt.Append(nil, os.Getpid()), 0o600))
}

// watch calls check each second or, if that takes long, a tenth of the time.
func (s *Store) watch() {
	for took := time.Duration(0); ; {
		time.Sleep(max(time.Second, 10*took))
		start := time.Now()
		if !s.check() {
			return
		}
		took = time.Since(start)
	}
}

// check saves the data. If the folder was removed, other processes do not find this process's
// server, so check ends it, and this process connects to the next.
func (s *Store) check() (goOn bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lock == nil {
		return false
	}
	if !s.isFound() {
		s.say("the folder " + s.dir + " was removed with the jobs in it")
		_ = s.giveUp(false)
		return false
	}
	if s.redis != nil {
		err := s.redis.save()
		if (err == nil) != (s.unsaved == nil) {
			s.say(fmt.Sprintf("saving the jobs in %s: %v", s.dir, cmp.Or(err, errors.New("it works again"))))
		}
		s.unsaved = err
	}
	return true
}

// isFound reports whether the lock is still in the folder.
func (s *Store) isFound() bool {
	own, err := s.lock.Stat()
	there, missing := os.Stat(s.lock.Name())
	return err == nil && missing == nil && os.SameFile(own, there)
}

func (s *Store) giveUp(keep bool) (err error) {
	if s.redis != nil {
		err = s.redis.stop(keep)
	}
	_ = s.lock.Close()
	s.lock, s.redis = nil, nil
	return err
}

// Close ends the server if this process runs it. Its data stays in the folder.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.lock == nil {
		return nil
	}
	found := s.isFound()
	err := s.giveUp(found)
	if !found {
		return fmt.Errorf("the folder %s was removed with the jobs in it", s.dir)
	}
	if err != nil {
		return fmt.Errorf("the jobs in %s are those that were saved last: %w", s.dir, err)
	}
	return nil
}
