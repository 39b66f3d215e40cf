// Package embedded runs the Redis of a config that names none, with its data in the folder
// .headgate beside the config file. If redis-server is installed, it runs as a child process. If
// not, miniredis runs within this process. Both listen at a Unix socket in that folder.
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
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	FolderName    = ".headgate"      // the name of the folder that holds the data
	answerTimeout = 10 * time.Second // bounds the time that a server needs to start, to answer and to end
)

var (
	checkInterval   = time.Second        // time between two checks of the folder, and the shortest between two saves of a miniredis
	childAttributes *syscall.SysProcAttr // attributes of the process redis-server; nil except on Linux
)

// A Store is the Redis of one folder. The process that holds the folder's lock runs the server.
// When that process ends, another that has the Store open takes the lock.
type Store struct {
	Socket string // where the server listens

	dir      string
	log      func(line string)
	firstErr chan error // gets the first error; later errors are logged
	cancel   context.CancelFunc
	running  sync.WaitGroup
	closeErr error // why the server ended badly at Close; nil if it ended well
}

// Open returns the Store of the folder dir, after the server has answered. Until Close, log gets
// lines about the server if this process runs it.
func Open(ctx context.Context, dir string, log func(line string)) (*Store, error) {
	s := &Store{Socket: filepath.Join(dir, "redis.sock"), dir: dir, log: log, firstErr: make(chan error, 1)}
	if len(s.Socket) > 103 { // some systems allow no longer path of a socket
		return nil, fmt.Errorf("the path %s is too long for a Unix socket: start the command in the folder of the config file", s.Socket)
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.cancel = cancel
	s.running.Go(func() { s.closeErr = s.keepRunning(run) })
	rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: s.Socket, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true})
	defer rdb.Close()
	ctx, cancel = context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	for {
		err := rdb.Ping(ctx).Err()
		if err == nil {
			select {
			case s.firstErr <- nil: // fills the channel, so that later errors are logged
			default:
			}
			return s, nil
		}
		select {
		case err = <-s.firstErr:
			err = fmt.Errorf("no Redis is configured, and none can keep its data in %s: %w; name a Redis as redis: in the config, or with --redis", dir, err)
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				err = ctx.Err() // an interrupt, and no error of the server
				break
			}
			pid, _ := os.ReadFile(filepath.Join(dir, "lock"))
			err = fmt.Errorf("process %s runs the Redis in %s, which does not answer: %w", pid, dir, err)
		case <-time.After(10 * time.Millisecond):
			continue
		}
		_ = s.Close()
		return nil, err
	}
}

// Close ends the server if this process runs it. Its data stays in the folder.
func (s *Store) Close() error {
	s.cancel()
	s.running.Wait()
	return s.closeErr
}

// keep runs the server whenever no other process does, until ctx ends. It returns the last run's error.
func (s *Store) keepRunning(ctx context.Context) (err error) {
	for ctx.Err() == nil {
		pause := 100 * time.Millisecond
		if err = s.runIfUnlocked(ctx); err != nil && ctx.Err() == nil {
			select {
			case s.firstErr <- err:
			default:
				s.log(err.Error())
			}
			err, pause = nil, checkInterval // a longer pause, because the server may end as soon as it starts
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return err
}

// serve runs the server until it ends or the folder is removed. If another process runs it, serve returns nil.
func (s *Store) runIfUnlocked(ctx context.Context) error {
	// Chmod fails if another user has made the folder as a trap, because only the owner can change a mode.
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
	own, _ := lock.Stat()
	removed := func() bool {
		there, err := os.Stat(lock.Name())
		return err != nil || !os.SameFile(own, there)
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

// run runs a server with the data of the folder until ctx ends.
func (s *Store) runServer(ctx context.Context, lock *os.File) error {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		err = errors.New("there is no redis-server on the PATH")
	} else if text, _ := exec.Command(path, "--version").Output(); !regexp.MustCompile(` v=([7-9]|\d\d)\.`).Match(text) {
		err = fmt.Errorf("%s is older than version 7", path) // before version 7, a redis-server cannot read an appendonlydir
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
	log := filepath.Join(s.dir, "redis.log")
	_ = os.Remove(log) // the log of the previous server
	cmd := exec.CommandContext(ctx, path, "--port", "0", "--logfile", "redis.log", "--unixsocket", "redis.sock", "--unixsocketperm", "700",
		"--save", "", "--appendonly", "yes", "--auto-aof-rewrite-min-size", "4mb", "--maxmemory-policy", "noeviction")
	cmd.Dir, cmd.SysProcAttr, cmd.WaitDelay = s.dir, childAttributes, answerTimeout
	cmd.ExtraFiles = []*os.File{lock} // the child holds the lock, too, because it may outlive this process
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	runtime.LockOSThread() // because Linux sends Pdeathsig when the thread that started the child ends
	if err := cmd.Run(); ctx.Err() == nil {
		return fmt.Errorf("redis-server has ended: see %s: %w", log, cmp.Or(err, errors.New("exit status 0")))
	}
	return nil
}
