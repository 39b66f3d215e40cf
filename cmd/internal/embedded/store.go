// Package embedded runs a Redis for a config without one. Its data is in the folder .headgate beside
// the config file. If redis-server is installed, the Redis is a child process. If not, the Redis is
// a miniredis within this process. Both listen at a Unix socket in the folder.
package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

const FolderName = ".headgate" // the name of the folder that holds the data

var (
	answerTimeout   = 10 * time.Second   // bounds the wait for an answer of another process's server, and for the end of our own
	checkInterval   = time.Second        // of checks that the folder exists, and the shortest between two saves of a miniredis
	childAttributes *syscall.SysProcAttr // attributes of the process redis-server; nil except on Linux
)

// pingInterval is the pause between two attempts to reach the server.
const pingInterval = 10 * time.Millisecond

// A Store is the Redis of one folder. The process that holds the folder's lock runs the server.
// When this process ends, another process with an open Store of the folder takes the lock.
type Store struct {
	Socket string // where the server listens

	dir      string
	log      func(line string)
	firstErr chan error // the result of Open: the first error of keepRunning, or nil if the server answers
	cancel   context.CancelFunc
	running  sync.WaitGroup
	isOwn    atomic.Bool // this process runs the server, or did
	closeErr error       // result of Close
}

// Open returns the Store of the folder dir, after the server has answered. If this process runs the
// server, log gets lines about the server.
func Open(ctx context.Context, dir string, log func(line string)) (*Store, error) {
	s := &Store{Socket: filepath.Join(dir, "redis.sock"), dir: dir, log: log, firstErr: make(chan error, 1)}
	if len(s.Socket) > 103 { // the limit of macOS
		return nil, fmt.Errorf("the path %s is too long for a Unix socket: start the command in the folder of the config file", s.Socket)
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.cancel = cancel
	s.running.Go(func() { s.closeErr = s.keepRunning(run) })
	rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: s.Socket, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true})
	defer rdb.Close()
	for began := time.Now(); ; {
		ping, cancel := context.WithTimeout(ctx, answerTimeout)
		err := rdb.Ping(ping).Err()
		cancel()
		if err == nil {
			select {
			case s.firstErr <- nil: // keepRunning logs each error while the channel is full
			default:
			}
			return s, nil
		}
		select {
		case err = <-s.firstErr:
			err = fmt.Errorf("no Redis is configured, and none can run with its data in %s: %w; set redis: in the config, or use --redis", dir, err)
		case <-ctx.Done():
			err = ctx.Err() // the user has interrupted the command
		case <-time.After(pingInterval):
			if s.isOwn.Load() || time.Since(began) < answerTimeout { // our own server can take long to load its data
				continue
			}
			pid, _ := os.ReadFile(filepath.Join(dir, "lock"))
			err = fmt.Errorf("process %s runs the Redis in %s, which does not answer: %w", pid, dir, err)
		}
		_ = s.Close()
		return nil, err
	}
}

// Close ends the server if this process runs the server. It returns the server's error, or nil.
func (s *Store) Close() error {
	s.cancel()
	s.running.Wait()
	return s.closeErr
}

// keepRunning runs the server whenever no other process does, and returns the last run's error.
func (s *Store) keepRunning(ctx context.Context) (err error) {
	for ctx.Err() == nil {
		pause := 100 * time.Millisecond
		if err = s.runIfUnlocked(ctx); err != nil && ctx.Err() == nil {
			select {
			case s.firstErr <- err:
			default:
				s.log(err.Error())
			}
			err, pause = nil, checkInterval
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return err
}

// runIfUnlocked runs the server until the server ends or the folder is removed. If another process
// has the lock, it returns nil at once.
func (s *Store) runIfUnlocked(ctx context.Context) error {
	// Chmod fails if another user owns the folder, who could read the data in it.
	if err := errors.Join(os.MkdirAll(s.dir, 0o700), os.Chmod(s.dir, 0o700)); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(s.dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err = lockFile(lock); errors.Is(err, errLocked) {
		return nil
	}
	if err == nil {
		_ = os.Remove(s.Socket) // a crashed server leaves its socket
		err = errors.Join(os.WriteFile(filepath.Join(s.dir, ".gitignore"), []byte("*\n"), 0o600), os.WriteFile(lock.Name(), fmt.Append(nil, os.Getpid()), 0o600))
	}
	if err != nil {
		return err
	}
	s.isOwn.Store(true)
	locked, _ := lock.Stat()
	removed := func() bool {
		current, err := os.Stat(lock.Name())
		return err != nil || !os.SameFile(locked, current)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		for ticks := time.Tick(checkInterval); ctx.Err() == nil && !removed(); {
			<-ticks
		}
	}()
	if err = s.runServer(ctx, lock); removed() {
		return fmt.Errorf("the folder %s was removed with the jobs in it", s.dir)
	}
	return err
}

func (s *Store) runServer(ctx context.Context, lock *os.File) error {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		err = errors.New("there is no redis-server on the PATH")
	} else if text, _ := exec.Command(path, "--version").Output(); !regexp.MustCompile(` v=([7-9]|\d\d)\.`).Match(text) {
		err = fmt.Errorf("%s is older than version 7", path) // cannot read an appendonlydir
	}
	if err == nil {
		s.log("no Redis is configured: redis-server runs for this process, with its data in " + s.dir)
		return s.runChild(ctx, path, lock)
	}
	if _, there := os.Stat(filepath.Join(s.dir, "appendonlydir")); there == nil {
		return fmt.Errorf("the folder has the data of a redis-server, which miniredis cannot read, but %w", err)
	}
	s.log(fmt.Sprintf("no Redis is configured: miniredis runs within this process, and saves to %s each second; a real Redis is faster and safer, but %v", s.dir, err))
	return s.runMini(ctx)
}

func (s *Store) runChild(ctx context.Context, path string, lock *os.File) error {
	logFile := filepath.Join(s.dir, "redis.log")
	_ = os.Remove(logFile) // the log of the previous server
	cmd := exec.CommandContext(ctx, path, "--port", "0", "--logfile", "redis.log", "--unixsocket", "redis.sock", "--unixsocketperm", "700",
		"--save", "", "--appendonly", "yes", "--auto-aof-rewrite-min-size", "4mb", "--maxmemory-policy", "noeviction")
	cmd.Dir, cmd.SysProcAttr, cmd.WaitDelay = s.dir, childAttributes, answerTimeout
	cmd.ExtraFiles = []*os.File{lock} // if redis-server outlives this process, it still holds the lock
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	runtime.LockOSThread() // Linux sends Pdeathsig when the thread that started the child ends
	if err := cmd.Run(); ctx.Err() == nil {
		return fmt.Errorf("redis-server has ended: see %s: %w", logFile, cmp.Or(err, errors.New("exit status 0")))
	}
	return nil
}
