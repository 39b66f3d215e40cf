package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"syscall"
)

// run runs a server with the data of the folder until ctx ends.
func (s *Store) run(ctx context.Context, lock *os.File) error {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		err = errors.New("there is no redis-server on the PATH")
	} else if text, _ := exec.Command(path, "--version").Output(); !regexp.MustCompile(` v=([7-9]|\d\d)\.`).Match(text) {
		err = fmt.Errorf("%s is older than version 7", path) // which keeps its data under another name
	}
	if err == nil {
		s.log("no Redis is configured: redis-server runs for this process, with its data in " + s.dir)
		return s.runChild(ctx, path, lock)
	}
	if _, there := os.Stat(filepath.Join(s.dir, "appendonlydir")); there == nil {
		return fmt.Errorf("the jobs are those of a redis-server, but %w", err)
	}
	s.log(fmt.Sprintf("no Redis is configured: miniredis runs within this process, and saves to %s each second; a real Redis is faster and safer, but %v", s.dir, err))
	return s.runMini(ctx)
}

var childAttributes *syscall.SysProcAttr // of the operating system

func (s *Store) runChild(ctx context.Context, path string, lock *os.File) error {
	log, err := os.Create(filepath.Join(s.dir, "redis.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, path, "--port", "0", "--unixsocket", "redis.sock", "--unixsocketperm", "700",
		"--save", "", "--appendonly", "yes", "--auto-aof-rewrite-min-size", "4mb", "--maxmemory-policy", "noeviction")
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = s.dir, log, log, childAttributes
	cmd.ExtraFiles = []*os.File{lock} // the child holds the lock, too, because it may outlive this process
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = answerTimeout
	runtime.LockOSThread() // because Linux ends the child with the thread that started it
	if err := cmd.Run(); ctx.Err() == nil {
		return fmt.Errorf("redis-server has ended: see %s: %v", log.Name(), err)
	}
	return nil
}
