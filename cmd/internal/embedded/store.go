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
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// FolderName is the name of the folder that holds the data.
const FolderName = ".headgate"

// answerTimeout bounds the time that a server needs to start, to answer and to end.
const answerTimeout = 10 * time.Second

var tick = time.Second // between two checks, and between two saves of a miniredis

// A Store is the Redis of one folder. The process that holds the folder's lock runs the server.
// When that process ends, another that has the Store open takes the lock.
type Store struct {
	Socket string // where the server listens

	dir     string
	temp    string // holds a symbolic link that makes Socket shorter, or is empty
	log     func(line string)
	failed  chan error // gets the first error; later errors are logged
	cancel  context.CancelFunc
	running sync.WaitGroup
	err     error // why the server could not be closed
}

// Open returns the Store of a folder, whose server answers. Until Close, log gets lines about the
// server that this process runs.
func Open(ctx context.Context, dir string, log func(line string)) (*Store, error) {
	s := &Store{Socket: filepath.Join(dir, "redis.sock"), dir: dir, log: log, failed: make(chan error, 1)}
	if len(dir) > 90 { // the path of a socket has at most 103 bytes on some systems
		absolute, _ := filepath.Abs(dir)
		temp, err := os.MkdirTemp("", "headgate")
		if err == nil {
			err = os.Symlink(absolute, filepath.Join(temp, "link"))
		}
		if err != nil {
			return nil, err
		}
		s.temp, s.Socket = temp, filepath.Join(temp, "link", "redis.sock")
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.cancel = cancel
	s.running.Go(func() { s.err = s.keep(run) })
	rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: s.Socket, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true})
	defer rdb.Close()
	ctx, cancel = context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	for {
		err := rdb.Ping(ctx).Err()
		if err == nil {
			select {
			case s.failed <- nil: // later errors are logged
			default:
			}
			return s, nil
		}
		select {
		case err = <-s.failed:
			err = fmt.Errorf("no Redis is configured, and none can keep its data in %s: %w; name a Redis as redis: in the config, or with --redis", dir, err)
		case <-ctx.Done():
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
	_ = os.RemoveAll(s.temp)
	return s.err
}

// keep runs the server whenever no other process does, until ctx ends.
func (s *Store) keep(ctx context.Context) (err error) {
	for ctx.Err() == nil {
		pause := 100 * time.Millisecond
		if err = s.serve(ctx); err != nil && ctx.Err() == nil {
			select {
			case s.failed <- err:
			default:
				s.log(err.Error())
			}
			err, pause = nil, tick // the server may end as soon as it starts
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return err
}

// serve runs the server until it ends, or returns nil if another process runs it. If the folder is
// removed, other processes do not find the server, so serve ends it.
func (s *Store) serve(ctx context.Context) error {
	// Only the owner of a folder can change its mode. A folder in /tmp may be another user's trap.
	if err := cmp.Or(os.MkdirAll(s.dir, 0o700), os.Chmod(s.dir, 0o700)); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(s.dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err = lockFile(lock); err == nil {
		_ = os.Remove(s.Socket) // a crash leaves it
		err = cmp.Or(os.WriteFile(filepath.Join(s.dir, ".gitignore"), []byte("*\n"), 0o600), os.WriteFile(lock.Name(), fmt.Append(nil, os.Getpid()), 0o600))
	}
	if errors.Is(err, syscall.EWOULDBLOCK) { // another process has the lock
		return nil
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
		for ticks := time.Tick(tick); ctx.Err() == nil; <-ticks {
			if removed() {
				cancel()
			}
		}
	}()
	if err = s.run(ctx, lock); removed() {
		return fmt.Errorf("the folder %s was removed with the jobs in it", s.dir)
	}
	return err
}
